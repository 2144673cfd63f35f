"""The Send service: frames in, frames out. It translates; ``send.py`` and ``retry.py`` decide."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from dejamq_proto import failpoints
from dejamq_proto.access.admission import Admit, admission, everything
from dejamq_proto.access.guard import Guard
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.send_pb2 import RecallRequest, RecallResponse, SendBackRequest, SendBackResponse
from dejamq_proto.serving.acceptor import Acceptor
from dejamq_proto.wire.fields import BadMessage
from dejamq_proto.wire.framed import Frame
from dejamq_proto.wire.messages import SendRun, SendRunResult

from dejamq_broker.base.identity import IntHost, peer_host
from dejamq_broker.base.streams import Outbox, Streams
from dejamq_broker.deferred.retry import GivenBack
from dejamq_broker.doors.v1.values import asker_of
from dejamq_broker.paths.confirmation import Confirmation
from dejamq_broker.paths.send import SendOutcome, SendPath
from dejamq_broker.paths.send_intake import StreamIntake, refused
from dejamq_broker.timer.recall import Recalls
from dejamq_broker.writing.fast_failure import FastFailure

Context = grpc.aio.ServicerContext[Any, Any]


class SendService:
    """RPC of sends: a stream of runs, one run a call, and messages given back.

    RocketMQ: SendMessageProcessor. A refusal is an answer with a code and never a gRPC error: the stream goes
    on, and the next run is not affected.
    """

    name = "dejamq.v1.Send"

    def __init__(
        self, sender: SendPath, confirmation: Confirmation, recalls: Recalls, streams: Streams, fast: FastFailure,
        acceptor: Acceptor, guard: Guard | None = None,
    ) -> None:  # fmt: skip
        self._sender, self._confirmation, self._streams, self._fast = sender, confirmation, streams, fast
        self._acceptor, self._recalls, self._guard = acceptor, recalls, guard

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """Frames of runs stay raw bytes: ``wire/messages.py`` reads them without a protobuf object a message."""
        return grpc.method_handlers_generic_handler(self.name, {
            "SendStream": grpc.stream_stream_rpc_method_handler(self.SendStream),
            "SendOne": grpc.unary_unary_rpc_method_handler(self.SendOne),
            "SendBack": grpc.unary_unary_rpc_method_handler(
                self.SendBack, SendBackRequest.FromString, SendBackResponse.SerializeToString
            ),
            "Recall": grpc.unary_unary_rpc_method_handler(
                self.Recall, RecallRequest.FromString, RecallResponse.SerializeToString
            ),
        })  # fmt: skip

    async def SendStream(self, frames: AsyncIterator[Frame], context: Context) -> None:
        """Answers in order. A run that waits for the disk does not keep the next ones from being read."""
        peer = self._acceptor.true_peer(context.peer())
        born_host = peer_host(peer)
        admit = admission(self._guard, f"/{self.name}/SendStream", context, peer)
        with self._streams.outbox() as outbox, StreamIntake(self._fast).open() as intake:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read(frames, born_host, outbox, intake, admit))
                while (outcome := await outbox.get()) is not None:
                    assert isinstance(outcome, SendOutcome)
                    answer = (await self._confirmation.of(outcome)).encode()
                    if not (failpoints.ARMED and await failpoints.reached("send.answer")):
                        await context.write(answer)
                    intake.answered()
                reader.cancel()

    async def SendOne(self, frame: bytes, context: Context) -> bytes:
        """As one frame of the stream, for other languages."""
        with self._streams.running(), StreamIntake(self._fast).open() as intake:
            await intake.enter(len(frame))
            outcome = self._accept(frame, peer_host(self._acceptor.true_peer(context.peer())), intake)
            del frame  # it is stored, and nothing else has to be kept while disk and slaves take their time
            return (await self._confirmation.of(outcome)).encode()

    async def SendBack(self, request: SendBackRequest, _: Context) -> SendBackResponse:
        """Refused with the codes of ``Confirmation.send_back``."""
        await self._confirmation.send_back(GivenBack(
            group=request.group, log_offset=request.log_offset, delay_level=request.delay_level,
            max_reconsume_times=request.max_reconsume_times, delivery_ref=request.delivery_ref,
            asker=asker_of(request.caller), reason=request.reason,
        ))  # fmt: skip
        return SendBackResponse()

    async def Recall(self, request: RecallRequest, context: Context) -> RecallResponse:
        """Refused with the codes of ``Recalls.recall``."""
        with self._streams.running():
            born_host = peer_host(self._acceptor.true_peer(context.peer()))
            asker = asker_of(request.caller)
            own_id = self._recalls.recall(request.topic, request.handle, request.group, asker, born_host)
            return RecallResponse(message_id=own_id)

    async def _read(
        self,
        frames: AsyncIterator[Frame],
        born_host: IntHost,
        outbox: Outbox[object],
        intake: StreamIntake,
        admit: Admit,
    ) -> None:
        """The stream's own flow control slows down a client that sends faster than disk and slaves confirm. Its runs
        are refused when they wait too long.
        """
        async for frame in frames:
            if failpoints.ARMED and await failpoints.reached("send.request"):
                continue
            late = await intake.enter(len(frame))
            outbox.put(self._accept(frame, born_host, intake, late, admit))
            del frame  # it is stored, and it may be long until there is another one
        outbox.end()

    def _accept(
        self, frame: Frame, born_host: IntHost, intake: StreamIntake, late: DejamqError | None = None,
        admit: Admit = everything,
    ) -> SendOutcome:  # fmt: skip
        """An item that is no frame has no number to answer to: the answer's ``seq`` is 0, which no run has.

        ``late``: why a run is refused that waited for others.
        """
        try:
            run = SendRun.decode(frame)
        except BadMessage as error:
            return SendOutcome(SendRunResult(code=int(Code.MESSAGE_ILLEGAL), remark=f"not a run of records: {error}"))
        try:
            if late is not None:
                raise late
            admit(run)
            intake.check(run)
        except DejamqError as busy:
            return SendOutcome(refused(run, busy))
        return self._sender.accept(run, born_host)
