"""The Send service: frames in, frames out. It translates; ``send.py`` and ``retry.py`` decide."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import grpc.aio
from dejamq_proto import failpoints
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.fields import BadFrame
from dejamq_proto.framed import Frame
from dejamq_proto.send_pb2 import SendBackRequest, SendBackResponse
from dejamq_proto.wire import SendRun, SendRunResult

from dejamq_broker.fast_failure import FastFailure
from dejamq_broker.retry import GivenBack, Retries
from dejamq_broker.rpc_values import asker_of
from dejamq_broker.send import Outcome, Sender
from dejamq_broker.send_intake import Intake, refused
from dejamq_broker.site import IntHost, peer_host
from dejamq_broker.streams import Outbox, Streams

SLAVE_TROUBLES = {
    Code.SLAVE_NOT_AVAILABLE: "too few slaves are connected and near enough to have it soon",
    Code.FLUSH_SLAVE_TIMEOUT: "too few slaves confirmed it in time",
}
Context = grpc.aio.ServicerContext[Any, Any]


class SendService:
    """RPC of sends: a stream of runs, one run a call, and messages given back.

    RocketMQ: SendMessageProcessor. A refusal is an answer with a code and never a gRPC error: the stream goes
    on, and the next run is not affected.
    """

    name = "dejamq.v1.Send"

    def __init__(
        self, sender: Sender, retries: Retries, streams: Streams, fast: FastFailure, sync_flush_timeout_ms: float
    ) -> None:
        self._sender, self._retries, self._streams, self._fast = sender, retries, streams, fast
        self._sync_timeout = sync_flush_timeout_ms / 1000

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """Frames of runs stay raw bytes: ``wire.py`` reads them without a protobuf object a message."""
        return grpc.method_handlers_generic_handler(self.name, {
            "SendStream": grpc.stream_stream_rpc_method_handler(self.SendStream),
            "SendOne": grpc.unary_unary_rpc_method_handler(self.SendOne),
            "SendBack": grpc.unary_unary_rpc_method_handler(
                self.SendBack, SendBackRequest.FromString, SendBackResponse.SerializeToString
            ),
        })  # fmt: skip

    async def SendStream(self, frames: AsyncIterator[Frame], context: Context) -> None:
        """Answers in order. A run that waits for the disk does not keep the next ones from being read."""
        born_host = peer_host(context.peer())
        with self._streams.outbox() as outbox, Intake(self._fast).open() as intake:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read(frames, born_host, outbox, intake))
                while (outcome := await outbox.get()) is not None:
                    assert isinstance(outcome, Outcome)
                    answer = (await self._finish(outcome)).encode()
                    if not (failpoints.ARMED and await failpoints.reached("send.answer")):
                        await context.write(answer)
                    intake.answered()
                reader.cancel()

    async def SendOne(self, frame: bytes, context: Context) -> bytes:
        """As one frame of the stream, for other languages."""
        with self._streams.running(), Intake(self._fast).open() as intake:
            await intake.enter(len(frame))
            outcome = self._accept(frame, peer_host(context.peer()), intake)
            del frame  # it is stored, and nothing else has to be kept while disk and slaves take their time
            return (await self._finish(outcome)).encode()

    async def SendBack(self, request: SendBackRequest, _: Context) -> SendBackResponse:
        """Refused with the codes of ``Retries.send_back``; SYSTEM_ERROR, as in RocketMQ, when disk or slaves do not
        confirm the next try: the consumer keeps the message then, and the next try comes all the same.
        """
        self._sender.require_master()
        self._retries.send_back(GivenBack(
            group=request.group, log_offset=request.log_offset, delay_level=request.delay_level,
            max_reconsume_times=request.max_reconsume_times, delivery_ref=request.delivery_ref,
            asker=asker_of(request.caller), reason=request.reason,
        ))  # fmt: skip
        durable, replicated = self._sender.given_back_durable(), self._sender.given_back_replicated()
        trouble = await _wait(durable, self._sync_timeout) if durable else ""
        if replicated:
            trouble = SLAVE_TROUBLES.get(await replicated, trouble)
        if trouble:
            raise DejamqError(f"the next try is stored, but {trouble}", code=Code.SYSTEM_ERROR)
        return SendBackResponse()

    async def _read(
        self, frames: AsyncIterator[Frame], born_host: IntHost, outbox: Outbox[object], intake: Intake
    ) -> None:
        """A client that sends faster than disk and slaves confirm is slowed down by the stream's own flow control, and
        its runs are refused when they wait too long.
        """
        async for frame in frames:
            if failpoints.ARMED and await failpoints.reached("send.request"):
                continue
            late = await intake.enter(len(frame))
            outbox.put(self._accept(frame, born_host, intake, late))
            del frame  # it is stored, and it may be long until there is another one
        outbox.end()

    def _accept(self, frame: Frame, born_host: IntHost, intake: Intake, late: DejamqError | None = None) -> Outcome:
        """What is no frame at all has no number to answer to: the answer's ``seq`` is 0, which no run has.

        ``late``: why a run is refused that waited for others.
        """
        try:
            run = SendRun.decode(frame)
        except BadFrame as error:
            return Outcome(SendRunResult(code=int(Code.MESSAGE_ILLEGAL), remark=f"not a run of records: {error}"))
        try:
            if late is not None:
                raise late
            intake.check(run)
        except DejamqError as busy:
            return Outcome(refused(run, busy))
        return self._sender.accept(run, born_host)

    async def _finish(self, outcome: Outcome) -> SendRunResult:
        """Wait for disk and slaves if the run asked for it. Late or failed, it is stored all the same: no refusal.

        Of two failures the slaves' is told (RocketMQ: ``CommitLog.handleDiskFlushAndHA``).
        """
        result, code, trouble = outcome.result, Code.FLUSH_DISK_TIMEOUT, ""
        if (durable := outcome.durable) is not None:
            if failpoints.ARMED and await failpoints.reached("send.flush"):
                durable = Future()
            trouble = await _wait(durable, self._sync_timeout)
        if outcome.replicated is not None and (found := await outcome.replicated) in SLAVE_TROUBLES:
            code, trouble = found, SLAVE_TROUBLES[found]
        if trouble:
            result.code, result.remark = int(code), f"stored, but {trouble}"
        return result


async def _wait(durable: "Future[None]", timeout: float) -> str:
    """Nothing when the disk confirmed, else why not, for the remark of FLUSH_DISK_TIMEOUT.

    One look of the loop when it is done, none if it is already: ``wrap_future`` and ``wait`` take three, which a run of
    few records feels.
    """
    if not durable.done():
        await _outside(durable, timeout)
    if not durable.done():  # not cancelled: others share the same sync
        return f"the disk did not confirm it within {timeout:g} s"
    error = durable.exception()
    return f"the disk did not confirm it: {error}" if error else ""


async def _outside(done: "Future[None]", timeout: float) -> None:
    """Return when it is done, which another thread may tell, or when the time is over."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(timeout, _tell, told)
    done.add_done_callback(partial(_tell_from_outside, loop, told))
    try:
        await told
    finally:
        timer.cancel()


def _tell(told: "asyncio.Future[None]") -> None:
    if not told.done():
        told.set_result(None)


def _tell_from_outside(loop: asyncio.AbstractEventLoop, told: "asyncio.Future[None]", _: "Future[None]") -> None:
    """By whoever flushes. A loop that is closed has nobody left who waits."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_tell, told)
