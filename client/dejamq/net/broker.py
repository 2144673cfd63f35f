"""Everything a client asks of one broker address: two hot streams, the heartbeat channel and plain calls."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic_ns
from typing import Any, NamedTuple

from dejamq_proto.account import Account
from dejamq_proto.client_pb2 import (
    BrokerCommand,
    ClaimRequest,
    ConsumerListRequest,
    Heartbeat,
    HeartbeatAck,
    LockBatchRequest,
    QueryOffsetRequest,
    QueueClaim,
    QueueCommit,
    QueueRelease,
    QueueRequest,
    ReleaseRequest,
    SearchOffsetRequest,
    UnlockBatchRequest,
    UnregisterRequest,
    UpdateOffsetRequest,
)
from dejamq_proto.client_pb2_grpc import ClientStub, HandoverStub
from dejamq_proto.codes import DejamqError
from dejamq_proto.common_pb2 import QueueKey
from dejamq_proto.pop_pb2 import AckRequest, AckResponse, ChangeInvisibleRequest, ReceiveRequest, ReceiveResponse
from dejamq_proto.pop_pb2_grpc import PopStub
from dejamq_proto.pull_pb2 import CheckFilterRequest, PullRequest
from dejamq_proto.pull_pb2_grpc import PullStub
from dejamq_proto.running_pb2 import CommandAnswer
from dejamq_proto.running_pb2_grpc import RunningStub
from dejamq_proto.send_pb2 import RecallRequest, SendBackRequest
from dejamq_proto.send_pb2_grpc import SendStub
from dejamq_proto.transaction_pb2 import EndTransactionRequest
from dejamq_proto.transaction_pb2_grpc import TransactionStub
from dejamq_proto.wire.calling import call, dial
from dejamq_proto.wire.fields import BadMessage
from dejamq_proto.wire.framed import Frame
from dejamq_proto.wire.messages import Key, PullAnswer, SendRun, SendRunResult, join_pulls
from dejamq_proto.wire.tls import ClientTls
from google.protobuf.message import DecodeError

from dejamq.net.fast_port import HotWires
from dejamq.net.identity import Identity
from dejamq.net.offset_calls import OffsetCalls
from dejamq.net.stream import AnswerCallback, AnswerStream
from dejamq.net.transport import FrameSource, Wire, grpc_wire
from dejamq.net.upkeep import Upkeep

# Readers of the frames of a broker's streams. A frame has the number of its question, or 0 where none was asked.
# Malformed ones raise BadFrame.


def run_result(frame: Frame) -> list[tuple[int, SendRunResult]]:
    result = SendRunResult.decode(frame)
    return [(result.seq, result)]


def pull_answers(frame: Frame) -> list[tuple[int, PullAnswer]]:
    also: list[PullAnswer] = []
    first = PullAnswer.decode(frame, also)
    return [(answer.seq, answer) for answer in (first, *also)]


def command(frame: Frame) -> list[tuple[int, BrokerCommand]]:
    try:
        said = BrokerCommand.FromString(bytes(frame))
    except DecodeError as error:
        raise BadMessage(f"a command cannot be read: {error}") from None
    return [(said.heartbeat_ack.seq or said.consumer_list.seq, said)]


log = logging.getLogger("dejamq")


class Claimed(NamedTuple):
    """The claims that a client holds now with their generations, maybe fewer than it asked for.

    ``off``: why hand-over is not graceful in the group now, '' when it is.
    """

    granted: dict[Key, int]
    off: str


class BrokerLink:
    """One channel to one broker address. Owned by the event loop; all failures are DejamqErrors.

    ``seq`` of a method is for callers that journal a request before it leaves; 0 takes the next number.
    """

    def __init__(
        self, address: str, identity: Identity, *, timeout_ms: float, progress_timeout_ms: float = 5_000,
        fast: bool = False, tls: ClientTls | None = None, account: Account | None = None,
    ) -> None:  # fmt: skip
        """``progress_timeout_ms`` is for send-backs and committed offsets, ``timeout_ms`` for all other calls.

        ``fast``: runs and pulls go to the broker's fast port where they can. ``tls``: None for plain connections.
        ``account`` signs calls and connections.
        """
        self.address = address
        self._identity, self._timeout_ms, self._progress_timeout_ms = identity, timeout_ms, progress_timeout_ms
        self._channel = dial(address, tls, account)
        self._client: Any = ClientStub(self._channel)
        self._handover: Any = HandoverStub(self._channel)
        self._send: Any = SendStub(self._channel)
        self._running: Any = RunningStub(self._channel)
        self._puller: Any = PullStub(self._channel)
        self._transaction: Any = TransactionStub(self._channel)
        self._pop: Any = PopStub(self._channel)
        hot = HotWires(self._channel, address, identity, fast=fast, tls=tls, account=account)
        self._runs = AnswerStream(partial(hot.open, "/dejamq.v1.Send/SendStream"), address, run_result)
        self._pulls = AnswerStream(partial(hot.open, "/dejamq.v1.Pull/PullStream"), address, pull_answers)
        self._pulls.join = join_pulls
        self.heartbeats = AnswerStream(self._open_heartbeats, address, command)
        self._oneways: set[asyncio.Task[None]] = set()
        query, update = self._client.QueryOffset, self._client.UpdateOffset
        self._offsets = OffsetCalls(partial(self._progress, query), partial(self._progress, update))
        self._upkeep = Upkeep(self.heartbeats, identity, self._commit_by_call, self._members_by_call, timeout_ms)

    def send_run(self, run: SendRun) -> asyncio.Future[SendRunResult]:
        """Send a run; ``run.seq`` is the caller's. A refusal is a result with its code, not an exception."""
        run.sent_ms = _now_ms()
        return self._runs.ask(run.seq, run.pieces())

    def send_run_for(self, told: AnswerCallback[SendRunResult], run: SendRun) -> None:
        """As ``send_run``, for somebody who is told in the turn in which the answer comes."""
        run.sent_ms = _now_ms()
        self._runs.ask_for(told, run.seq, run.pieces())

    def break_sends(self, reason: str) -> None:
        """Give up the send stream: all runs under way fail, indefinite."""
        self._runs.break_off(reason)

    def pull(self, request: PullRequest) -> asyncio.Future[PullAnswer]:
        """Ask for messages; a request without caller gets one. Error codes come in the answer, not as exceptions."""
        if not request.caller.seq:
            request.caller.CopyFrom(self._identity.caller())
        request.together = True
        return self._pulls.ask(request.caller.seq, request.SerializeToString())

    def heartbeat(self, beat: Heartbeat) -> asyncio.Future[BrokerCommand]:
        """Tell the broker who lives here; opens the channel whose end makes this client leave."""
        return self.heartbeats.ask(beat.caller.seq, beat.SerializeToString())

    def acknowledged(self, ack: HeartbeatAck) -> None:
        """The facts that the broker gave about itself when it took a heartbeat."""
        self._upkeep.acknowledged(takes_more=ack.takes_more)

    async def answer_command(self, answer: CommandAnswer) -> None:
        """Say what became of a numbered command; the broker takes any answer."""
        answer.caller.CopyFrom(self._identity.caller())
        await self._call(self._running.AnswerCommand, answer)

    async def query_offset(self, group: str, topic: str, queue_id: int, *, seq: int = 0) -> int | None:
        """The group's committed offset, None when the broker has none."""
        request = QueryOffsetRequest(caller=self._identity.caller(seq), group=group, queue=_key(topic, queue_id))
        return await self._offsets.query(request)

    async def update_offset(self, group: str, topic: str, queue_id: int, queue_offset: int, *, seq: int = 0) -> None:
        """Commit, acknowledged.

        Lower values are taken as well: the broker overwrites what it has (RocketMQ:
        ConsumerOffsetManager.commitOffset).
        """
        request = UpdateOffsetRequest(
            caller=self._identity.caller(seq), group=group, queue=_key(topic, queue_id), offset=queue_offset
        )
        await self._offsets.commit(request)

    def update_offset_oneway(self, group: str, topic: str, queue_id: int, queue_offset: int, *, seq: int = 0) -> None:
        """Commit without waiting; a failure is only logged, as RocketMQ's oneway."""
        commit = QueueCommit(topic=topic, queue_id=queue_id, offset=queue_offset, seq=self._identity.caller(seq).seq)
        self._upkeep.commit(group, commit)

    async def consumer_list(self, group: str, *, seq: int = 0) -> list[str]:
        """Client ids of the group's members as this broker knows them.

        Raises DejamqError with SYSTEM_ERROR for a group without members, as RocketMQ answers.
        """
        return await self._upkeep.members(ConsumerListRequest(caller=self._identity.caller(seq), group=group))

    async def max_offset(self, topic: str, queue_id: int) -> int:
        """One above the newest message's queue offset."""
        return await self._offset(self._client.MaxOffset, topic, queue_id)

    async def min_offset(self, topic: str, queue_id: int) -> int:
        """The oldest message's queue offset."""
        return await self._offset(self._client.MinOffset, topic, queue_id)

    async def search_offset(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first queue offset stored not earlier than this time; with ``upper`` the last one not later."""
        request = SearchOffsetRequest(
            caller=self._identity.caller(), queue=_key(topic, queue_id), timestamp_ms=timestamp_ms, upper=upper
        )
        return int((await self._call(self._client.SearchOffset, request)).offset)

    async def check_filter(self, request: CheckFilterRequest) -> None:
        """Whether the broker can filter so. Raises what it would refuse pulls with."""
        await self._call(self._puller.CheckFilter, request)

    async def pop(self, request: ReceiveRequest) -> ReceiveResponse:
        """Messages that nobody else of the group has for a time; the broker may hold the request."""
        timeout_ms = request.wait_ms + self._timeout_ms
        answer = await call(self._pop.Receive, request, address=self.address, timeout_ms=timeout_ms)
        assert isinstance(answer, ReceiveResponse)
        return answer

    async def ack(self, request: AckRequest) -> AckResponse:
        """Popped messages are done; each has its own outcome."""
        answer = await self._call(self._pop.Ack, request)
        assert isinstance(answer, AckResponse)
        return answer

    async def change_invisible(self, request: ChangeInvisibleRequest) -> str:
        """A popped message is invisible for another time; its new receipt handle."""
        return str((await self._call(self._pop.ChangeInvisible, request)).handle)

    async def send_back(self, request: SendBackRequest) -> None:
        """Give a message back for a later retry; a request without caller gets one.

        An error that is not ``definite`` may have stored the retry; whoever tries again may make two of it
        (cause B11).
        """
        if not request.caller.seq:
            request.caller.CopyFrom(self._identity.caller())
        await self._progress(self._send.SendBack, request)

    async def recall(self, group: str, topic: str, handle: str, *, timeout_ms: float) -> str:
        """Take a message back that waits for its time; its message id."""
        request = RecallRequest(caller=self._identity.caller(), group=group, topic=topic, handle=handle)
        answer = await call(self._send.Recall, request, address=self.address, timeout_ms=timeout_ms)
        return str(answer.message_id)

    def end_transaction_oneway(self, request: EndTransactionRequest, *, timeout_ms: float) -> None:
        """Tell how a transaction ended, without waiting; a failure is only logged, as the broker asks then."""
        self._oneway(self._end_transaction(request, timeout_ms))

    async def lock_batch(self, group: str, keys: Sequence[Key], *, timeout_ms: float, seq: int = 0) -> set[Key]:
        """Lock queues for this client, or renew the locks; those it holds now, maybe fewer."""
        request = LockBatchRequest(caller=self._identity.caller(seq), group=group, queues=[_key(*key) for key in keys])
        answer = await call(self._client.LockBatch, request, address=self.address, timeout_ms=timeout_ms)
        return {(key.topic, key.queue_id) for key in answer.locked}

    def unlock_batch_oneway(
        self, group: str, keys: Sequence[Key], *, timeout_ms: float, seq: int = 0
    ) -> asyncio.Future[None]:
        """Give locks back; other clients' locks are left alone. A failure is only logged: locks end by themselves.

        The future is done when the call is, so that a caller can wait for it.
        """
        return self._oneway(self._unlock_batch(group, keys, timeout_ms, seq))

    async def claim(self, group: str, claims: Sequence[tuple[Key, int]]) -> Claimed:
        """Claim queues for this start of the client, or renew claims by their generations (0: none yet)."""
        wishes = [QueueClaim(queue=_key(*key), generation=generation) for key, generation in claims]
        request = ClaimRequest(caller=self._identity.caller(), group=group, claims=wishes)
        answer = await self._progress(self._handover.Claim, request)
        granted = {(each.queue.topic, each.queue.queue_id): each.generation for each in answer.granted}
        return Claimed(granted, answer.off)

    async def release(self, group: str, returned: Sequence[tuple[Key, int, int]], *, seq: int = 0) -> set[Key]:
        """Give queues back by (key, generation, offset for the next owner or -1), acknowledged; those that were ours.

        Offset and queue go together: of what another member has by now, nothing is committed.
        """
        releases = [
            QueueRelease(queue=_key(*key), generation=generation, offset=offset) for key, generation, offset in returned
        ]
        request = ReleaseRequest(caller=self._identity.caller(seq), group=group, releases=releases)
        freed = (await self._progress(self._handover.Release, request)).released
        return {(key.topic, key.queue_id) for key in freed}

    def release_oneway(self, group: str, returned: Sequence[tuple[Key, int, int]]) -> None:
        """As ``release``, without waiting; a failure is only logged, as claims end by themselves."""
        self._oneway(self._release(group, returned))

    async def unregister(self, *, producer_group: str = "", consumer_group: str = "") -> None:
        """Leave one of these groups at once, before the channel ends.

        The other members are told at once; the channel's end would do the same a moment later.
        """
        request = UnregisterRequest(
            caller=self._identity.caller(), producer_group=producer_group, consumer_group=consumer_group
        )
        await self._call(self._client.Unregister, request)

    @property
    def waiting_pulls(self) -> int:
        """How many pulls have no answer yet."""
        return self._pulls.waiting

    async def close(self) -> None:
        """Wait for oneways to arrive, end the streams (the broker sees this client go) and the channel.

        May be called twice, also after a first call that was cancelled.
        """
        self._upkeep.flush()
        if self._oneways:
            await asyncio.wait(tuple(self._oneways))
        for stream in (self._runs, self._pulls, self.heartbeats):
            await stream.close()
        await self._channel.close(None)

    async def _open_heartbeats(self, line: FrameSource) -> Wire:
        return grpc_wire(self._channel, "/dejamq.v1.Client/ClientChannel", self.address, line)

    async def _offset(self, method: Callable[..., Awaitable[Any]], topic: str, queue_id: int) -> int:
        request = QueueRequest(caller=self._identity.caller(), queue=_key(topic, queue_id))
        return int((await self._call(method, request)).offset)

    async def _call(self, method: Callable[..., Awaitable[Any]], request: Any) -> Any:
        return await call(method, request, address=self.address, timeout_ms=self._timeout_ms)

    async def _unlock_batch(self, group: str, keys: Sequence[Key], timeout_ms: float, seq: int) -> None:
        queues = [_key(*key) for key in keys]
        request = UnlockBatchRequest(caller=self._identity.caller(seq), group=group, queues=queues)
        await call(self._client.UnlockBatch, request, address=self.address, timeout_ms=timeout_ms)

    async def _end_transaction(self, request: EndTransactionRequest, timeout_ms: float) -> None:
        await call(self._transaction.EndTransaction, request, address=self.address, timeout_ms=timeout_ms)

    async def _release(self, group: str, returned: Sequence[tuple[Key, int, int]]) -> None:
        await self.release(group, returned)

    def _commit_by_call(self, requests: Sequence[UpdateOffsetRequest]) -> None:
        self._oneway(self._offsets.commit_each(requests))

    async def _members_by_call(self, request: ConsumerListRequest) -> list[str]:
        return list((await self._call(self._client.ConsumerList, request)).client_ids)

    async def _progress(self, method: Callable[..., Awaitable[Any]], request: Any) -> Any:
        return await call(method, request, address=self.address, timeout_ms=self._progress_timeout_ms)

    def _oneway(self, sending: Awaitable[Any]) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await sending
            except DejamqError as error:
                log.warning("oneway_failed address=%s reason=%s", self.address, error)

        task = asyncio.get_running_loop().create_task(run())
        self._oneways.add(task)
        task.add_done_callback(self._oneways.discard)
        return task


def _now_ms() -> int:
    """By the clock that all processes of a machine share; never 0, which would say nothing."""
    return monotonic_ns() // 1_000_000 or 1


def _key(topic: str, queue_id: int) -> QueueKey:
    return QueueKey(topic=topic, queue_id=queue_id)
