"""The open streams of clients: each ends with its client, or when the broker closes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Outbox(Generic[Item]):
    """What waits to be written to one stream. ``None`` ends the stream after what was put before it.

    Unbounded: what fills it is bounded elsewhere, by pending answers of sends and by one hold for each pull.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Item | None] = asyncio.Queue()

    def put(self, item: Item) -> None:
        """Queue an item; what comes after the end is never written."""
        self._queue.put_nowait(item)

    def end(self) -> None:
        """Let the stream end after what was put so far."""
        self._queue.put_nowait(None)

    async def get(self) -> Item | None:
        """The next item; None at the end."""
        return await self._queue.get()


class Streams:
    """All outboxes, so that closing can end them, and how many sends still wait for the disk."""

    def __init__(self) -> None:
        self._outboxes: set[Outbox[object]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._running = 0
        self._closed = False

    @contextmanager
    def outbox(self) -> "Iterator[Outbox[object]]":
        """One stream's outbox for as long as the stream is open."""
        outbox: Outbox[object] = Outbox()
        self._outboxes.add(outbox)
        if self._closed:
            outbox.end()
        try:
            yield outbox
        finally:
            self._outboxes.discard(outbox)
            self._settle()

    @contextmanager
    def running(self) -> "Iterator[None]":
        """A call whose answer closing has to wait for."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            self._settle()

    async def close(self, grace_ms: float) -> None:
        """End every stream after its last answer, and wait for that at most this long. May be called twice.

        A client that does not read its answers costs the grace and not more: its stream is cut when the server
        stops.
        """
        self._closed = True
        for outbox in self._outboxes:
            self._idle.clear()
            outbox.end()
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            pass

    def _settle(self) -> None:
        if not self._running and not (self._closed and self._outboxes):
            self._idle.set()
