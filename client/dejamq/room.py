"""What all queues of a client may hold together, and whose turn it is to pull while that is little."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec


class _Pull(msgspec.Struct, eq=False, gc=False):
    """One that is under way, asked at ``asked_s``: the bytes that it counts for."""

    size: int
    asked_s: float


class Room:
    """Bytes of bodies: those held for handlers, and those that are asked for and likely to come. Owned by the loop.

    Without the latter each of hundreds of queues would ask for a whole pull before the first one has come. Who finds no
    room waits for a turn, the first one first: else those that pull now would always be before them.
    """

    def __init__(self, most: int, held: Callable[[], int], pull_bytes: int, interval_s: float) -> None:
        """``held``: how many are, asked only when so much came since the last time that it may be too much now, as with
        hundreds of queues that costs as much as a pull. While somebody waits, it is asked each ``interval_s``.
        """
        self._most, self._held, self._pull_bytes, self._interval_s = most, held, pull_bytes, interval_s
        self._asked, self._surely_free = 0, -1
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._watching: asyncio.TimerHandle | None = None
        self._unknown: dict[str, deque[_Pull]] = {}
        self._last_s = 0.0  # when an answer came last

    @property
    def is_free(self) -> bool:
        """Whether somebody may pull without waiting for a turn."""
        return not self._waiting and self._free() >= 0

    @contextmanager
    def asked(self, broker_name: str, has_more: bool | None) -> Iterator[None]:
        """While a pull is under way. ``has_more``: whether it surely brings something; None: nobody knows yet.

        What nobody knows of counts until the broker has surely found nothing for it and holds it: it answers others in
        the order in which it was asked.
        """
        pull = _Pull(self._pull_bytes if has_more is not False else 0, asyncio.get_running_loop().time())
        self._count(pull.size)
        unknown = self._unknown.setdefault(broker_name, deque())
        if has_more is None:
            unknown.append(pull)
        try:
            yield
        finally:
            self._last_s = asyncio.get_running_loop().time()
            while unknown and unknown[0].asked_s <= pull.asked_s:
                self._uncount(unknown.popleft())
            self._uncount(pull)
            if self._waiting:
                self._admit()

    def came(self, size: int) -> None:
        """So many bytes are held in addition: what a pull brought, before it has ended."""
        self._surely_free -= size

    async def turn(self, patience_s: float) -> bool:
        """Wait for the caller's turn to pull; False when none came in that time (s)."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(waiting)
        self._watch()
        timer, turn = loop.call_later(patience_s, _give, waiting, False), False
        try:
            turn = await waiting
        finally:
            timer.cancel()
            if not turn and waiting in self._waiting:
                self._waiting.remove(waiting)
        return turn

    def _count(self, size: int) -> None:
        self._asked += size
        self._surely_free -= size

    def _uncount(self, pull: "_Pull") -> None:
        """Only the first time for each."""
        self._count(-pull.size)
        pull.size = 0

    def _free(self) -> int:
        if self._surely_free < 0:
            self._surely_free = self._most - self._asked - self._held()
        return self._surely_free

    def _admit(self) -> None:
        """As many as find room by what each may bring, and one more."""
        free = self._free()
        while free >= 0 and self._waiting:
            _give(self._waiting.popleft(), True)
            free -= self._pull_bytes

    def _watch(self) -> None:
        if self._watching is None:
            self._watching = asyncio.get_running_loop().call_later(self._interval_s, self._look)

    def _look(self) -> None:
        """Where no answers come at all, brokers have nothing for those that were asked an interval ago."""
        self._watching = None
        before_s = asyncio.get_running_loop().time() - self._interval_s
        for unknown in self._unknown.values() if self._last_s < before_s else ():
            while unknown and unknown[0].asked_s < before_s:
                self._uncount(unknown.popleft())
        self._admit()
        if self._waiting:
            self._watch()


def _give(waiting: "asyncio.Future[bool]", turn: bool) -> None:
    if not waiting.done():
        waiting.set_result(turn)
