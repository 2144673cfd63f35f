"""A connection of frames for tasks that wait: for the next frame, or for room to send."""

import asyncio
from collections import deque

from dejamq_proto.framed import Framed

MOST_UNREAD = 4
"""Frames that are here and not read; what is more waits at the other end."""


class FrameStream(Framed):
    """One task reads, one sends; they may be the same. Owned by the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.received, self.room, self.lost = self._take, self._go_on, self._end
        self.unread: deque[bytes] = deque()
        self.held = False
        """So much is unread that nothing more is taken from the network."""
        self._arrived, self._roomy = asyncio.Event(), asyncio.Event()
        self._ended: str | None = None

    async def read(self) -> bytes:
        """The next frame. Raises ConnectionError when none will come."""
        while not self.unread:
            if self._ended is not None:
                raise ConnectionError(self._ended)
            self._arrived.clear()
            await self._arrived.wait()
        frame = self.unread.popleft()
        if self.held and len(self.unread) < MOST_UNREAD:
            self.held = False
            self.transport.resume_reading()
        return frame

    async def send(self, frame: bytes) -> None:
        """Waits until most of it is on its way: who does not read is not sent to from memory."""
        self.write(frame)
        while self.full:
            self._roomy.clear()
            await self._roomy.wait()

    def _take(self, frame: bytes) -> None:
        self.unread.append(frame)
        self._arrived.set()
        if not self.held and len(self.unread) >= MOST_UNREAD:
            self.held = True
            self.transport.pause_reading()

    def _go_on(self) -> None:
        self._roomy.set()

    def _end(self, reason: str) -> None:
        self._ended = reason
        self._arrived.set()
