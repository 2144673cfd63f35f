"""The Pop service: it translates, and keeps a request that found nothing until it is told. ``Pops`` decides."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc.aio
from dejamq_proto import failpoints
from dejamq_proto import pop_pb2 as pb
from dejamq_proto.access.admission import AGAIN
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.pop_pb2_grpc import PopServicer

from dejamq_broker.base.streams import Streams
from dejamq_broker.doors.v1.values import asker_of
from dejamq_broker.pop.handles import Handle, read_all
from dejamq_broker.pop.query import ANY_QUEUE, DEFAULT_BYTES, POINT_MESSAGES, PopAnswer, Popped, PopQuery
from dejamq_broker.pop.service import Pops
from dejamq_broker.pop.waiting import HeldPops

Context = grpc.aio.ServicerContext[Any, Any]
MOST_HANDLES = 1024
"""Of one request: the event loop has others to serve."""


class PopService(PopServicer):
    """RPC of consumers that pop."""

    def __init__(self, pops: Pops, held: HeldPops, streams: Streams, max_wait_ms: int | None) -> None:
        """``max_wait_ms`` bounds how long a request may be held; None: clients decide."""
        self._pops, self._held, self._streams, self._max_wait_ms = pops, held, streams, max_wait_ms

    async def Receive(self, request: pb.ReceiveRequest, _: Context) -> pb.ReceiveResponse:
        """Refused with the codes of ``Pops.begin``, and POLLING_FULL."""
        with self._streams.running():
            query = _query_of(request)
            self._pops.begin(query)
            answer = self._pops.pop(query)
            wait_ms = request.wait_ms if self._max_wait_ms is None else min(request.wait_ms, self._max_wait_ms)
            if not answer.batches and wait_ms > 0:
                answer = await self._waited(query, wait_ms)
            if failpoints.ARMED and await failpoints.reached("pop.answer"):
                raise DejamqError("the answer is dropped (failpoint)", code=Code.SYSTEM_ERROR)
            return pb.ReceiveResponse(batches=map(_batch, answer.batches), rest=answer.rest)

    async def Ack(self, request: pb.AckRequest, _: Context) -> pb.AckResponse:
        """Each handle has its own outcome, with the codes of ``Pops.ack``."""
        with self._streams.running():
            if failpoints.ARMED and await failpoints.reached("pop.ack"):
                raise DejamqError("the request is dropped (failpoint)", code=Code.SYSTEM_ERROR)
            if len(request.handles) > MOST_HANDLES:
                text = f"{len(request.handles)} receipt handles in one request; at most {MOST_HANDLES} are taken"
                raise DejamqError(text, code=Code.INVALID_PARAMETER)
            outcomes: list[DejamqError | None] = [None] * len(request.handles)
            handles: dict[int, Handle] = {}
            for number, read in enumerate(read_all(request.handles)):
                if isinstance(read, Handle):
                    handles[number] = read
                else:
                    outcomes[number] = read
            done = self._pops.ack(request.group, request.topic, tuple(handles.values()), asker_of(request.caller))
            for number, outcome in zip(handles, done, strict=True):
                outcomes[number] = outcome
            return pb.AckResponse(outcomes=_outcomes(outcomes))

    async def ChangeInvisible(self, request: pb.ChangeInvisibleRequest, _: Context) -> pb.ChangeInvisibleResponse:
        """Refused with the codes of ``Pops.change``."""
        with self._streams.running():
            handle, asker = Handle.read(request.handle), asker_of(request.caller)
            changed = self._pops.change(request.group, request.topic, handle, request.invisible_ms, asker)
            return pb.ChangeInvisibleResponse(handle=str(changed))

    async def _waited(self, query: PopQuery, wait_ms: int) -> PopAnswer:
        """A client that goes away while it waits is given nothing."""
        told: asyncio.Future[PopAnswer] = asyncio.get_running_loop().create_future()

        def tell(outcome: PopAnswer | DejamqError) -> None:
            if told.done():
                return
            if isinstance(outcome, DejamqError):
                told.set_exception(outcome)
            else:
                told.set_result(outcome)

        hold = self._held.park(query, wait_ms, tell, admit=AGAIN.get())
        try:
            return await told
        finally:
            self._held.forget(hold)


def _query_of(request: pb.ReceiveRequest) -> PopQuery:
    return PopQuery(
        asker=asker_of(request.caller), group=request.group, topic=request.topic,
        queue_id=request.queue_id if request.HasField("queue_id") else ANY_QUEUE,
        max_messages=request.max_messages or POINT_MESSAGES,
        max_bytes=min(request.max_bytes, DEFAULT_BYTES) if request.max_bytes > 0 else DEFAULT_BYTES,
        invisible_ms=request.invisible_ms, from_min=request.from_min, expression=request.expression,
        expression_type=request.expression_type, ordered=request.ordered, attempt_id=request.attempt_id,
    )  # fmt: skip


def _batch(popped: Popped) -> pb.PoppedMessages:
    return pb.PoppedMessages(
        topic=popped.topic, queue_id=popped.queue_id, pop_time=popped.pop_time, invisible_ms=popped.invisible_ms,
        handles=popped.handle_texts(), sizes=popped.sizes, counts=popped.counts, records=popped.records,
    )  # fmt: skip


def _outcomes(outcomes: Sequence[DejamqError | None]) -> list[pb.AckOutcome]:
    """Nothing where all is well, which is nearly always."""
    if not any(outcomes):
        return []
    return [
        pb.AckOutcome() if error is None else pb.AckOutcome(code=int(error.code), remark=str(error))
        for error in outcomes
    ]
