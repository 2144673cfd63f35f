"""How long a server's calls take, by method and answer: the outermost interceptor, where metrics are served.

Streams are not timed: one lasts as long as its client. Source: RocketMQ ``RemotingMetricsManager`` (rpc_latency).
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import grpc
import grpc.aio
import msgspec

from dejamq_proto.codes import Code
from dejamq_proto.wire.calling import CODE_KEY

BOUNDS_MS = (1, 3, 5, 7, 10, 100, 200, 400, 600, 800, 1_000, 2_000, 3_000)


class MethodTimes(msgspec.Struct):
    """Calls of one method with one answer; ``by_time`` counts them up to each bound, and above the last."""

    sum_ms: float = 0.0
    by_time: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))


class Timings(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Owned by the event loop. Methods are those that the server has: strangers cannot add any."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], MethodTimes] = {}
        """By method and the name of the response code."""

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler
        inner, method = handler.unary_unary, details.method.rpartition("/")[2]

        async def timed(request: Any, context: Any) -> Any:
            began, failed = perf_counter(), True
            try:
                answer = await inner(request, context)
                failed = False
                return answer
            finally:
                self._count(method, _code_of(context) if failed else "SUCCESS", (perf_counter() - began) * 1000)

        return grpc.unary_unary_rpc_method_handler(timed, handler.request_deserializer, handler.response_serializer)

    def _count(self, method: str, code: str, took_ms: float) -> None:
        timed = self.calls.get((method, code))
        if timed is None:
            timed = self.calls[method, code] = MethodTimes()
        timed.sum_ms += took_ms
        timed.by_time[bisect_left(BOUNDS_MS, took_ms)] += 1


def _code_of(context: Any) -> str:
    """The name of the code that the refusal carries; SYSTEM_ERROR for a call that ended without one."""
    trailers = dict(context.trailing_metadata() or ())
    try:
        return Code(int(trailers.get(CODE_KEY, Code.SYSTEM_ERROR))).name
    except ValueError:
        return Code.SYSTEM_ERROR.name
