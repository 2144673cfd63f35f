"""The Pull service: requests become looks at the store, answers leave as they are ready."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple

import grpc
import grpc.aio
from dejamq_proto import failpoints
from dejamq_proto.access.admission import AGAIN, Admit, admission
from dejamq_proto.access.guard import Guard
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.pull_pb2 import CheckFilterRequest, CheckFilterResponse, PullRequest
from dejamq_proto.serving.acceptor import Acceptor
from dejamq_proto.wire.framed import joined
from dejamq_proto.wire.messages import PullAnswer

from dejamq_broker.base.streams import Outbox, Streams
from dejamq_broker.doors.fast.listener import HandlerContext
from dejamq_broker.doors.v1.values import asker_of
from dejamq_broker.filters.chosen import FilterFactory
from dejamq_broker.paths.long_poll import HeldRequest, LongPoll
from dejamq_broker.paths.pull import Puller
from dejamq_broker.paths.rules import PullQuery

TOGETHER_BYTES = 64 << 10
"""An answer that is larger fills a frame alone: putting it beside others is one more copy of it."""
Context = grpc.aio.ServicerContext[Any, Any]


class PullService:
    """RPC of pulls: one stream with many requests, or one request a call."""

    name = "dejamq.v1.Pull"

    def __init__(
        self, puller: Puller, filters: FilterFactory, long_poll: LongPoll, streams: Streams,
        max_suspend_ms: int | None, guard: Guard | None = None, acceptor: Acceptor | None = None,
    ) -> None:  # fmt: skip
        self._puller, self._filters, self._long_poll, self._streams = puller, filters, long_poll, streams
        self._max_suspend_ms, self._guard, self._acceptor = max_suspend_ms, guard, acceptor

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """Answers leave as raw bytes written by ``wire/messages.py``."""
        return grpc.method_handlers_generic_handler(self.name, {
            "PullStream": grpc.stream_stream_rpc_method_handler(self._over_grpc, PullRequest.FromString),
            "PullOne": grpc.unary_unary_rpc_method_handler(self.PullOne, PullRequest.FromString),
            "CheckFilter": grpc.unary_unary_rpc_method_handler(
                self.CheckFilter, CheckFilterRequest.FromString, CheckFilterResponse.SerializeToString
            ),
        })  # fmt: skip

    async def PullStream(self, requests: AsyncIterator[PullRequest], context: Context) -> None:
        """One task looks and writes, so one frame at a time is in memory; holds come back to it through the outbox."""
        peer = "" if self._acceptor is None else self._acceptor.true_peer(context.peer())
        admit = admission(self._guard, f"/{self.name}/PullStream", context, peer)
        with self._streams.outbox() as outbox:
            try:
                async with asyncio.TaskGroup() as tasks:
                    reader = tasks.create_task(self._read(requests, outbox))
                    while (item := await outbox.get()) is not None:
                        await self._write(item, outbox, context, admit)
                    reader.cancel()
            finally:
                self._long_poll.forget(outbox)

    async def _over_grpc(self, requests: AsyncIterator[PullRequest], context: Context) -> None:
        """An answer is joined before it waits for the client."""
        joining: Any = HandlerContext(
            lambda frame: context.write(joined(frame)), context.peer, context.invocation_metadata
        )
        await self.PullStream(requests, joining)

    async def _write(self, item: object, outbox: Outbox[object], context: Context, admit: Admit) -> None:
        """The answers are views of the log. None is kept until the next one, or while the client does not read: a file
        that is deleted would stay on the disk.
        """
        if answers := await self._answers(item, outbox, admit):
            writing = context.write(answers[0].pieces(answers[1:]))
            del answers
            await writing

    async def _answers(self, item: object, outbox: Outbox[object], admit: Admit) -> list[PullAnswer]:
        """The answers that leave in one frame: to this item, and to the items behind it if the client reads such
        frames.

        A run of a few records wakes a pull of each of its queues, and a frame costs both sides more than an answer.
        With four queues, the median at 50,000 messages a second was 24 ms instead of 29 on a busy machine.
        """
        answers: list[PullAnswer] = []
        size = 0
        while item is not None:
            assert isinstance(item, PullRequest | Woken)
            if isinstance(item, PullRequest):
                outbox.made_room()
            answer = self._turn(item, outbox, admit)
            if answer is not None and not (failpoints.ARMED and await failpoints.reached("pull.answer")):
                answers.append(answer)
                size += sum(map(len, answer.records))
            item = outbox.get_now() if item.together and size < TOGETHER_BYTES else None
        return answers

    async def PullOne(self, request: PullRequest, _: Context) -> bytes:
        """As one request of the stream, for other languages. Refused with SERVICE_NOT_AVAILABLE at shutdown."""
        again = AGAIN.get()
        with self._streams.outbox() as outbox:
            outbox.put(request)
            try:
                while (item := await outbox.get()) is not None:
                    answer = self._turn(item, outbox, lambda _: again())
                    if answer is not None:
                        return answer.encode()
            finally:
                self._long_poll.forget(outbox)
        raise DejamqError("the broker is shutting down", code=Code.SERVICE_NOT_AVAILABLE)

    async def CheckFilter(self, request: CheckFilterRequest, _: Context) -> CheckFilterResponse:
        """Refused with the error in the expression (RocketMQ: ClientManageProcessor.checkClientConfig)."""
        self._filters.of(request.expression, request.expression_type)
        return CheckFilterResponse()

    async def _read(self, requests: AsyncIterator[PullRequest], outbox: Outbox[object]) -> None:
        """Requests until the client closes its side; requests that are still held then are forgotten with the
        stream.
        """
        async for frame in requests:
            for request in (frame, *frame.also):
                await outbox.room()
                outbox.put(request)
        outbox.end()

    def _turn(self, item: object, outbox: Outbox[object], admit: Admit) -> PullAnswer | None:
        """A new request, or a held one that was woken: answer it, or park it until something arrives or time is up.

        The look and the parking are one synchronous step: no arrival can fall between them. ``max_suspend_ms``
        bounds what clients ask for when long polling is switched off.
        """
        if isinstance(item, PullRequest):
            pull, first, last = pull_of(item), True, False
        else:
            assert isinstance(item, Woken)
            pull, first, last = item.pull, False, item.timed_out
        try:
            admit(pull)  # also of one that was held: its sender may have lost the right meanwhile
            if first:
                self._puller.begin(pull, self._long_poll.now_ms(), self._max_suspend_ms)
            answer = self._puller.look(pull, first=first, last=last)
        except DejamqError as error:
            return PullAnswer(seq=pull.asker.seq, code=int(error.code), remark=str(error))
        if answer is None:
            if self._long_poll.full:
                text = "[POLLING_FULL]as many pulls wait for messages here as may (max_held_pulls): pull again later"
                return PullAnswer(
                    seq=pull.asker.seq, code=int(Code.POLLING_FULL), remark=text, next_offset=pull.queue_offset
                )
            wake = partial(_wake, outbox, pull)
            self._long_poll.park(HeldRequest((pull.topic, pull.queue_id), pull.deadline_ms, wake, outbox))
        return answer


class Woken(NamedTuple):
    """A held request whose wait is over."""

    pull: PullQuery
    timed_out: bool

    @property
    def together(self) -> bool:
        """As the request said."""
        return self.pull.together


def _wake(outbox: Outbox[object], pull: PullQuery, timed_out: bool) -> None:
    outbox.put(Woken(pull, timed_out))


def pull_of(request: PullRequest) -> PullQuery:
    """The request without its protobuf clothes."""
    return PullQuery(
        asker=asker_of(request.caller),
        group=request.group, topic=request.topic, queue_id=request.queue_id, queue_offset=request.queue_offset,
        max_messages=request.max_messages, max_bytes=request.max_bytes, suspend_ms=request.suspend_ms,
        commit_offset=request.commit_offset if request.HasField("commit_offset") else None,
        expression=request.expression, expression_type=request.expression_type, registered=request.registered,
        subscription_version=request.subscription_version, lite=request.lite, together=request.together,
    )  # fmt: skip
