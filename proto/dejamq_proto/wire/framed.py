"""Frames over TCP, for both ends: four bytes of length, big-endian like RocketMQ's, then that number of bytes.

A load costs each end a fifth of the time that it costs over gRPC: no threads that wake one another, no second set of
buffers.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from dejamq_proto.wire.calling import MAX_FRAME_BYTES

HEAD_BYTES = 4
FIRST_ROOM, MOST_AHEAD = 16 << 10, 256 << 10
"""Bytes of small frames that are read at once: at first, and at most."""
TOGETHER_BYTES = 64 << 10
"""A larger frame is read into a buffer of its own, and its large parts are sent by themselves. To put them beside
others is one more copy.
"""
IDLE_S, PROBE_S = 30, 10
"""As gRPC's keepalive in ``calling``: a peer that is silent for this time is asked, and given up when no answer
comes.
"""
Frame = bytes | memoryview
Pieces = Frame | list[Frame]
"""A frame to send, maybe in pieces."""
NO_FRAME = memoryview(b"")


def joined(frame: Pieces) -> bytes:
    """For who sends bytes only."""
    return b"".join(frame) if isinstance(frame, list) else bytes(frame)


def _nothing(_: Any = None) -> None:
    pass


class Framed(asyncio.BufferedProtocol):
    """One connection. Owned by its event loop.

    ``received`` gets each frame in the turn in which it came, and owns it: a large one is a view that may be written.
    ``lost`` gets the reason of the end, once. ``room`` is called when ``full`` is over.
    """

    def __init__(self) -> None:
        self.received: Callable[[Frame], None] = _nothing
        self.lost: Callable[[str], None] = _nothing
        self.room: Callable[[], None] = _nothing
        self.full = False
        """True while the waiting bytes are so many that more would only be kept here."""
        self.most_bytes = MAX_FRAME_BYTES
        """Of a frame that comes."""
        self._space, self._have = memoryview(bytearray(FIRST_ROOM)), 0
        self.coming, self.come_bytes = NO_FRAME, 0
        """The large frame that is coming, and how much of it is here."""
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
        return self.coming[self.come_bytes :] if self.coming else self._space[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        if self.coming:
            self._enlarge(nbytes)
            return
        space, have, at = self._space, self._have + nbytes, 0
        while have - at >= HEAD_BYTES:
            begin = at + HEAD_BYTES
            size = int.from_bytes(space[at:begin])
            if size > self.most_bytes:
                self.fail(f"a frame of {size} bytes came, and {self.most_bytes} is the most")
                return
            if size > TOGETHER_BYTES:
                at = begin + self._begin_large(size, space[begin:have])
                continue
            if begin + size > have:
                break
            self.received(bytes(space[begin : begin + size]))
            at = begin + size
        self._keep(at, have)

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self.room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Everything held here is let go: the callbacks are cycles, and the garbage collector may be far away."""
        self.full = False
        lost, room = self.lost, self.room
        self.received = self.lost = self.room = _nothing
        self._space, self._have = memoryview(b""), 0
        self.coming = NO_FRAME
        lost(self._reason or (str(exc) if exc else "the other side closed the connection"))
        room()

    # by its owner

    def write(self, frame: Pieces) -> None:
        """Send it behind what was written before.

        Bytes that the kernel does not take at once are kept: look at ``full``.
        """
        pieces = frame if isinstance(frame, list) else [frame]
        small: list[Frame] = [sum(map(len, pieces)).to_bytes(HEAD_BYTES)]
        for piece in pieces:
            if len(piece) <= TOGETHER_BYTES:
                small.append(piece)
                continue
            if small:
                self.transport.write(b"".join(small))
                small = []
            self.transport.write(memoryview(piece))
        if small:
            self.transport.write(b"".join(small))

    def close(self) -> None:
        """End the connection behind what was written."""
        self.transport.close()

    def fail(self, reason: str) -> None:
        """End the connection at once."""
        self._reason = self._reason or reason
        self.transport.abort()

    def _begin_large(self, size: int, come: memoryview) -> int:
        """A large frame begins with what has come; how much of that is the frame's.

        Memory that nothing was read into takes no space yet. So a frame that a stranger only announces takes no space.
        """
        self.coming, self.come_bytes = np.empty(size, np.uint8).data, 0
        its = come[:size]
        self.coming[: len(its)] = its
        self._enlarge(len(its))
        return len(its)

    def _enlarge(self, more: int) -> None:
        self.come_bytes += more
        if self.come_bytes == len(self.coming):
            frame, self.coming = self.coming, NO_FRAME
            self.received(frame)

    def _keep(self, begin: int, end: int) -> None:
        """The rest of the bytes, the start of a small frame, goes to the front with space behind it."""
        rest = self._space[begin:end]
        if end == len(self._space) < MOST_AHEAD and not self.coming:
            self._space, begin = memoryview(bytearray(2 * len(self._space))), end
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
