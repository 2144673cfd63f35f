"""Where only TLS is taken, nobody comes in behind the public port: gRPC's own listener serves that port alone."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from dejamq_proto.serving.acceptor import Acceptor

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
REASON = "this server takes TLS only, at its public port"


class OnlyThroughPort(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls of local processes that found the listener on the loopback. gRPC can tell only in the call."""

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        kind = next(kind for kind in KINDS if getattr(handler, kind) is not None)
        make: Callable[..., Any] = getattr(grpc, f"{kind}_rpc_method_handler")
        guarded = self._guarded(getattr(handler, kind))
        return make(guarded, handler.request_deserializer, handler.response_serializer)

    def _guarded(self, inner: Any) -> Any:
        """gRPC looks whether it is a coroutine or a generator."""

        async def answer(request: Any, context: Any) -> Any:
            await self._check(context)
            return await inner(request, context)

        async def answers(request: Any, context: Any) -> AsyncIterator[Any]:
            await self._check(context)
            async for each in inner(request, context):
                yield each

        return answers if inspect.isasyncgenfunction(inner) else answer

    async def _check(self, context: Any) -> None:
        if not self._acceptor.was_relayed(context.peer()):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, REASON)
