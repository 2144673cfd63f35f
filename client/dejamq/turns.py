"""Queues that wait for a worker, each in one place at a time; for consumption in order."""

import asyncio
from enum import Enum

import msgspec

from dejamq.assignment import OwnedQueue
from dejamq.lane import Lane


class Place(Enum):
    """Where a queue's turn is."""

    IDLE = "nothing waits"
    LINE = "waits for a worker"
    WORKER = "has one"
    PAUSED = "waits for its time"


class Turn(msgspec.Struct, eq=False):
    """One ownership of one queue, as the workers see it. ``quiet`` is set while no handler of it runs."""

    owned: OwnedQueue
    lane: Lane
    quiet: asyncio.Event
    place: Place = Place.IDLE


class Line:
    """The turns that workers take, first come first served, and those that come back by the clock.

    Owned by the event loop. Only ``put`` and the workers move a turn, so that two workers never have one queue.
    """

    def __init__(self) -> None:
        self._turns: asyncio.Queue[Turn] = asyncio.Queue()
        self._timers: set[asyncio.TimerHandle] = set()
        self._closed = False

    def wake(self, turn: Turn) -> None:
        """The turn has something to do: it lines up, unless it is somewhere already."""
        if turn.place is Place.IDLE:
            self._put(turn)

    async def take(self) -> Turn:
        """The next turn, for one worker."""
        turn = await self._turns.get()
        turn.place = Place.WORKER
        return turn

    def give_back(self, turn: Turn, pause_s: float | None) -> None:
        """A worker is done with it: it lines up after so many seconds; None: when something comes."""
        if pause_s is None or self._closed:
            turn.place = Place.IDLE
            return
        turn.place = Place.PAUSED

        def due() -> None:
            self._timers.discard(timer)
            self._put(turn)

        timer = asyncio.get_running_loop().call_later(pause_s, due)
        self._timers.add(timer)

    def close(self) -> None:
        """Nothing comes back by the clock any more. May be called twice."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()

    def _put(self, turn: Turn) -> None:
        turn.place = Place.LINE
        self._turns.put_nowait(turn)
