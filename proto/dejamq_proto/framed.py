"""Frames over TCP, for both ends: four bytes of length, big-endian like RocketMQ's, then so many bytes.

What gRPC would carry costs each end a fifth of the time so: no threads that wake one another, no second set of buffers.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from dejamq_proto.calling import MAX_FRAME_BYTES

HEAD_BYTES = 4
FIRST_ROOM, MOST_AHEAD = 16 << 10, 256 << 10
"""Bytes that are read at once: at first, and at most where no frame is larger."""
SPARE_S = 1.0
"""Room for larger frames is given back when none came for so long."""
TOGETHER_BYTES = 64 << 10
"""A frame that is larger goes behind its length by itself: to put both together is one more copy."""
IDLE_S, PROBE_S = 30, 10
"""As gRPC's keepalive in ``calling``: who is silent so long is asked, and given up when no answer comes."""


def _nothing(_: Any = None) -> None:
    pass


class Framed(asyncio.BufferedProtocol):
    """One connection. Owned by its event loop.

    ``received`` gets each frame in the turn in which it came, ``lost`` the reason of the end, once. ``room`` is called
    when ``full`` is over.
    """

    def __init__(self) -> None:
        self.received: Callable[[bytes], None] = _nothing
        self.lost: Callable[[str], None] = _nothing
        self.room: Callable[[], None] = _nothing
        self.full = False
        """So much waits to be sent that more would only be kept here."""
        self.most_bytes = MAX_FRAME_BYTES
        """Of a frame that comes."""
        self._space, self._have = memoryview(bytearray(FIRST_ROOM)), 0
        self._peak = 0  # bytes that were in it at once since the last look at whether it is too large
        self._sparing: asyncio.TimerHandle | None = None
        self._reason = ""

    @property
    def closing(self) -> bool:
        """Nothing that is written now would leave."""
        return self.transport.is_closing()

    # by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        _notice_silence(self.transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._space[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        space, have, at, wanted = self._space, self._have + nbytes, 0, HEAD_BYTES
        while have - at >= HEAD_BYTES:
            size = int.from_bytes(space[at : at + HEAD_BYTES])
            if size > self.most_bytes:
                self.fail(f"a frame of {size} bytes came, and {self.most_bytes} is the most")
                return
            wanted = HEAD_BYTES + size
            if at + wanted > have:
                break
            self.received(bytes(space[at + HEAD_BYTES : at + wanted]))
            at, wanted = at + wanted, HEAD_BYTES
        self._keep(at, have, wanted)

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self.room()

    def connection_lost(self, exc: Exception | None) -> None:
        """What is held here is let go: the callbacks are cycles, and the garbage collector may be far away."""
        self.full = False
        lost, room = self.lost, self.room
        self.received = self.lost = self.room = _nothing
        self._space, self._have = memoryview(b""), 0
        if self._sparing is not None:
            self._sparing.cancel()
        lost(self._reason or (str(exc) if exc else "the other side closed the connection"))
        room()

    # by its owner

    def write(self, frame: bytes) -> None:
        """Send it behind what was written before. What the kernel does not take at once is kept: look at ``full``."""
        head = len(frame).to_bytes(HEAD_BYTES)
        if len(frame) <= TOGETHER_BYTES:
            self.transport.write(head + frame)
        else:
            self.transport.write(head)
            self.transport.write(memoryview(frame))

    def close(self) -> None:
        """End the connection behind what was written."""
        self.transport.close()

    def fail(self, reason: str) -> None:
        """End the connection at once."""
        self._reason = self._reason or reason
        self.transport.abort()

    def _keep(self, begin: int, end: int, wanted: int) -> None:
        """What is left of the bytes, the begin of a frame of ``wanted``, goes to the front with room behind it.

        Room grows with what has come, and not with what a stranger says will come.
        """
        rest, size = self._space[begin:end], len(self._space)
        self._peak = max(self._peak, end)
        if end - begin == size or end == size < MOST_AHEAD:
            size = min(2 * size, max(wanted, MOST_AHEAD))
            self._space, begin = memoryview(bytearray(size)), end
            if size > MOST_AHEAD and self._sparing is None:
                self._spare_later()
        if begin:
            self._space[: len(rest)] = rest
        self._have = len(rest)

    def _spare_later(self) -> None:
        self._sparing = asyncio.get_running_loop().call_later(SPARE_S, self._spare)

    def _spare(self) -> None:
        """Give the room for large frames back when it was not needed since the last look."""
        if self._peak > MOST_AHEAD or self._have:
            self._peak = self._have
            self._spare_later()
        else:
            self._sparing, self._space = None, memoryview(bytearray(FIRST_ROOM))


def _notice_silence(sock: socket.socket) -> None:
    """A peer that went without a word is given up as soon as over gRPC. Small frames do not wait for one another."""
    for level, option, value in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 1),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, (IDLE_S + PROBE_S) * 1000),
    ):
        sock.setsockopt(level, option, value)
