"""The open streams of clients: each ends with its client, or when the broker closes."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")
MOST_ASKED = 16
"""Requests of one stream that are read and not answered."""


class Outbox(Generic[Item]):
    """Items that wait to be written to one stream. ``None`` ends the stream after what was put before it.

    An item that the stream's client asked for needs a place first (``room``). So a client that reads no answers is not
    read from either. Other items are bounded by their kind: ``put_once``, ``offer``.
    """

    __slots__ = ("_bytes", "_ended", "_pending", "_places", "_queue", "_taker")

    def __init__(self) -> None:
        self._queue: deque[tuple[Item | None, int, object]] = deque()
        self._taker: asyncio.Future[None] | None = None
        """Waits for an item. Each stream has an outbox: an ``asyncio.Queue`` would take 3 KiB of memory more."""
        self._pending: set[object] = set()
        self._places = asyncio.Semaphore(MOST_ASKED)
        self._bytes = 0
        self._ended = False

    def put(self, item: Item) -> None:
        """Queue an item; items that come after the end are never written."""
        self._put((item, 0, None))

    async def room(self) -> None:
        """Wait for a place for what the client asks next. The taker of the item gives it back: ``made_room``."""
        await self._places.acquire()

    def made_room(self) -> None:
        """One of the things that the client asked for is out."""
        self._places.release()

    def _put(self, entry: tuple[Item | None, int, object]) -> None:
        self._queue.append(entry)
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    def put_once(self, item: Item, name: object) -> None:
        """Queue what needs to be said once, however often it becomes true before it is read."""
        if name not in self._pending:
            self._pending.add(name)
            self._put((item, 0, name))

    def offer(self, item: Item, size: int, most: int) -> bool:
        """Queue an item of this size, unless more than ``most`` bytes wait already."""
        if self._bytes + size > most:
            return False
        self._bytes += size
        self._put((item, size, None))
        return True

    def end(self) -> None:
        """Let the stream end after what was put so far."""
        self._put((None, 0, None))

    async def get(self) -> Item | None:
        """The next item; None at the end. One task takes at a time."""
        while not (self._ended or self._queue):
            self._taker = asyncio.get_running_loop().create_future()
            try:
                await self._taker
            finally:
                self._taker = None
        return None if self._ended else self._taken(self._queue.popleft())

    def get_now(self) -> Item | None:
        """The next item; None when nothing waits, and at the end."""
        return None if self._ended or not self._queue else self._taken(self._queue.popleft())

    def _taken(self, entry: tuple[Item | None, int, object]) -> Item | None:
        item, size, name = entry
        self._bytes -= size
        self._pending.discard(name)
        self._ended = item is None
        return item


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
