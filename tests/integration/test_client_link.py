"""One client's connection to one broker, where the broker does not do what it should."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from broker_wire import until
from dejamq import SendTimeout
from dejamq.net.broker import BrokerLink
from dejamq_proto.client_pb2 import (
    BrokerCommand,
    ConsumerListAnswer,
    ConsumerListResponse,
    Heartbeat,
    HeartbeatAck,
    OffsetAnswer,
    UpdateOffsetRequest,
    UpdateOffsetResponse,
)
from dejamq_proto.client_pb2_grpc import ClientServicer, add_ClientServicer_to_server
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.send_pb2 import SendBackRequest
from dejamq_proto.send_pb2_grpc import SendServicer, add_SendServicer_to_server
from dejamq_proto.serving.server import Server

FAR_MS, SOON_MS = 600_000, 50


class Somebody:
    def caller(self, seq: int = 0) -> Caller:
        return Caller(client_id="c", boot_id="b", seq=seq)


async def never(request: Any, context: Any) -> Any:
    await asyncio.Event().wait()


@asynccontextmanager
async def silent_broker(*, timeout_ms: float, progress_timeout_ms: float) -> AsyncIterator[BrokerLink]:
    """A link to a broker that takes every call and answers none."""
    clients = ClientServicer()  # type: ignore[abstract]  # answers only what is asked here
    sends = SendServicer()  # type: ignore[abstract]  # answers only what is asked here
    for name in ("QueryOffset", "UpdateOffset", "ConsumerList", "MaxOffset"):
        setattr(clients, name, never)
    sends.SendBack = never  # type: ignore[method-assign]  # the silence is the test
    server = Server(())
    add_ClientServicer_to_server(clients, server.grpc)
    add_SendServicer_to_server(sends, server.grpc)
    link = BrokerLink(
        await server.start("127.0.0.1:0"), Somebody(), timeout_ms=timeout_ms, progress_timeout_ms=progress_timeout_ms
    )
    yield link
    await link.close()
    await server.stop(0)


PROGRESS: list[Callable[[BrokerLink], Awaitable[Any]]] = [
    lambda link: link.query_offset("g", "t", 0),
    lambda link: link.update_offset("g", "t", 0, 1),
    lambda link: link.send_back(SendBackRequest(group="g")),
]
OTHERS: list[Callable[[BrokerLink], Awaitable[Any]]] = [
    lambda link: link.consumer_list("g"),
    lambda link: link.max_offset("t", 0),
]


@pytest.mark.parametrize("ask", PROGRESS, ids=("query_offset", "update_offset", "send_back"))
async def test_calls_about_progress_have_a_time_out_of_their_own(ask: Callable[[BrokerLink], Awaitable[Any]]) -> None:
    async with silent_broker(timeout_ms=FAR_MS, progress_timeout_ms=SOON_MS) as link:
        with pytest.raises(SendTimeout):
            await ask(link)


@pytest.mark.parametrize("ask", OTHERS, ids=("consumer_list", "max_offset"))
async def test_other_calls_keep_the_general_time_out(ask: Callable[[BrokerLink], Awaitable[Any]]) -> None:
    async with silent_broker(timeout_ms=SOON_MS, progress_timeout_ms=FAR_MS) as link:
        with pytest.raises(SendTimeout):
            await ask(link)


@asynccontextmanager
async def taker_of_commits(*, reads_also: bool) -> AsyncIterator[tuple[BrokerLink, list[UpdateOffsetRequest]]]:
    """A link to a broker that takes commits by call, and what came there."""
    came: list[UpdateOffsetRequest] = []

    async def take(request: UpdateOffsetRequest, _: Any) -> UpdateOffsetResponse:
        came.append(request)
        return UpdateOffsetResponse(answers=[OffsetAnswer()] * (1 + len(request.also)) if reads_also else ())

    clients = ClientServicer()  # type: ignore[abstract]  # answers only what is asked here
    clients.UpdateOffset = take  # type: ignore[method-assign,assignment]  # the broker's part is played here
    server = Server(())
    add_ClientServicer_to_server(clients, server.grpc)
    link = BrokerLink(await server.start("127.0.0.1:0"), Somebody(), timeout_ms=FAR_MS)
    yield link, came
    await link.close()
    await server.stop(0)


async def test_commits_of_one_turn_that_nobody_waits_for_are_one_call() -> None:
    async with taker_of_commits(reads_also=True) as (link, came):
        for queue_id in range(3):
            link.update_offset_oneway("g", "t", queue_id, 10 + queue_id, seq=queue_id + 1)
        await until(lambda: came)
        link.update_offset_oneway("g", "t", 0, 20)
    first, second = came
    assert [(each.queue.queue_id, each.offset, each.caller.seq) for each in (first, *first.also)] == [
        (0, 10, 1), (1, 11, 2), (2, 12, 3),
    ]  # fmt: skip
    assert (second.offset, len(second.also)) == (20, 0)
    assert all(each.oneway for each in (first, *first.also, second))


async def test_commits_that_nobody_waits_for_all_come_to_a_broker_that_takes_one_of_a_call() -> None:
    async with taker_of_commits(reads_also=False) as (link, came):
        for queue_id in range(3):
            link.update_offset_oneway("g", "t", queue_id, 10 + queue_id)
    assert [(each.queue.queue_id, each.offset) for each in came] == [(0, 10), (1, 11), (2, 12)]


class Talker(ClientServicer):
    """A broker that keeps what came by the heartbeats' channel, and answers questions for members as it is told."""

    def __init__(self, *, takes_more: bool = True) -> None:
        self.takes_more, self.frames, self.calls = takes_more, list[Heartbeat](), list[str]()
        self.answer: ConsumerListAnswer | None = ConsumerListAnswer(client_ids=["c", "d"])
        self.ends = True

    async def ClientChannel(self, beats: Any, _: Any) -> AsyncIterator[BrokerCommand]:
        async for frame in beats:
            self.frames.append(frame)
            if not frame.WhichOneof("instead"):
                yield BrokerCommand(heartbeat_ack=HeartbeatAck(seq=frame.caller.seq, takes_more=self.takes_more))
            elif frame.HasField("consumer_list") and self.answer is not None:
                self.answer.seq = frame.consumer_list.caller.seq
                yield BrokerCommand(consumer_list=self.answer)
        if not self.ends:
            await asyncio.Event().wait()

    async def UpdateOffset(self, request: UpdateOffsetRequest, _: Any) -> UpdateOffsetResponse:
        self.calls.append("UpdateOffset")
        return UpdateOffsetResponse()

    async def ConsumerList(self, request: Any, _: Any) -> ConsumerListResponse:
        self.calls.append("ConsumerList")
        return ConsumerListResponse(client_ids=["by call"])


