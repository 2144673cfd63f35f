"""Queues that wait for a worker, each in one place at a time; for consumption in order."""

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import Enum

import msgspec

from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.process_queue import ProcessQueue
from dejamq.receiving.received import ReceivedMessage

# The messages of one owned queue that is consumed in order. Pure: no clock, no loop. Source: RocketMQ ProcessQueue
# with its second map consumingMsgOrderlyTreeMap.


class HeldMessages:
    """Messages that wait for a handler, and messages handed out and not committed, both in the order of the queue.

    A message leaves the process queue when it is committed. So a message handed out and not committed holds the
    low-water mark, and is delivered again to the next owner.
    """

    __slots__ = ("_held", "_waiting", "taken")

    def __init__(self, held: ProcessQueue) -> None:
        self._held = held
        self._waiting: deque[ReceivedMessage] = deque()
        self.taken: list[ReceivedMessage] = []
        """Handed out since the last commit or rollback."""

    def __len__(self) -> int:
        """How many wait for a handler."""
        return len(self._waiting)

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Add messages; the caller gives them in the order of the queue."""
        self._waiting.extend(messages)

    @property
    def next_topic(self) -> str:
        """The topic of the message that is next: its handler is wanted. Raises IndexError when none waits."""
        return self._waiting[0].topic

    def take(self, size: int) -> list[ReceivedMessage]:
        """Hand out the next messages, at most ``size`` and all of one topic (in a retry queue those of many meet)."""
        waiting = self._waiting
        if size == 1:
            messages = [waiting.popleft()]
        else:
            topic, messages = waiting[0].topic, []
            while waiting and len(messages) < size and waiting[0].topic == topic:
                messages.append(waiting.popleft())
        self.taken += messages
        return messages

    def commit(self) -> None:
        """Everything handed out is done."""
        taken, self.taken = self.taken, []
        for message in taken:
            self._held.finish(message.queue_offset)

    def again(self, messages: Sequence[ReceivedMessage]) -> None:
        """The messages handed out last are the next ones again."""
        del self.taken[len(self.taken) - len(messages) :]
        self._waiting.extendleft(reversed(messages))

    def rollback(self) -> None:
        """Everything handed out is next again."""
        self.again(tuple(self.taken))


class TurnPlace(Enum):
    """Where a queue's turn is."""

    IDLE = "nothing waits"
    LINE = "waits for a worker"
    WORKER = "has one"
    PAUSED = "waits for its time"


class Turn(msgspec.Struct, eq=False):
    """One ownership of one queue, as the workers see it. ``quiet`` is set while no handler of it runs."""

    owned: OwnedQueue
    lane: HeldMessages
    quiet: asyncio.Event
    place: TurnPlace = TurnPlace.IDLE


class WorkerLine:
    """The turns that workers take, first come first served, and those that come back by the clock.

    Owned by the event loop. Only ``put`` and the workers move a turn, so that two workers never have one queue.
    """

    def __init__(self) -> None:
        self._turns: asyncio.Queue[Turn] = asyncio.Queue()
        self._timers: set[asyncio.TimerHandle] = set()
        self._closed = False

    def wake(self, turn: Turn) -> None:
        """The turn has something to do: it lines up, unless it is somewhere already."""
        if turn.place is TurnPlace.IDLE:
            self._put(turn)

    async def take(self) -> Turn:
        """The next turn, for one worker."""
        turn = await self._turns.get()
        turn.place = TurnPlace.WORKER
        return turn

    def give_back(self, turn: Turn, pause_s: float | None) -> None:
        """A worker is done with it: it lines up after so many seconds; None: when something comes."""
        if pause_s is None or self._closed:
            turn.place = TurnPlace.IDLE
            return
        turn.place = TurnPlace.PAUSED

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
        turn.place = TurnPlace.LINE
        self._turns.put_nowait(turn)
