"""Sending and pulling over real connections to a broker with a real store."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broker_wire import Wire, a_run, records_of, running, until
from dejamq_broker.app import Broker
from dejamq_broker.store import StoreConfig
from dejamq_proto import admin_pb2
from dejamq_proto.admin_pb2_grpc import AdminStub
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.common_pb2 import TopicConfig
from dejamq_proto.wire.messages import PullAnswer, SendRun, SendRunResult


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    async with Wire(broker.address) as wire:
        yield wire


async def pulled(wire: Wire, topic: str, count: int, **more: Any) -> PullAnswer:
    """The answer once this many messages can be read; dispatch follows the append in its own thread."""

    async def enough() -> PullAnswer | None:
        answer = await wire.pull(topic, **more)
        return answer if len(answer.sizes) == count else None

    return await until(enough)  # type: ignore[no-any-return]


async def held(broker: Broker, count: int = 1) -> None:
    """Until this many pulls are parked."""
    await until(lambda: broker.domain.long_poll.waiting == count)


async def test_what_is_sent_is_pulled_with_the_brokers_fields_filled(wire: Wire, broker: Broker) -> None:
    sent = await wire.send(a_run("orders", [b"a", b"bb"], tags="x", properties={"KEYS": "k1"}))
    assert (sent.code, sent.queue_offsets.tolist(), sent.store_host) == (0, [0, 1], broker.address)
    answer = await pulled(wire, "orders", 2)
    first, second = records_of(answer)
    assert (answer.code, answer.next_offset, answer.min_offset, answer.max_offset) == (0, 2, 0, 2)
    assert (first.body, second.body, second.queue_offset) == (b"a", b"bb", 1)
    assert second.log_offset == int(sent.span_log_offsets[0]) + int(answer.sizes[0])
    assert first.store_timestamp_ms == sent.store_timestamp_ms > 0
    assert first.born_host[0] == "127.0.0.1"
    assert first.store_host == ("127.0.0.1", int(broker.address.rpartition(":")[2]))
    assert first.properties["KEYS"] == "k1"


async def test_one_run_to_several_queues_and_topics_gets_each_its_own_offsets(wire: Wire) -> None:
    await wire.send(a_run("a", [b"before"], queue_id=1))
    parts = [a_run("a", [b"1"], queue_id=1), a_run("b", [b"2"]), a_run("a", [b"3"], queue_id=1)]
    run = SendRun(
        client_id="c", boot_id="b", seq=9, queues=[("a", 1), ("b", 0)], queue_index=np.array([0, 1, 0], "<u4"),
        sizes=np.concatenate([part.sizes for part in parts]), records=[each for part in parts for each in part.records],
    )  # fmt: skip
    sent = await wire.send(run)
    assert (sent.code, sent.seq, sent.queue_offsets.tolist()) == (0, 9, [1, 0, 2])
    answer = await pulled(wire, "a", 3, queue_id=1)
    assert [record.body for record in records_of(answer)] == [b"before", b"1", b"3"]


async def test_a_stream_answers_runs_in_order_and_pipelined(wire: Wire) -> None:
    stream = wire.send_stream()
    for seq in range(20):
        await stream.write(a_run("orders", [b"x"] * 3, seq=seq).encode())
    answers = [SendRunResult.decode(await stream.read()) for _ in range(20)]
    assert [answer.seq for answer in answers] == list(range(20))
    assert [answer.queue_offsets.tolist() for answer in answers] == [[n * 3, n * 3 + 1, n * 3 + 2] for n in range(20)]
    await stream.done_writing()
    assert str(await stream.code()) == "StatusCode.OK"


async def test_sync_flush_answers_when_it_is_on_disk_unless_told_not_to_wait(tmp_path: Path) -> None:
    synced = StoreConfig(mapped_file_size_commit_log=1 << 20, flush_disk_type="SYNC_FLUSH")
    async with running(tmp_path / "s", store=synced) as broker, Wire(broker.address) as wire:
        stream = wire.send_stream()
        for seq in range(8):
            await stream.write(a_run("orders", [b"x"], seq=seq, no_wait_store=bool(seq % 2)).encode())
        answers = [SendRunResult.decode(await stream.read()) for _ in range(8)]
        assert [(answer.seq, answer.code) for answer in answers] == [(seq, 0) for seq in range(8)]


def broken_crc(run: SendRun) -> None:
    record = bytearray(run.records[1])
    record[8] ^= 1
    run.records = [run.records[0], bytes(record), *run.records[2:]]


def wrong_topic(run: SendRun) -> None:
    run.records = [run.records[0], a_run("orderz", [b"22"]).records[0], *run.records[2:]]
    run.sizes = np.array([len(record) for record in run.records], "<u4")


def wrong_queue(run: SendRun) -> None:
    run.records = [run.records[0], a_run("orders", [b"22"], queue_id=1).records[0], *run.records[2:]]


def wrong_size(run: SendRun) -> None:
    run.sizes = run.sizes + np.array([0, 1, -1]).astype("<u4")


def too_large(run: SendRun) -> None:
    run.records = [run.records[0], a_run("orders", [bytes(5000)]).records[0], *run.records[2:]]
    run.sizes = np.array([len(record) for record in run.records], "<u4")


@pytest.mark.parametrize("spoil", [broken_crc, wrong_topic, wrong_queue, wrong_size, too_large])
async def test_a_refused_run_names_the_record_and_stores_nothing(tmp_path: Path, spoil: Any) -> None:
    small = StoreConfig(mapped_file_size_commit_log=1 << 20, max_message_size=4096)
    async with running(tmp_path / "s", store=small) as broker, Wire(broker.address) as wire:
        run = a_run("orders", [b"11", b"22", b"33"])
        spoil(run)
        refused = await wire.send(run)
        assert (refused.code, refused.bad_record) == (Code.MESSAGE_ILLEGAL, 1)
        assert "record 1" in refused.remark
        accepted = await wire.send(a_run("orders", [b"good"]))
        assert accepted.queue_offsets.tolist() == [0]
        assert accepted.span_log_offsets.tolist() == [0]


@pytest.mark.parametrize(
    ("topic", "queue_id", "code"),
    [
        ("orders", 4, Code.INVALID_PARAMETER),
        ("bad name", 0, Code.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", 0, Code.NO_PERMISSION),
    ],
)
async def test_a_run_to_no_such_queue_is_refused_as_a_whole(wire: Wire, topic: str, queue_id: int, code: Code) -> None:
    refused = await wire.send(a_run(topic, [b"x"], queue_id=queue_id))
    assert (refused.code, refused.bad_record) == (code, -1)


async def test_bytes_that_are_no_run_are_refused_and_the_stream_lives_on(wire: Wire) -> None:
    stream = wire.send_stream()
    await stream.write(b"\xff\xff\xff")
    assert SendRunResult.decode(await stream.read()).code == Code.MESSAGE_ILLEGAL
    await stream.write(a_run("orders", [b"x"]).encode())
    assert SendRunResult.decode(await stream.read()).code == 0


async def test_a_first_send_creates_the_topic_unless_that_is_off(tmp_path: Path, wire: Wire) -> None:
    await wire.send(a_run("orders", [b"x"], default_queue_nums=2))
    admin: Any = AdminStub(wire.channel)
    topics = (await wire.call(admin.ListTopicConfigs, admin_pb2.ListTopicConfigsRequest())).topics
    shapes = {topic.topic: (topic.write_queue_nums, topic.perm) for topic in topics}
    system = {"TBW102": (8, 7), "SCHEDULE_TOPIC_XXXX": (18, 6), "SELF_TEST_TOPIC": (1, 6)}
    system |= {"DefaultCluster_REPLY_TOPIC": (1, 6), "DefaultCluster": (1, 7), "broker-a": (1, 7)}
    assert shapes == system | {"orders": (2, 6)}
    async with running(tmp_path / "other", auto_create_topic_enable=False) as other, Wire(other.address) as strict:
        assert (await strict.send(a_run("orders", [b"x"]))).code == Code.TOPIC_NOT_EXIST
        admin = AdminStub(strict.channel)
        shape = TopicConfig(topic="orders", read_queue_nums=1, write_queue_nums=1, perm=6)
        await strict.call(admin.CreateTopic, admin_pb2.CreateTopicRequest(topic=shape))
        assert (await strict.send(a_run("orders", [b"x"]))).code == 0


async def test_a_held_pull_is_woken_by_an_arrival(wire: Wire, broker: Broker) -> None:
    await wire.send(a_run("orders", [b"first"]))
    await pulled(wire, "orders", 1)
    stream = wire.pull_stream()
    await stream.write(wire.pull_request("orders", 1, suspend_ms=60_000))
    await held(broker)
    await wire.send(a_run("orders", [b"second"]))
    answer = PullAnswer.decode(await stream.read())
    assert [record.body for record in records_of(answer)] == [b"second"]


async def test_a_held_pull_on_a_queue_without_any_message_is_woken_too(wire: Wire, broker: Broker) -> None:
    await wire.send(a_run("orders", [b"elsewhere"], queue_id=1))
    stream = wire.pull_stream()
    await stream.write(wire.pull_request("orders", 0, suspend_ms=60_000))
    await held(broker)
    await wire.send(a_run("orders", [b"here"]))
    assert PullAnswer.decode(await stream.read()).next_offset == 1


async def test_a_hold_that_times_out_answers_not_found(wire: Wire) -> None:
    await wire.send(a_run("orders", [b"first"]))
    await pulled(wire, "orders", 1)
    answer = await wire.pull("orders", 1, suspend_ms=30)
    assert (answer.code, answer.remark, answer.next_offset) == (Code.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 1)


async def test_answers_of_different_queues_do_not_wait_for_each_other(wire: Wire) -> None:
    await wire.send(a_run("orders", [b"x"], queue_id=1))
    await pulled(wire, "orders", 1, queue_id=1)
    stream = wire.pull_stream()
    held = wire.pull_request("orders", 0, suspend_ms=60_000)
    ready = wire.pull_request("orders", 0, queue_id=1)
    await stream.write(held)
    await stream.write(ready)
    assert PullAnswer.decode(await stream.read()).seq == ready.caller.seq


@pytest.mark.parametrize(
    ("queue_offset", "code", "next_offset"),
    [(0, 0, 2), (2, Code.PULL_NOT_FOUND, 2), (9, Code.PULL_OFFSET_MOVED, 2)],
)
async def test_each_offset_gets_rocketmqs_answer(wire: Wire, queue_offset: int, code: int, next_offset: int) -> None:
    await wire.send(a_run("orders", [b"1", b"2"]))
    await pulled(wire, "orders", 2)
    answer = await wire.pull("orders", queue_offset)
    assert (answer.code, answer.next_offset) == (code, next_offset)


@pytest.mark.parametrize(("queue_offset", "code"), [(0, Code.PULL_NOT_FOUND), (5, Code.PULL_OFFSET_MOVED)])
async def test_an_empty_queue_is_only_right_from_its_beginning(wire: Wire, queue_offset: int, code: Code) -> None:
    await wire.send(a_run("orders", [b"elsewhere"], queue_id=1))
    answer = await wire.pull("orders", queue_offset)
    assert (answer.code, answer.next_offset) == (code, 0)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "unknown"}, Code.TOPIC_NOT_EXIST),
        ({"queue_id": 4}, Code.INVALID_PARAMETER),
        ({"group": "bad group"}, Code.INVALID_PARAMETER),
        ({"expression": "||"}, Code.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_an_impossible_pull_is_answered_with_why(wire: Wire, more: dict[str, Any], code: Code) -> None:
    await wire.send(a_run("orders", [b"x"]))
    answer = await wire.pull(**({"topic": "orders"} | more))
    assert (answer.code, bool(answer.remark)) == (code, True)


async def test_only_wanted_tags_are_answered(wire: Wire) -> None:
    for tags in ("A", "B", "标签", "A", ""):
        await wire.send(a_run("orders", [b"with " + tags.encode()], tags=tags))
    await pulled(wire, "orders", 5)
    answer = await wire.pull("orders", expression="A || 标签")
    assert [record.properties["TAGS"] for record in records_of(answer)] == ["A", "标签", "A"]
    nothing = await wire.pull("orders", expression="C", suspend_ms=60_000)
    assert (nothing.code, nothing.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 5)


async def test_unwanted_arrivals_leave_a_pull_held_and_its_end_says_where_to_go_on(wire: Wire, broker: Broker) -> None:
    await wire.send(a_run("orders", [b"x"], tags="A"))
    await pulled(wire, "orders", 1)
    stream = wire.pull_stream()
    await stream.write(wire.pull_request("orders", 1, expression="A", suspend_ms=60_000))
    await stream.write(wire.pull_request("orders", 1, expression="C", suspend_ms=1000))
    await held(broker, 2)
    await wire.send(a_run("orders", [b"no"], tags="B"))
    ended = PullAnswer.decode(await stream.read())
    assert (ended.code, ended.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 2)
    await wire.send(a_run("orders", [b"yes"], tags="A"))
    woken = PullAnswer.decode(await stream.read())
    assert [record.body for record in records_of(woken)] == [b"yes"]


async def test_a_pull_commits_on_the_way(wire: Wire) -> None:
    await wire.send(a_run("orders", [b"x"]))
    await wire.pull("orders", 0, commit_offset=1)
    assert await wire.committed("readers", "orders") == 1


async def test_closing_answers_held_pulls_and_ends_the_streams(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as broker, Wire(broker.address) as wire:
        await wire.send(a_run("orders", [b"x"]))
        await pulled(wire, "orders", 1)
        pulls, sends = wire.pull_stream(), wire.send_stream()
        await pulls.write(wire.pull_request("orders", 1, suspend_ms=60_000))
        await sends.write(a_run("orders", [b"y"], queue_id=1).encode())
        assert SendRunResult.decode(await sends.read()).code == 0
        await held(broker)
        closing = asyncio.create_task(broker.close())
        assert PullAnswer.decode(await pulls.read()).code == Code.PULL_NOT_FOUND
        assert str(await pulls.code()) == str(await sends.code()) == "StatusCode.OK"
        await closing
        await broker.close()
        with pytest.raises(DejamqError):
            await wire.committed("readers", "orders")
