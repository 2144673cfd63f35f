"""The byte budget of all queues of a client, and the order in which queues pull while little of it is free."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile

import msgspec

SILENT_S = 1.0
"""A broker that answers nothing for so long keeps nobody from pulling at another one."""


class _Pull(msgspec.Struct, eq=False, gc=False):
    """One that is under way: its bytes count since then (s), not when its broker has been silent for so long (s)."""

    asked_s: float
    patience_s: float


class _Broker(msgspec.Struct, eq=False):
    """Pulls under way to it that count, in the order in which they were asked, and when it last answered one (s).

    ``silent``: it let one time out that surely had some. Until it answers none counts, or each would cost a second.
    """

    answered_s: float
    silent: bool = False
    pulls: dict[_Pull, bool] = {}


class Room:
    """Bytes of bodies: bytes held for handlers, and bytes that are asked for and likely to come. Owned by the loop.

    Without the latter each of hundreds of queues would ask for a whole pull before the first one has come. A queue
    that finds no free bytes waits, first come, first served: else the queues that pull now would always be first.
    """

    def __init__(self, most: int, held: Callable[[], int], pull_bytes: int, interval_s: float) -> None:
        """``held``: how many are, asked only when so much came since the last time that it may be too much now, as with
        hundreds of queues that costs as much as a pull. While somebody waits, it is asked each ``interval_s``.
        """
        self._most, self._held, self._pull_bytes, self._interval_s = most, held, pull_bytes, interval_s
        self._asked, self._surely_free = 0, -1
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._given = 0  # turns given to pulls that have not gone on yet
        self._watching: asyncio.TimerHandle | None = None
        self._brokers: dict[Hashable, _Broker] = {}

    @property
    def is_free(self) -> bool:
        """Whether somebody may pull without waiting for a turn."""
        return not self._waiting and self._free() >= 0

    @contextmanager
    def asked(self, broker: Hashable, has_more: bool | None) -> Iterator[None]:
        """While a pull is under way. ``has_more``: whether it surely brings something; None: nobody knows.

        It counts until it ends, or its broker has surely found nothing for it and holds it: it answers others in the
        order in which it was asked. Where the broker answers nobody, what nobody knows of counts for an interval.
        """
        now_s = asyncio.get_running_loop().time()
        line = self._brokers.setdefault(broker, _Broker(now_s))
        pull = _Pull(now_s, SILENT_S if has_more else self._interval_s)
        if has_more is not False and not line.silent:
            line.pulls[pull] = True
            self._count(self._pull_bytes)
        try:
            yield
            line.silent = False
            if pull in line.pulls:  # else it was held: its answer says nothing of later pulls
                line.answered_s = asyncio.get_running_loop().time()
            self._uncount(line, list(takewhile(lambda one: one.asked_s <= now_s, line.pulls)))
        finally:
            self._uncount(line, (pull,))
            self._admit()

    def came(self, size: int) -> None:
        """Add bytes that are held: a pull brought them, and it has not ended yet."""
        self._surely_free -= size

    async def turn(self) -> None:
        """Wait for the caller's turn to pull, which it does at once or not at all."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._watch()
        try:
            await waiting
        finally:
            if waiting.done() and not waiting.cancelled():
                self._given -= 1
            elif waiting in self._waiting:
                self._waiting.remove(waiting)

    def _count(self, size: int) -> None:
        self._asked += size
        self._surely_free -= size

    def _uncount(self, line: _Broker, pulls: Iterable[_Pull]) -> None:
        """Only the first time for each."""
        for pull in pulls:
            if line.pulls.pop(pull, False):
                self._count(-self._pull_bytes)

    def _free(self) -> int:
        given = self._given * self._pull_bytes
        if self._surely_free < given:
            self._surely_free = self._most - self._asked - self._held()
        return self._surely_free - given

    def _admit(self) -> None:
        """As many as find room by what each may bring, and one more."""
        while self._waiting and self._free() >= 0:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                self._given += 1

    def _watch(self) -> None:
        if self._watching is None:
            self._watching = asyncio.get_running_loop().call_later(self._interval_s, self._look)

    def _look(self) -> None:
        """Answers that came while the loop stood still go first."""
        asyncio.get_running_loop().call_soon(self._forget_silent)

    def _forget_silent(self) -> None:
        self._watching = None
        now_s = asyncio.get_running_loop().time()
        for line in self._brokers.values():
            silent_s = now_s - line.answered_s
            expired = [one for one in line.pulls if min(silent_s, now_s - one.asked_s) >= one.patience_s]
            line.silent = line.silent or any(one.patience_s >= SILENT_S for one in expired)
            self._uncount(line, expired)
        self._admit()
        if self._waiting:
            self._watch()
