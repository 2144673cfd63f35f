"""gRPC's one place where access control is asked: an interceptor before every method.

What it does not know it refuses. RocketMQ 5's service answers refusals in statuses, and asks by itself.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from dejamq_proto.access.admission import AGAIN, HEARER, Hearer, address_of
from dejamq_proto.access.guard import Caller, Guard
from dejamq_proto.v2.methods import SERVICE as V2_SERVICE
from dejamq_proto.wire.fields import BadMessage
from dejamq_proto.wire.messages import SendRun

EVERYBODYS = f"/{health.SERVICE_NAME}/"
"""Whoever watches a server has no keys."""
USERS = f"/{reflection.SERVICE_NAME}/"
ASK_THEMSELVES = f"/{V2_SERVICE}/"
BY_MESSAGE = frozenset({
    "/dejamq.v1.Send/SendStream", "/dejamq.v1.Pull/PullStream", "/dejamq.v1.Client/ClientChannel",
})  # fmt: skip
"""Streams whose handlers ask for each message, since a refusal is an answer there, and ends nothing."""
RAW: dict[str, Callable[[bytes], Any]] = {"/dejamq.v1.Send/SendOne": SendRun.decode}
"""Methods whose handlers read their requests themselves."""


class AccessGate(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Stands behind ``Refusals``, which makes answers of its errors and reads the requests."""

    def __init__(self, guard: Guard, true_peer: Callable[[str], str]) -> None:
        self._guard, self._true_peer = guard, true_peer

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler, method = await continuation(details), details.method
        if handler is None or method.startswith((EVERYBODYS, ASK_THEMSELVES)):
            return handler
        if handler.unary_unary is not None:
            return self._unary(handler, method)
        if handler.stream_stream is not None:
            return self._stream(handler, method)
        return None  # nobody has such a method; gRPC says that it is not there

    def _who(self, method: str, context: Any) -> Caller:
        peer = self._true_peer(context.peer())
        return self._guard.call(method, context.invocation_metadata(), address_of(peer))

    def _unary(self, handler: Any, method: str) -> Any:
        inner = handler.unary_unary

        async def guarded(request: Any, context: Any) -> Any:
            who = self._who(method, context)
            HEARER.set(Hearer(self._guard, who))
            try:
                read = RAW[method](request) if method in RAW else request
            except BadMessage:
                pass  # its handler cannot read it either, and says so
            else:
                again = partial(self._guard.check_call, who, method, read)
                again()
                AGAIN.set(again)
            return await inner(request, context)

        return grpc.unary_unary_rpc_method_handler(guarded, handler.request_deserializer, handler.response_serializer)

    def _stream(self, handler: Any, method: str) -> Any:
        inner = handler.stream_stream

        def frames_of(frames: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            who = self._who(method, context)
            return frames if method in BY_MESSAGE or method.startswith(USERS) else self._checked(frames, who, method)

        async def guarded(frames: AsyncIterator[Any], context: Any) -> None:
            await inner(frames_of(frames, context), context)

        async def guarded_answers(frames: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            async for answer in inner(frames_of(frames, context), context):
                yield answer

        generates = inspect.isasyncgenfunction(inner)
        return grpc.stream_stream_rpc_method_handler(
            guarded_answers if generates else guarded, handler.request_deserializer, handler.response_serializer
        )

    async def _checked(self, frames: AsyncIterator[Any], who: Caller, method: str) -> AsyncIterator[Any]:
        async for frame in frames:
            self._guard.check_call(who, method, frame)
            yield frame
