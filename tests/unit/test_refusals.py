"""What a server's door lets in: requests that can be read, of callers who still wait."""

from typing import Any

import grpc
import pytest
from dejamq_proto.codes import Code
from dejamq_proto.common_pb2 import QueueKey
from dejamq_proto.serving.refusals import MAX_REQUEST_BYTES, Refusals
from dejamq_proto.wire.calling import CODE_KEY, REMARK_KEY


class Aborted(Exception):
    """As gRPC's own: nothing after it runs."""


class Context:
    """One call, with so many seconds left."""

    def __init__(self, left_s: float | None = None) -> None:
        self._left_s = left_s
        self.trailers: dict[str, Any] = {}

    def time_remaining(self) -> float | None:
        return self._left_s

    def set_trailing_metadata(self, trailers: Any) -> None:
        self.trailers = dict(trailers)

    async def abort(self, status: Any, details: str) -> None:
        raise Aborted(details)


class Method:
    """A method that counts what it was called with."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def __call__(self, request: Any, context: Any) -> str:
        self.asked.append(request)
        return "done"

    async def guarded(self) -> Any:
        """The same behind the door."""
        handler = grpc.unary_unary_rpc_method_handler(self, QueueKey.FromString)

        async def continuation(details: Any) -> Any:
            return handler

        return (await Refusals().intercept_service(continuation, None)).unary_unary  # type: ignore[arg-type]


@pytest.mark.parametrize("left_s", [None, 0.1])
async def test_a_caller_who_still_waits_is_served(left_s: float | None) -> None:
    method = Method()
    request = QueueKey(topic="t", queue_id=3)
    assert await (await method.guarded())(request.SerializeToString(), Context(left_s)) == "done"
    assert method.asked == [request]


@pytest.mark.parametrize("left_s", [0, -0.0, -3])
async def test_what_nobody_waits_for_any_more_is_refused_and_not_done(left_s: float) -> None:
    method, context = Method(), Context(left_s)
    with pytest.raises(Aborted):
        await (await method.guarded())(b"", context)
    assert not method.asked
    assert int(context.trailers[CODE_KEY]) == Code.SYSTEM_BUSY
    assert context.trailers[REMARK_KEY].startswith(b"[TIMEOUT_CLEAN_QUEUE]")


async def test_a_request_that_is_larger_than_any_has_to_be_is_not_read() -> None:
    method, context = Method(), Context()
    large = QueueKey(topic="x" * (MAX_REQUEST_BYTES + 1)).SerializeToString()
    with pytest.raises(Aborted, match="are the most"):
        await (await method.guarded())(large, context)
    assert not method.asked
    assert int(context.trailers[CODE_KEY]) == Code.INVALID_PARAMETER
