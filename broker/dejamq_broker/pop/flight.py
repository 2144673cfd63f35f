"""What is popped and not done: by queue, by the time at which it becomes visible again, and by its record. Pure.

Offsets before a queue's ``next_offset`` are in flight or done; those from there on were never popped.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from dejamq_broker.tables.offsets import Position

MOST_ENDED = 10_000
"""Check points without messages in flight that are remembered: whoever acknowledges again is told the same again."""


class Keeper(NamedTuple):
    """The client for whom the broker keeps a delivery, and how often it renewed it.

    Start offset and pop time are those of the first delivery of the message to it, by whose handle the client goes on.
    """

    client_id: str
    times: int
    start_offset: int
    pop_time: int


class CheckPointName(NamedTuple):
    """What names a check point of a known queue."""

    start_offset: int
    pop_time: int


class CheckPoint(msgspec.Struct, eq=False):
    """Messages of a queue that were popped at one time, to be visible again at ``visible_ms``.

    ``place`` is that of its record: revive queue and offset there. ``replaced``: deliveries by which others continue.
    """

    at: Position
    start_offset: int
    pop_time: int
    invisible_ms: int
    offsets: tuple[int, ...]
    place: tuple[int, int]
    left: set[int]
    due_ms: int = 0
    asked_ms: int = -1
    """The invisible time that a change asked for."""
    asked: CheckPointName | None = None
    """By whose handle a change was asked: the one that the consumer surely has, as an answer may be lost."""
    replaced: "dict[int, CheckPoint]" = {}
    lost: set[int] = set()
    """Offsets that are not this delivery's any more, though nobody acknowledged them."""
    keeper: Keeper | None = None

    def go_on(self, by: "dict[int, CheckPoint]") -> None:
        """These messages of it continue by other deliveries."""
        self.replaced = self.replaced | by
        self.offsets = tuple(sorted({*self.offsets, *by}))

    @property
    def name(self) -> CheckPointName:
        return CheckPointName(self.start_offset, self.pop_time)

    @property
    def visible_ms(self) -> int:
        return self.pop_time + self.invisible_ms


class PopQueue(msgspec.Struct, eq=False):
    """One queue for one group. ``pop_time`` is the newest; each check point of a queue has a later one."""

    at: Position
    next_offset: int
    pop_time: int = 0
    flight: dict[int, CheckPoint] = {}
    popped: dict[int, CheckPoint] = {}


class Flights:
    """All of them, at one broker. Nothing here waits or writes."""

    def __init__(self) -> None:
        self._queues: dict[Position, PopQueue] = {}
        self._by_due: list[tuple[int, int, CheckPoint]] = []
        self._by_place: dict[int, dict[int, CheckPoint]] = {}
        self._ended: dict[tuple[Position, int], CheckPoint] = {}
        self._count = self._size = 0

    def __len__(self) -> int:
        """Check points with messages in flight."""
        return self._size

    def __iter__(self) -> Iterator[PopQueue]:
        yield from tuple(self._queues.values())

    def get(self, at: Position) -> PopQueue | None:
        """None: the group has popped nothing of it."""
        return self._queues.get(at)

    def open(self, at: Position, next_offset: int) -> PopQueue:
        """A queue that the group pops for the first time."""
        queue = self._queues[at] = PopQueue(at, next_offset)
        return queue

    def add(self, point: CheckPoint) -> None:
        """Its queue is open."""
        queue = self._queues[point.at]
        queue.flight.update(dict.fromkeys(point.left, point))
        queue.popped[point.pop_time] = point
        queue.pop_time = max(queue.pop_time, point.pop_time)
        revive_queue_id, offset = point.place
        self._by_place.setdefault(revive_queue_id, {})[offset] = point
        self._size += 1
        self.look_again(point, point.visible_ms)

    def remember(self, at: Position, start_offset: int, pop_time: int, offsets: Sequence[int]) -> CheckPoint:
        """Deliveries that are over, though some may continue by others."""
        point = CheckPoint(at, start_offset, pop_time, 0, tuple(offsets), (-1, -1), set())
        self._keep(point)
        return point

    def look_again(self, point: CheckPoint, due_ms: int) -> None:
        """``due`` gives it then."""
        point.due_ms = due_ms
        self._count += 1
        heapq.heappush(self._by_due, (due_ms, self._count, point))

    def find(self, at: Position, pop_time: int) -> CheckPoint | None:
        """The deliveries of this time, with or without messages in flight; None when nothing is known of any."""
        queue = self._queues.get(at)
        found = queue.popped.get(pop_time) if queue else None
        return found or self._ended.get((at, pop_time))

    def settle(self, point: CheckPoint, offsets: Iterable[int], *, lost: bool = False) -> None:
        """These are done, or continue by another delivery. ``lost``: they come again, and this delivery is too late."""
        offsets = tuple(offsets)
        if lost:
            point.lost.update(offsets)
        queue = self._queues[point.at]
        for offset in offsets:
            point.left.discard(offset)
            if queue.flight.get(offset) is point:
                del queue.flight[offset]
        if not point.left and queue.popped.get(point.pop_time) is point:
            self._end(queue, point)

    def due(self, now_ms: int) -> Iterator[CheckPoint]:
        """Those whose time has come; each is to be settled, or looked at again."""
        while self._by_due and self._by_due[0][0] <= now_ms:
            due_ms, _, point = heapq.heappop(self._by_due)
            if point.left and point.due_ms == due_ms:
                yield point

    def next_due_ms(self) -> int | None:
        """When ``due`` gives the next one; None when nothing is in flight."""
        while self._by_due and not (self._by_due[0][2].left and self._by_due[0][2].due_ms == self._by_due[0][0]):
            heapq.heappop(self._by_due)
        return self._by_due[0][0] if self._by_due else None

    def oldest(self, revive_queue_id: int) -> CheckPoint | None:
        """Of this revive queue, the one with the first record; None when nothing of it is in flight."""
        points = self._by_place.get(revive_queue_id)
        return next(iter(points.values())) if points else None

    def move_record(self, point: CheckPoint, place: tuple[int, int]) -> None:
        """The check point was written again, behind all others."""
        del self._by_place[point.place[0]][point.place[1]]
        point.place = place
        self._by_place.setdefault(place[0], {})[place[1]] = point

    def forget(self, ats: Sequence[Position]) -> None:
        """Nothing of these queues is in flight any more, and nobody has popped them."""
        for at in ats:
            queue = self._queues.pop(at, None)
            for point in tuple(queue.popped.values()) if queue else ():
                self._drop(point)
        gone = set(ats)
        self._ended = {key: point for key, point in self._ended.items() if key[0] not in gone}

    def _end(self, queue: PopQueue, point: CheckPoint) -> None:
        del queue.popped[point.pop_time]
        self._drop(point)
        self._keep(point)

    def _keep(self, point: CheckPoint) -> None:
        self._ended[point.at, point.pop_time] = point
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def _drop(self, point: CheckPoint) -> None:
        """Entries of ended check points leave the heap before they outnumber the others."""
        point.left.clear()
        del self._by_place[point.place[0]][point.place[1]]
        self._size -= 1
        if len(self._by_due) > 64 + 2 * self._size:
            self._by_due = [entry for entry in self._by_due if entry[2].left and entry[2].due_ms == entry[0]]
            heapq.heapify(self._by_due)
