"""Frames over TCP, for both ends: four bytes of length, big-endian like RocketMQ's, then so many bytes.

What gRPC would carry costs each end a fifth of the time so: no threads that wake one another, no second set of buffers.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from dejamq_proto.calling import KEPT_BYTES, MAX_FRAME_BYTES

HEAD_BYTES = 4
FIRST_ROOM, MOST_AHEAD = 16 << 10, 256 << 10
"""Bytes that are read at once: at first, and at most where no frame is larger."""
TOGETHER_BYTES = 64 << 10
"""A frame that is larger goes behind its length by itself: to put both together is one more copy."""
IDLE_S, PROBE_S = 30, 10
"""As gRPC's keepalive in ``calling``: who is silent so long is asked, and given up when no answer comes."""


class Framed(asyncio.BufferedProtocol):
    """One connection. Owned by its event loop.

    ``received`` gets each frame in the turn in which it came, ``lost`` the reason of the end, once. ``room`` is called
    when ``full`` is over.
    """

    def __init__(self) -> None:
        self.received: Callable[[bytes], None] = lambda frame: None
        self.lost: Callable[[str], None] = lambda reason: None
        self.room: Callable[[], None] = lambda: None
        self.full = False
        """So much waits to be sent that more would only be kept here."""
        self.most_bytes = MAX_FRAME_BYTES
        """Of a frame that comes."""
        self._space, self._have = memoryview(bytearray(FIRST_ROOM)), 0
        self._reason = ""

    # by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        _notice_silence(self.transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._space[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        space, have, at = self._space, self._have + nbytes, 0
        wanted = HEAD_BYTES
        while have - at >= HEAD_BYTES:
            wanted = HEAD_BYTES + int.from_bytes(space[at : at + HEAD_BYTES])
            if at + wanted > have:
                break
            self.received(bytes(space[at + HEAD_BYTES : at + wanted]))
            at += wanted
        if wanted - HEAD_BYTES > self.most_bytes:
            self.fail(f"a frame of {wanted - HEAD_BYTES} bytes came, and {self.most_bytes} is the most")
            return
        self._keep(at, have, wanted)

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self.room()

    def connection_lost(self, exc: Exception | None) -> None:
        self.full = False
        self.lost(self._reason or (str(exc) if exc else "the other side closed the connection"))
        self.room()

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
        """What is left of the bytes goes to the front, with room for all of its frame."""
        rest = self._space[begin:end]
        size = len(self._space)
        if wanted > size:
            size = wanted
        elif end == size < MOST_AHEAD:  # more was there than there was room for
            size = min(2 * size, MOST_AHEAD)
        elif not rest and size > KEPT_BYTES:
            size = FIRST_ROOM
        if size != len(self._space):
            self._space, begin = memoryview(bytearray(size)), end
        if begin:
            self._space[: len(rest)] = rest
        self._have = len(rest)


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
