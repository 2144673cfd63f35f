"""Single calls that are lost, late or never answered: failpoints ``rpc.METHOD.request`` and ``rpc.METHOD.answer``.

A TCP relay cannot pick one call out of HTTP/2. ``drop`` at the request: it never arrived. ``drop`` at the answer: the
work was done and nobody hears of it. ``error`` is answered as SYSTEM_ERROR, before the work or after it. Streams have
failpoints of their own where they handle each message.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from dejamq_proto import failpoints
from dejamq_proto.codes import Code, DejamqError

Handler = Any


class RpcFaults(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Put before the servicers of a process whose failpoints are armed."""

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Unary calls only."""
        handler = await continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler
        method, answer = details.method.rpartition("/")[2], handler.unary_unary

        async def faulty(request: Any, context: Any) -> Any:
            await _reach(f"rpc.{method}.request", definite=True)
            answered = await answer(request, context)
            await _reach(f"rpc.{method}.answer", definite=False)
            return answered

        return grpc.unary_unary_rpc_method_handler(faulty, handler.request_deserializer, handler.response_serializer)


async def frame_lost(method: str, part: str = "request") -> bool:
    """For what comes as a frame of a stream where others make a call of this method: whether a failpoint loses it.

    Raises what a broker that failed here would say.
    """
    return await _dropped(f"rpc.{method}.{part}", definite=part == "request")


async def _reach(name: str, *, definite: bool) -> None:
    if await _dropped(name, definite=definite):
        await asyncio.Event().wait()


async def _dropped(name: str, *, definite: bool) -> bool:
    """Raises what a broker that failed here would say."""
    try:
        return await failpoints.reached(name)
    except failpoints.Failpoint as error:
        raise DejamqError(str(error), code=Code.SYSTEM_ERROR, definite=definite) from error