@asynccontextmanager
async def talking(talker: Talker, *, beat: bool = True, timeout_ms: float = FAR_MS) -> AsyncIterator[BrokerLink]:
    server = Server(())
    add_ClientServicer_to_server(talker, server.grpc)
    link = BrokerLink(await server.start("127.0.0.1:0"), Numbered(), timeout_ms=timeout_ms)
    if beat:
        caller = Caller(client_id="c", boot_id="b", seq=900)
        link.acknowledged((await link.heartbeat(Heartbeat(caller=caller))).heartbeat_ack)
    yield link
    await link.close()
    await server.stop(0)


class Numbered:
    def __init__(self) -> None:
        self._numbers = iter(range(1, 100))

    def caller(self, seq: int = 0) -> Caller:
        return Caller(client_id="c", boot_id="b", seq=seq or next(self._numbers))


async def test_a_broker_that_reads_commits_beside_heartbeats_gets_those_of_a_turn_in_one_frame() -> None:
    talker = Talker()  # type: ignore[abstract]  # answers only what is asked here
    async with talking(talker) as link:
        for queue_id in range(3):
            link.update_offset_oneway("g", "t", queue_id, 10 + queue_id, seq=queue_id + 1)
        await asyncio.sleep(0)
        assert await link.consumer_list("g") == ["c", "d"]  # behind them on the same stream
    commits = talker.frames[1].commits
    assert (commits.group, commits.caller.client_id, commits.caller.boot_id) == ("g", "c", "b")
    assert [(one.topic, one.queue_id, one.offset, one.seq) for one in commits.queues] == [
        ("t", 0, 10, 1), ("t", 1, 11, 2), ("t", 2, 12, 3),
    ]  # fmt: skip
    assert talker.calls == []


