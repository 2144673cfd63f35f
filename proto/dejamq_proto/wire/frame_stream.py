"""A connection of frames for tasks that wait: for the next frame, or for space to send."""

import asyncio
from collections import deque

from dejamq_proto.wire.framed import Frame, Framed, Pieces

MOST_UNREAD, MOST_UNREAD_BYTES = 4, 8 << 20
"""Frames that are here and not read; further frames, or frames beyond this number of bytes, wait at the other end."""


class FrameStream(Framed):
    """One task reads, one sends; they may be the same. Owned by the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.received, self.room = self._take, self._go_on
        self.unread: deque[Frame] = deque()
        self.unread_bytes = 0
        self.held = False
        """True while the unread bytes are too many to take more from the network."""
        self._arrived, self._roomy = asyncio.Event(), asyncio.Event()
        self._ended = ""
        self._finished = False

    async def read(self) -> Frame:
        """The next frame. Raises ConnectionError when none will come."""
        while not self.unread:
            if self._ended:
                raise ConnectionError(self._ended)
            self._arrived.clear()
            await self._arrived.wait()
        frame = self.unread.popleft()
        self.unread_bytes -= len(frame)
        if self.held and not self._too_much:
            self.held = False
            self.transport.resume_reading()
        return frame

    async def send(self, frame: Pieces) -> None:
        """Waits until most of it is on its way: a peer that does not read is not sent to from memory."""
        self.write(frame)
        del frame  # the connection keeps its own copy of waiting bytes
        while self.full:
            self._roomy.clear()
            await self._roomy.wait()

    async def finish(self) -> None:
        """Send nothing more, and wait until the other side ends as well; frames that it still sends are thrown away.

        To close with bytes unread would have the kernel take back what the other side has not read yet.
        """
        self._finished = True
        self.unread.clear()
        if self.held:
            self.held = False
            self.transport.resume_reading()
        if not self.closing:
            self.transport.write_eof()
        while not self._ended:
            self._arrived.clear()
            await self._arrived.wait()
        self.close()

    def eof_received(self) -> bool:
        """The other side sends nothing more; it still gets answers."""
        self._end("the other side sends nothing more")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection is lost")
        super().connection_lost(exc)

    @property
    def _too_much(self) -> bool:
        return len(self.unread) >= MOST_UNREAD or self.unread_bytes > MOST_UNREAD_BYTES

    def _take(self, frame: Frame) -> None:
        if self._finished:
            return
        self.unread.append(frame)
        self.unread_bytes += len(frame)
        self._arrived.set()
        if not self.held and self._too_much:
            self.held = True
            self.transport.pause_reading()

    def _go_on(self) -> None:
        self._roomy.set()

    def _end(self, reason: str) -> None:
        self._ended = self._ended or reason
        self._arrived.set()
