"""How a server says no: RocketMQ's code and a sentence in the trailers of the answer, for calls of every kind.

Requests are read here and not by gRPC, so that bytes that are no request are refused as everything else is.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.wire.calling import CODE_KEY, REMARK_KEY

STATUS = {
    Code.TOPIC_NOT_EXIST: grpc.StatusCode.NOT_FOUND,
    Code.QUERY_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.SUBSCRIPTION_GROUP_NOT_EXIST: grpc.StatusCode.NOT_FOUND,
    Code.NO_PERMISSION: grpc.StatusCode.PERMISSION_DENIED,
    Code.INVALID_PARAMETER: grpc.StatusCode.INVALID_ARGUMENT,
    Code.MESSAGE_ILLEGAL: grpc.StatusCode.INVALID_ARGUMENT,
    Code.SYSTEM_BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.SERVICE_NOT_AVAILABLE: grpc.StatusCode.FAILED_PRECONDITION,
}
MAX_REQUEST_BYTES = 8 << 20
"""Of everything but runs of records: names and numbers need less, and a server keeps some of them for long."""
LONGEST_REMARK, LONGEST_DETAILS = 1024, 512  # bytes, characters: trailers have little room
Reader = Callable[[bytes], Any]


class Refusals(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Turns a DejamqError that a method raises, and requests that cannot be read, into an answer with a code."""

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        if handler.unary_unary is not None:
            return _unary(handler)
        return _stream(handler) if handler.stream_stream is not None else handler


def _unary(handler: Any) -> Any:
    inner, read = handler.unary_unary, _reader(handler.request_deserializer)

    async def guarded(raw: bytes, context: Any) -> Any:
        try:
            _check_awaited(context)
            return await inner(read(raw), context)
        except DejamqError as error:
            await refuse(context, error)

    return grpc.unary_unary_rpc_method_handler(guarded, None, handler.response_serializer)


def _stream(handler: Any) -> Any:
    """Both forms that gRPC knows: a coroutine that writes by itself, and a generator of answers.

    A request in a wrong form ends the stream as its client's end would, after the answers to earlier requests. Then the
    refusal is its status. Nothing may be written or cut off in the middle of a write: gRPC takes no status then.
    """
    inner, deserializer = handler.stream_stream, handler.request_deserializer

    async def guarded(frames: AsyncIterator[Any], context: Any) -> None:
        requests = _ReadRequests(frames, deserializer)
        try:
            await inner(requests if deserializer else frames, context)
        except DejamqError as error:
            requests.refusal = error
        if requests.refusal is not None:
            await refuse(context, requests.refusal)

    async def guarded_answers(frames: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        requests = _ReadRequests(frames, deserializer)
        try:
            async for answer in inner(requests if deserializer else frames, context):
                yield answer
        except DejamqError as error:
            requests.refusal = error
        if requests.refusal is not None:
            await refuse(context, requests.refusal)

    generates = inspect.isasyncgenfunction(inner)
    return grpc.stream_stream_rpc_method_handler(
        guarded_answers if generates else guarded, None, handler.response_serializer
    )


class _ReadRequests:
    """The requests of a stream, up to the first one in a wrong form, which becomes ``refusal``."""

    def __init__(self, frames: AsyncIterator[bytes], deserializer: Reader | None) -> None:
        self._frames, self._read = frames, _reader(deserializer)
        self.refusal: DejamqError | None = None

    def __aiter__(self) -> "_ReadRequests":
        self._frames = aiter(self._frames)
        return self

    async def __anext__(self) -> Any:
        if self.refusal is None:
            raw = await anext(self._frames)
            try:
                return self._read(raw)
            except DejamqError as error:
                self.refusal = error
        raise StopAsyncIteration


def _reader(deserializer: Reader | None) -> Reader:
    if deserializer is None:
        return lambda raw: raw

    def read(raw: bytes) -> Any:
        if len(raw) > MAX_REQUEST_BYTES:
            text = f"the request has {len(raw)} bytes, {MAX_REQUEST_BYTES} are the most"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)
        try:
            return deserializer(raw)
        except (DecodeError, UnicodeDecodeError) as error:
            text = f"the request cannot be read: {' '.join(str(error).split())}"
            raise DejamqError(text, code=Code.INVALID_PARAMETER) from None

    return read


def _check_awaited(context: Any) -> None:
    """A call that came to its turn when its client had given it up is not done any more (RocketMQ: fast failure)."""
    left_s = context.time_remaining()
    if left_s is not None and left_s <= 0:
        text = "[TIMEOUT_CLEAN_QUEUE]server busy: the time for this call was over before it was begun"
        raise DejamqError(text, code=Code.SYSTEM_BUSY)


async def refuse(context: Any, error: DejamqError) -> None:
    """End the call with the error's code. Never returns (gRPC's abort raises)."""
    remark = str(error).encode("utf-8", "replace")[:LONGEST_REMARK]
    context.set_trailing_metadata(((CODE_KEY, str(int(error.code))), (REMARK_KEY, remark)))
    await context.abort(STATUS.get(error.code, grpc.StatusCode.UNKNOWN), str(error)[:LONGEST_DETAILS])