@pytest.mark.parametrize(("beat", "takes_more"), [(True, False), (False, True)])
async def test_a_broker_that_did_not_say_so_is_called(beat: bool, takes_more: bool) -> None:
    talker = Talker(takes_more=takes_more)  # type: ignore[abstract]  # answers only what is asked here
    async with talking(talker, beat=beat) as link:
        link.update_offset_oneway("g", "t", 0, 10)
        assert await link.consumer_list("g") == ["by call"]
    assert (sorted(talker.calls), len(talker.frames)) == (["ConsumerList", "UpdateOffset"], int(beat))


async def test_a_channel_that_broke_is_not_opened_for_a_commit() -> None:
    talker = Talker()  # type: ignore[abstract]  # answers only what is asked here
    async with talking(talker) as link:
        link.heartbeats.break_off("the test cut it")
        link.update_offset_oneway("g", "t", 0, 10)
    assert (talker.calls, len(talker.frames)) == (["UpdateOffset"], 1)


async def test_a_broker_that_came_back_is_called_until_it_says_again_that_it_reads_frames() -> None:
    talker = Talker()  # type: ignore[abstract]  # answers only what is asked here
    async with talking(talker) as link:
        link.heartbeats.break_off("the test cut it")
        talker.takes_more = False
        beat = Heartbeat(caller=Caller(client_id="c", boot_id="b", seq=901))
        acknowledged = link.heartbeat(beat)
        link.update_offset_oneway("g", "t", 0, 10)
        assert await link.consumer_list("g") == ["by call"]
        link.acknowledged((await acknowledged).heartbeat_ack)
        assert await link.consumer_list("g") == ["by call"]
    assert (sorted(talker.calls), len(talker.frames)) == (["ConsumerList", "ConsumerList", "UpdateOffset"], 2)


async def test_commits_of_the_turn_in_which_a_client_closes_are_read_by_the_broker() -> None:
    talker = Talker()  # type: ignore[abstract]  # answers only what is asked here
    async with talking(talker) as link:
        link.update_offset_oneway("g", "t", 0, 10)
    assert [frame.commits.queues[0].offset for frame in talker.frames[1:]] == [10]


async def test_a_broker_that_does_not_end_the_channel_does_not_hold_a_client_that_closes() -> None:
    talker = Talker()  # type: ignore[abstract]  # answers only what is asked here
    talker.ends = False
    async with talking(talker) as link:
        link.update_offset_oneway("g", "t", 0, 10)
        await asyncio.wait_for(link.close(), 30)
    assert [frame.commits.queues[0].offset for frame in talker.frames[1:]] == [10]


async def test_a_list_of_members_that_is_refused_or_does_not_come_is_an_error_as_of_a_call() -> None:
    talker = Talker()  # type: ignore[abstract]  # answers only what is asked here
    talker.answer = ConsumerListAnswer(code=int(Code.SYSTEM_ERROR), remark="no members")
    async with talking(talker, timeout_ms=SOON_MS) as link:
        with pytest.raises(DejamqError, match="no members") as caught:
            await link.consumer_list("g")
        assert caught.value.code is Code.SYSTEM_ERROR
        talker.answer = None
        with pytest.raises(SendTimeout):
            await link.consumer_list("g")


async def test_commits_that_never_left_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    talker = Talker()  # type: ignore[abstract]  # answers only what is asked here
    async with talking(talker) as link:
        link.heartbeats.tell(b"")
        link.heartbeats.break_off("the test cut it")
        assert "oneway_failed" in caplog.text
