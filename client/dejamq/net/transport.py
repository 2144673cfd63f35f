"""Transports carry the frames of a stream to a broker and back: a call of gRPC, or a connection to its fast port."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

import grpc.aio
from dejamq_proto.codes import BrokerUnavailable, DejamqError
from dejamq_proto.wire.calling import error_from
from dejamq_proto.wire.framed import Frame, Framed, Pieces, joined

AT_ONCE_S = 1.0
END: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # grpc-stubs lacks it


class FrameSource(Protocol):
    """Whose frames they are. A frame that was taken counts as one that may have arrived."""

    ending: bool
    """Nothing follows what is untaken now, of which nothing is answered."""

    def next_frame(self) -> Pieces | None:
        """Take the next one to send; None while there is none."""

    def received(self, frame: Frame) -> None:
        """Raises ValueError for what is no frame of the broker's."""


class Wire(Protocol):
    """One connection, open from the beginning. Owned by the event loop."""

    def poke(self) -> None:
        """The line has something to send."""

    async def carry(self) -> DejamqError:
        """Deliver what comes until the end; the reason for it. ``cancel`` follows in any case."""

    def cancel(self) -> None:
        """End it now. May be called twice."""


class GrpcWire:
    """A bidirectional call of raw frames."""

    def __init__(self, call: Any, line: FrameSource, address: str) -> None:
        self._call, self._line, self._address = call, line, address
        self._wake: asyncio.Future[None] | None = None
        self._cancelled = False

    def poke(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def carry(self) -> DejamqError:
        writer = asyncio.get_running_loop().create_task(self._write())
        try:
            return await self._read()
        finally:
            writer.cancel()
            await asyncio.wait((writer,))

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()

    async def _read(self) -> DejamqError:
        try:
            while (frame := await self._call.read()) is not END:
                self._line.received(frame)
                del frame  # it may be long until there is another one
        except grpc.aio.AioRpcError as error:
            return error_from(error, self._address)
        except asyncio.CancelledError:
            if not self._cancelled:  # the task itself is cancelled, not only the call
                raise
        except ValueError as error:
            return BrokerUnavailable(f"{self._address} sent bytes that are no answer: {error}", definite=False)
        return BrokerUnavailable(f"{self._address} ended the stream", definite=False)

    async def _write(self) -> None:
        try:
            while True:
                while (frame := self._line.next_frame()) is not None:
                    await self._call.write(joined(frame))
                if self._line.ending:
                    await self._call.done_writing()
                    return
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
        except (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
            pass  # the reader learns why and tells


class FastWire:
    """Frames as they are over TCP, each of which asks for an answer; told and sent in the turn in which they come."""

    def __init__(self, framed: Framed, line: FrameSource, address: str, useless: Callable[[], None]) -> None:
        """``framed`` is welcome already. ``useless`` is called when it ends at once by itself, without ever a frame."""
        self._framed, self._line, self._address, self._useless = framed, line, address, useless
        self._loop = asyncio.get_running_loop()
        self._useful, self._opened = False, monotonic()
        self._end: asyncio.Future[str] = self._loop.create_future()
        self._poked = False
        framed.received, framed.lost, framed.room = self._received, self._lost, self._send

    def poke(self) -> None:
        """Other requests of this iteration of the event loop go along."""
        if not self._poked:
            self._poked = True
            self._loop.call_soon(self._send)

    async def carry(self) -> DejamqError:
        reason = await self._end
        return BrokerUnavailable(f"{self._address} ended the stream: {reason}", definite=False)

    def cancel(self) -> None:
        self._useful = True
        self._framed.fail("the stream was given up")

    def _send(self) -> None:
        """A closing connection takes no more frames: a frame that was not taken has surely not left."""
        self._poked = False
        framed, line = self._framed, self._line
        while not framed.full and not framed.closing and (frame := line.next_frame()) is not None:
            framed.write(frame)

    def _received(self, frame: Frame) -> None:
        self._useful = True
        try:
            self._line.received(frame)
        except ValueError as error:
            self._framed.fail(f"it sent bytes that are no answer: {error}")

    def _lost(self, reason: str) -> None:
        if not self._useful and monotonic() - self._opened < AT_ONCE_S:
            self._useless()
        if not self._end.done():
            self._end.set_result(reason)


def grpc_wire(channel: grpc.aio.Channel, method: str, address: str, line: FrameSource) -> GrpcWire:
    """For a streaming call, named in full. It connects as the channel does, and fails as that does."""
    streaming: Any = channel.stream_stream(method, request_serializer=None, response_deserializer=None)
    return GrpcWire(streaming(), line, address)
