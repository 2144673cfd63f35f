"""Members and offsets over real connections, and what a restart or a crash leaves of them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, a_run, broker_config, running, until
from dejamq_broker.app import Broker
from dejamq_broker.base.streams import MOST_ASKED
from dejamq_proto import admin_pb2, client_pb2
from dejamq_proto.admin_pb2_grpc import AdminStub
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.common_pb2 import Caller, QueueKey
from dejamq_proto.records.record import decode
from journalled import journalled


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


async def members(wire: Wire, group: str) -> list[str]:
    request = client_pb2.ConsumerListRequest(caller=wire.caller(), group=group)
    return list((await wire.call(wire.client.ConsumerList, request)).client_ids)


async def next_change(stream: Any) -> str:
    command = await stream.read()
    assert command.HasField("consumer_ids_changed"), command
    return str(command.consumer_ids_changed.group)


async def test_members_are_told_who_joins_and_when_a_stream_ends(broker: Broker) -> None:
    async with Wire(broker.address, "c1") as first, Wire(broker.address, "c2") as second:
        one = await first.heartbeat_stream("g")
        two = await second.heartbeat_stream("g")
        assert await next_change(one) == "g"
        assert await members(first, "g") == ["c1", "c2"]
        two.cancel()
        assert await next_change(one) == "g"
        assert await members(first, "g") == ["c1"]


async def test_a_lost_connection_is_a_member_that_left(broker: Broker) -> None:
    async with Wire(broker.address, "c1") as first:
        one = await first.heartbeat_stream("g")
        async with Wire(broker.address, "c2") as second:
            await second.heartbeat_stream("g")
            assert await next_change(one) == "g"
        assert await next_change(one) == "g"
        assert await members(first, "g") == ["c1"]


async def test_an_unregistered_member_is_gone_while_its_stream_stays(broker: Broker) -> None:
    async with Wire(broker.address, "c1") as wire:
        await wire.heartbeat_stream("g", "h")
        request = client_pb2.UnregisterRequest(caller=wire.caller(), consumer_group="g")
        await wire.call(wire.client.Unregister, request)
        with pytest.raises(DejamqError) as caught:
            await members(wire, "g")
        assert caught.value.code is Code.SYSTEM_ERROR
        assert await members(wire, "h") == ["c1"]


async def test_a_silent_member_expires_by_the_injected_clock(tmp_path: Path) -> None:
    now = [1_000_000]
    config = broker_config(tmp_path, client_housekeeping_interval_ms=10)
    broker = Broker(config, clock_ms=lambda: now[0])
    await broker.start()
    try:
        async with Wire(broker.address, "c1") as wire:
            await wire.heartbeat_stream("g")
            now[0] += 120_001

            async def gone() -> bool:
                try:
                    return not await members(wire, "g")
                except DejamqError:
                    return True

            await until(gone)
    finally:
        await broker.close()


async def test_a_heartbeat_makes_the_group_and_its_retry_topic(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        await wire.heartbeat_stream("g")
        admin: Any = AdminStub(wire.channel)
        topics = (await wire.call(admin.ListTopicConfigs, admin_pb2.ListTopicConfigsRequest())).topics
        assert {topic.topic: topic.write_queue_nums for topic in topics}["%RETRY%g"] == 1


async def test_a_heartbeat_with_an_unusable_group_is_answered_with_why(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        stream: Any = wire.client.ClientChannel()
        bad = client_pb2.ConsumerData(group="no good")
        await stream.write(client_pb2.Heartbeat(caller=wire.caller(), consumers=[bad]))
        ack = (await stream.read()).heartbeat_ack
        assert (ack.code, "no good" in ack.remark) == (Code.INVALID_PARAMETER, True)
        stream.cancel()


@pytest.mark.parametrize(
    ("group", "topic", "code"), [("g", "nope", Code.TOPIC_NOT_EXIST), ("x", "t", Code.SUBSCRIPTION_GROUP_NOT_EXIST)]
)
async def test_a_commit_for_something_unknown_is_refused(broker: Broker, group: str, topic: str, code: Code) -> None:
    async with Wire(broker.address) as wire:
        await wire.send(a_run("t", [b"x"]))
        await wire.heartbeat_stream("g")
        with pytest.raises(DejamqError) as caught:
            await wire.commit(group, topic, 1)
        assert caught.value.code is code


async def test_of_commits_in_one_call_only_those_at_fault_are_refused(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        await wire.send(a_run("t", [b"x"]))
        await wire.heartbeat_stream("g")
        topics = ("nope", "t")
        first, second = (
            client_pb2.UpdateOffsetRequest(caller=wire.caller(), group="g", queue=QueueKey(topic=topic), offset=1)
            for topic in topics
        )
        first.also.append(second)
        with pytest.raises(DejamqError) as caught:
            await wire.call(wire.client.UpdateOffset, first)
        assert caught.value.code is Code.TOPIC_NOT_EXIST
        assert await wire.committed("g", "t") == 1


async def test_of_commits_in_one_call_each_is_answered_for_whoever_asks_for_that(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        await wire.send(a_run("t", [b"x"]))
        await wire.heartbeat_stream("g")
        first, *also = (
            client_pb2.UpdateOffsetRequest(caller=wire.caller(), group="g", queue=QueueKey(topic=topic), offset=offset)
            for topic, offset in (("nope", 1), ("t", 1), ("t", -1))
        )
        first.also.extend(also)
        first.answer_each = True
        answers = (await wire.call(wire.client.UpdateOffset, first)).answers
        assert await wire.committed("g", "t") == 1
    assert [answer.code for answer in answers] == [Code.TOPIC_NOT_EXIST, 0, Code.INVALID_PARAMETER]
    assert "nope" in answers[0].remark


async def test_of_questions_for_offsets_in_one_call_each_has_the_answer_that_it_alone_would_have(
    broker: Broker,
) -> None:
    async with Wire(broker.address) as wire:
        await wire.send(a_run("t", [b"x", b"y"]))
        await wire.heartbeat_stream("g")
        await wire.commit("g", "t", 2)
        first, *also = (
            client_pb2.QueryOffsetRequest(
                caller=wire.caller(), group=group, queue=QueueKey(topic="t"), set_zero_if_not_found=zero
            )
            for group, zero in (("other", False), ("g", True), ("other", True))
        )
        with pytest.raises(DejamqError) as caught:
            await wire.call(wire.client.QueryOffset, first)
        assert caught.value.code is Code.QUERY_NOT_FOUND
        first.also.extend(also)
        answers = (await wire.call(wire.client.QueryOffset, first)).answers
    assert [(each.code, each.offset) for each in answers] == [(Code.QUERY_NOT_FOUND, 0), (0, 2), (0, 0)]
    assert answers[0].remark == str(caught.value)


def commits(wire: Wire, *queues: tuple[str, int]) -> client_pb2.Heartbeat:
    """A frame of commits of group ``g``, with numbers from 70 on."""
    told = [
        client_pb2.QueueCommit(topic=topic, offset=offset, seq=70 + number)
        for number, (topic, offset) in enumerate(queues)
    ]
    return client_pb2.Heartbeat(commits=client_pb2.Commits(caller=wire.caller(), group="g", queues=told))


async def test_commits_beside_heartbeats_are_journalled_as_oneways_each_by_its_number(tmp_path: Path) -> None:
    config = broker_config(tmp_path, journal_dir=str(tmp_path / "journal"))
    broker = Broker(config)
    await broker.start()
    try:
        async with Wire(broker.address) as wire:
            await wire.send(a_run("t", [b"x"]))
            stream = await wire.heartbeat_stream("g")
            await stream.write(commits(wire, ("t", 0), ("t", 1)))
            await stream.write(client_pb2.Heartbeat(consumer_list=client_pb2.ConsumerListRequest(
                caller=Caller(client_id="tester", boot_id="tester-boot", seq=99), group="g",
            )))  # fmt: skip
            answer = (await stream.read()).consumer_list
            assert (answer.seq, answer.code, list(answer.client_ids)) == (99, 0, ["tester"])
            assert await wire.committed("g", "t") == 1
    finally:
        await broker.close()
    told = journalled(tmp_path / "journal", of="broker-*")
    assert [
        (line["new"], line["by"], line["client_id"], line["client_boot_id"], line["request_seq"])
        for line in told if line["event"] == "OFF_SET"
    ] == [(0, "oneway", "tester", "tester-boot", 70), (1, "oneway", "tester", "tester-boot", 71)]  # fmt: skip
    assert [line["request_seq"] for line in told if line["event"] == "MEMBER_LIST"] == [99]


async def test_of_commits_beside_heartbeats_the_first_refusal_is_told_and_the_others_count(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        await wire.send(a_run("t", [b"x"]))
        stream = await wire.heartbeat_stream("g")
        await stream.write(commits(wire, ("nope", 1), ("none", 1), ("t", 1)))
        refused = (await stream.read()).commit_refused
        assert (refused.code, "nope" in refused.remark) == (Code.TOPIC_NOT_EXIST, True)
        assert await wire.committed("g", "t") == 1


async def test_however_many_commits_came_beside_heartbeats_what_comes_next_is_answered(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        await wire.send(a_run("t", [b"x"]))
        stream = await wire.heartbeat_stream("g")
        for _ in range(2 * MOST_ASKED):
            await stream.write(commits(wire, ("t", 1)))
        request = client_pb2.ConsumerListRequest(caller=wire.caller(), group="g")
        await stream.write(client_pb2.Heartbeat(consumer_list=request))
        assert list((await stream.read()).consumer_list.client_ids) == ["tester"]


async def test_a_question_for_members_of_nobody_is_refused_and_the_channel_goes_on(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        stream = await wire.heartbeat_stream("g")
        for group in ("nobody", "g"):
            request = client_pb2.ConsumerListRequest(caller=wire.caller(), group=group)
            await stream.write(client_pb2.Heartbeat(consumer_list=request))
        refused, told = [(await stream.read()).consumer_list for _ in range(2)]
        assert (refused.code, "nobody" in refused.remark, list(refused.client_ids)) == (Code.SYSTEM_ERROR, True, [])
        assert (told.code, list(told.client_ids)) == (0, ["tester"])


async def test_bounds_and_times_of_a_queue_are_told(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        sent = await wire.send(a_run("t", [b"x", b"y"]))
        queue = QueueKey(topic="t", queue_id=0)

        async def dispatched() -> bool:
            request = client_pb2.QueueRequest(queue=queue)
            return bool((await wire.call(wire.client.MaxOffset, request)).offset == 2)

        await until(dispatched)
        assert (await wire.call(wire.client.MinOffset, client_pb2.QueueRequest(queue=queue))).offset == 0
        for at_ms, found in ((sent.store_timestamp_ms, 0), (sent.store_timestamp_ms + 1, 2)):
            request = client_pb2.SearchOffsetRequest(queue=queue, timestamp_ms=at_ms)
            assert (await wire.call(wire.client.SearchOffset, request)).offset == found


async def test_a_new_group_on_a_young_queue_begins_at_zero_and_on_an_empty_one_nowhere(broker: Broker) -> None:
    async with Wire(broker.address) as wire:
        await wire.send(a_run("t", [b"x"]))
        await until(lambda: broker_max(broker, "t") == 1)
        assert await wire.committed("new", "t") == 0
        with pytest.raises(DejamqError) as caught:
            await wire.committed("new", "%RETRY%new")
        assert caught.value.code is Code.QUERY_NOT_FOUND


def broker_max(broker: Broker, topic: str) -> int:
    return broker.domain.store.max_offset(topic, 0)


async def test_a_clean_stop_keeps_every_commit(tmp_path: Path) -> None:
    async with running(tmp_path, flush_consumer_offset_interval_ms=3_600_000) as broker, Wire(broker.address) as wire:
        await wire.send(a_run("t", [b"x"]))
        await wire.heartbeat_stream("g")
        await wire.commit("g", "t", 1)
        await wire.commit("g", "t", 77, oneway=True)
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        assert await wire.committed("g", "t") == 77
        admin: Any = AdminStub(wire.channel)
        (offset,) = (await wire.call(admin.ListOffsets, admin_pb2.ListOffsetsRequest(group="g"))).offsets
        assert (offset.queue.topic, offset.committed, offset.max_offset) == ("t", 77, 1)


async def test_a_start_that_fails_leaves_nothing_open_and_nothing_changed(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        await wire.heartbeat_stream("g")
    offsets = tmp_path / "config" / "consumerOffset.json"
    offsets.write_text("garbage")
    with pytest.raises(DejamqError, match="consumerOffset"):
        await Broker(broker_config(tmp_path)).start()
    assert offsets.read_text() == "garbage"
    offsets.unlink()
    async with running(tmp_path):
        pass


async def test_operators_see_numbers_clashes_and_single_messages(broker: Broker) -> None:
    async with Wire(broker.address, "same", "boot1") as first, Wire(broker.address, "same", "boot2") as second:
        await first.send(a_run("t", [b"hello"]))
        one, two = await first.heartbeat_stream("g"), await second.heartbeat_stream("g")
        admin: Any = AdminStub(first.channel)
        values = (await first.call(admin.RuntimeInfo, admin_pb2.RuntimeInfoRequest())).values
        assert (values["brokerName"], values["brokerAddr"]) == ("broker-a", broker.address)
        assert (values["consumerGroups"], values["clientIdClashes"]) == ("g", "g:same")
        assert int(values["commitLogMaxOffset"]) > 0
        view = await first.call(admin.ViewMessage, admin_pb2.ViewMessageRequest(log_offset=0))
        assert decode(view.record).body == b"hello"
        with pytest.raises(DejamqError) as caught:
            await first.call(admin.ViewMessage, admin_pb2.ViewMessageRequest(log_offset=1))
        assert caught.value.code is Code.QUERY_NOT_FOUND
        one.cancel()
        two.cancel()
