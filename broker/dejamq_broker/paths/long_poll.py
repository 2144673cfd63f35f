"""Held pulls, and the one door through which the store's threads reach the event loop.

``HoldTable`` is pure; ``LongPoll`` is its shell: it wakes holds on arrival and on their deadline. A hold is parked in
the same step that found nothing, so an arrival after the look is always seen by the hold.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable

import msgspec
from dejamq_proto.signals import Signal

log = logging.getLogger(__name__)
Key = tuple[str, int]  # topic, queue id
NO_END = 1 << 62
TIMER_STEP_MS = 100
"""Deadlines are looked at in such steps, so that the pulls of one client, which are asked together, end together."""


class HeldRequest(msgspec.Struct, eq=False):
    """A parked request. ``wake(timed_out)`` is called once, on the loop; it may park a new hold.

    ``deadline_ms`` is on the clock of ``LongPoll.now_ms``. ``owner`` is the stream it came by. ``parked`` turns False
    when it leaves the table: the heap of deadlines then ignores its entry.
    """

    key: Key
    deadline_ms: float
    wake: Callable[[bool], None]
    owner: object = None
    parked: bool = True


class HoldTable:
    """Holds by queue and by deadline. Each leaves both at once, whichever comes first.

    RocketMQ's PullRequestHoldService keeps its table by ``topic@queueId`` and looks at all of it each 5 s. An expired
    hold is answered up to 5 s late there. With deadlines in a heap it is answered when its time is over.
    """

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[HeldRequest, None]] = {}
        self._by_owner: dict[object, dict[HeldRequest, None]] = {}
        self._by_deadline: list[tuple[float, int, HeldRequest]] = []
        self._count = self._size = 0

    def __len__(self) -> int:
        return self._size

    def count(self, owner: object) -> int:
        """How many holds came by this stream."""
        return len(self._by_owner.get(owner, ()))

    def park(self, hold: HeldRequest) -> None:
        """Keep a hold until an arrival, its deadline or the end of its owner."""
        self._by_key.setdefault(hold.key, {})[hold] = None
        self._by_owner.setdefault(hold.owner, {})[hold] = None
        self._count += 1
        self._size += 1
        heapq.heappush(self._by_deadline, (hold.deadline_ms, self._count, hold))

    def arrived(self, keys: Iterable[Key]) -> list[HeldRequest]:
        """Take out every hold of these queues."""
        holds = [self._unpark(hold) for key in keys for hold in self._by_key.pop(key, ())]
        if holds:
            self._compact()
        return holds

    def expired(self, now_ms: float) -> list[HeldRequest]:
        """Take out every hold whose deadline has come."""
        holds = []
        while self._by_deadline and self._by_deadline[0][0] <= now_ms:
            hold = heapq.heappop(self._by_deadline)[2]
            if hold.parked:
                self._remove(hold)
                holds.append(hold)
        return holds

    def forget(self, owner: object) -> None:
        """Drop the holds of a stream that is gone; they are never woken."""
        for hold in list(self._by_owner.get(owner, ())):
            self._remove(hold)
        self._compact()

    def next_deadline_ms(self) -> float | None:
        """When the first hold expires; None while nobody is held."""
        while self._by_deadline and not self._by_deadline[0][2].parked:
            heapq.heappop(self._by_deadline)
        return self._by_deadline[0][0] if self._by_deadline else None

    def _compact(self) -> None:
        """Drop what is not parked any more before it outnumbers the rest: it is gone long before its deadline."""
        if len(self._by_deadline) > 64 + 2 * len(self):
            self._by_deadline = [entry for entry in self._by_deadline if entry[2].parked]
            heapq.heapify(self._by_deadline)

    def _remove(self, hold: HeldRequest) -> None:
        holds = self._by_key[hold.key]
        del holds[hold]
        if not holds:
            del self._by_key[hold.key]
        self._unpark(hold)

    def _unpark(self, hold: HeldRequest) -> HeldRequest:
        hold.parked = False
        self._size -= 1
        of_owner = self._by_owner[hold.owner]
        del of_owner[hold]
        if not of_owner:
            del self._by_owner[hold.owner]
        return hold


class LongPoll:
    """Parks and wakes. All but ``on_arrival`` belongs to the loop's thread.

    One call into the loop serves any number of arrivals, which is what keeps a busy store from waking it for
    each run.
    """

    def __init__(self, most: int = NO_END) -> None:
        self._holds = HoldTable()
        self.most = most
        """How many requests may wait."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._arrivals: deque[Key] = deque()
        self._drain_scheduled = False
        self._closed = False
        self.on_wake = Signal[[Iterable[Key]]]()
        """Told on the loop which queues got entries, when the holds were woken."""

    def on_arrival(self, keys: list[Key]) -> None:
        """From any thread: these queues got entries. Many calls from outside become one visit to the loop."""
        if self._is_here():
            self._wake(keys)
            return
        self._arrivals.extend(keys)
        if not self._drain_scheduled:
            self._drain_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed: nobody is left to be woken
                pass

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._holds)

    def waiting_of(self, owner: object) -> int:
        """How many requests of one stream wait."""
        return self._holds.count(owner)

    @property
    def full(self) -> bool:
        """Whether as many requests wait as may."""
        return len(self._holds) >= self.most

    def park(self, hold: HeldRequest) -> None:
        """Hold a request, or wake it at once as timed out when the broker is closing."""
        if self._closed:
            hold.parked = False
            self._loop.call_soon(hold.wake, True)
            return
        self._holds.park(hold)
        self._set_timer()

    def now_ms(self) -> float:
        """The clock of deadlines, which no change of wall time moves."""
        return self._loop.time() * 1000

    def forget(self, owner: object) -> None:
        """The stream is gone: its holds are never woken."""
        self._holds.forget(owner)

    def close(self) -> None:
        """Answer everybody, as if their time were over, and hold nobody from now on.

        Answered as timed out and not as refused: consumers then pull again at their next broker, as after an
        ordinary hold.
        """
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        _wake_each(self._holds.expired(float("inf")), True)

    def _drain(self) -> None:
        """On the loop: wake who waits for the queues that got entries since the last visit."""
        self._drain_scheduled = False  # before looking: a later arrival schedules its own visit
        keys = set()
        while self._arrivals:
            keys.add(self._arrivals.popleft())
        self._wake(keys)

    def _wake(self, keys: Iterable[Key]) -> None:
        _wake_each(self._holds.arrived(keys), False)
        self.on_wake.tell(keys)

    def _is_here(self) -> bool:
        """Whether the caller runs in the loop, as appends do: no need to come in by the door then."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _set_timer(self) -> None:
        """One timer, for the first step after the earliest deadline.

        A hold that an arrival took out leaves it as it is: then it fires for nobody.
        """
        deadline_ms = self._holds.next_deadline_ms()
        due_s = None if deadline_ms is None else (deadline_ms // TIMER_STEP_MS + 1) * TIMER_STEP_MS / 1000
        if self._timer is not None:
            if due_s is not None and self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = None if due_s is None else self._loop.call_at(due_s, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        _wake_each(self._holds.expired(self.now_ms()), True)
        self._set_timer()


def _wake_each(holds: Iterable[HeldRequest], timed_out: bool) -> None:
    """One that cannot be woken takes nobody else's answer with it, nor the arrival that woke it."""
    for hold in holds:
        try:
            hold.wake(timed_out)
        except Exception:
            log.exception("wake_failed topic=%s queue=%d", *hold.key)
