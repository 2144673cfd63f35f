"""A broker opened on a copy of a real RocketMQ's store serves what that broker served."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, a_run, records_of, running, until
from dejamq_broker.app import Broker
from dejamq_broker.store import StoreConfig
from dejamq_proto import admin_pb2
from dejamq_proto.admin_pb2_grpc import AdminStub
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import Record, decode

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
STORE = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=1000, max_hash_slot_num=97, max_index_num=300
)


@pytest.fixture(params=["clean", "crash"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def manifest(kind: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / kind / "manifest.json").read_text())
    return content


@pytest.fixture
async def broker(tmp_path: Path, kind: str) -> AsyncIterator[Broker]:
    shutil.copytree(GOLDEN / kind / "store", tmp_path / "store")
    async with running(tmp_path / "store", store=STORE, schedule_poll_interval_ms=3_600_000) as broker:
        yield broker


async def everything(wire: Wire, topic: str, queue_id: int, queue_offset: int, end: int) -> list[Record]:
    records: list[Record] = []
    while queue_offset < end:
        answer = await wire.pull(topic, queue_offset, queue_id=queue_id, max_messages=1000)
        assert answer.code == 0, answer
        records += records_of(answer)
        queue_offset = answer.next_offset
    return records


async def test_every_message_is_pulled_as_the_real_broker_told_it(broker: Broker, manifest: dict[str, Any]) -> None:
    async with Wire(broker.address) as wire:
        for queue in manifest["queues"]:
            where = queue["topic"], queue["queue_id"]
            records = await everything(wire, *where, queue["min_offset"], queue["max_offset"])
            told = [(each["queue_offset"], each["log_offset"], each["body_crc"]) for each in queue["records"]]
            assert [(record.queue_offset, record.log_offset, record.body_crc) for record in records] == told
            assert [record.offset_message_id for record in records] == [
                each["offset_msg_id"] for each in queue["records"]
            ]


async def test_topics_groups_and_offsets_are_the_real_brokers(broker: Broker, kind: str) -> None:
    config = GOLDEN / kind / "store" / "config"
    async with Wire(broker.address) as wire:
        admin: Any = AdminStub(wire.channel)
        topics = (await wire.call(admin.ListTopicConfigs, admin_pb2.ListTopicConfigsRequest())).topics
        golden = json.loads((config / "topics.json").read_text())["topicConfigTable"]
        assert {topic.topic for topic in topics} == set(golden)
        offsets = (await wire.call(admin.ListOffsets, admin_pb2.ListOffsetsRequest(group="GroupRetry"))).offsets
        assert {(each.queue.topic, each.queue.queue_id) for each in offsets} == {
            ("Order", 0),
            ("Order", 1),
            ("%RETRY%GroupRetry", 0),
        }
        assert await wire.committed("GroupRetry", "Order") == (20 if kind == "clean" else 15)
        assert broker.domain.tables.groups.known("GroupRetry").retry_max_times >= 1


async def test_what_is_sent_then_continues_the_real_brokers_queue(broker: Broker, manifest: dict[str, Any]) -> None:
    (order,) = (queue for queue in manifest["queues"] if (queue["topic"], queue["queue_id"]) == ("Order", 0))
    async with Wire(broker.address) as wire:
        sent = await wire.send(a_run("Order", [b"from dejamq"]))
        assert sent.queue_offsets.tolist() == [order["max_offset"]]

        async def new() -> list[Record]:
            return records_of(await wire.pull("Order", order["max_offset"]))

        (record,) = await until(new)
        assert record.body == b"from dejamq"


async def test_opening_and_closing_leaves_the_real_brokers_settings_alone(
    broker: Broker, tmp_path: Path, kind: str
) -> None:
    await broker.close()
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"):
        original = (GOLDEN / kind / "store" / "config" / name).read_bytes()
        assert (tmp_path / "store" / "config" / name).read_bytes() == original, name


async def test_queries_by_key_answer_as_the_real_broker_did(broker: Broker, manifest: dict[str, Any]) -> None:
    assert len(manifest["query_by_key"]) == 6
    async with Wire(broker.address) as wire:
        for told in manifest["query_by_key"]:
            assert await queried(wire, told["topic"], told["key"]) == told["log_offsets"], told["key"]


async def test_every_message_is_found_by_its_unique_key_and_by_its_id(broker: Broker, manifest: dict[str, Any]) -> None:
    async with Wire(broker.address) as wire:
        admin: Any = AdminStub(wire.channel)
        for queue in manifest["queues"][:3]:
            for each in queue["records"][:5]:
                unique = each["properties"].get("UNIQ_KEY")
                if unique:
                    assert each["log_offset"] in await queried(wire, queue["topic"], unique, unique=True)
                by_id = admin_pb2.ViewMessageRequest(caller=wire.caller(), message_id=each["offset_msg_id"])
                record = decode((await wire.call(admin.ViewMessage, by_id)).record)
                assert (record.topic, record.log_offset) == (queue["topic"], each["log_offset"])


async def test_an_id_of_another_broker_and_text_that_is_no_id_are_refused(
    broker: Broker, manifest: dict[str, Any]
) -> None:
    known = manifest["queues"][0]["records"][0]["offset_msg_id"]
    async with Wire(broker.address) as wire:
        admin: Any = AdminStub(wire.channel)
        for message_id, code, says in (
            ("0A000001" + known[8:], Code.QUERY_NOT_FOUND, "10.0.0.1"),
            (known[:-1] + "1" if known[-1] != "1" else known[:-1] + "2", Code.QUERY_NOT_FOUND, "no message"),
            ("order-17", Code.INVALID_PARAMETER, "32 hex digits"),
        ):
            with pytest.raises(DejamqError, match=says) as refused:
                await wire.call(admin.ViewMessage, admin_pb2.ViewMessageRequest(message_id=message_id))
            assert refused.value.code == code


async def queried(wire: Wire, topic: str, key: str, **more: Any) -> list[int]:
    """Log offsets of the answer; none where the broker says that there is none."""
    admin: Any = AdminStub(wire.channel)
    request = admin_pb2.QueryMessageRequest(caller=wire.caller(), topic=topic, key=key, **more)
    try:
        answer = await wire.call(admin.QueryMessage, request)
    except DejamqError as refused:
        if refused.code != Code.QUERY_NOT_FOUND:
            raise
        return []
    assert answer.index_last_update_log_offset > 0
    return [decode(raw).log_offset for raw in answer.records]
