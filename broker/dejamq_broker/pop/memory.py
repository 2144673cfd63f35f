"""Which messages are popped and not done, of queues with and without order: what the records of the revive topic say.

The parts that remember change together here. Nothing here writes.
"""

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dejamq_broker.pop import records
from dejamq_broker.pop.flight import CheckPoint, CheckPointName, Flights, Keeper
from dejamq_broker.pop.order import OrderInfo, OrderQueue
from dejamq_broker.tables.offsets import Position


class DroppedDelivery(NamedTuple):
    """Messages of one delivery that are in flight no more, though nobody acknowledged them and no copy was stored."""

    at: Position
    pop_time: int
    offsets: list[int]


class PopMemory:
    """Owned by the event loop; ``PopState`` and a start change it. ``flights``: without order, ``orders``: with it."""

    def __init__(self) -> None:
        self.flights = Flights()
        self.orders: dict[Position, OrderQueue] = {}
        self._free: list[tuple[int, Position]] = []

    def added(
        self, at: Position, offsets: Sequence[int], pop_time: int, invisible_ms: int, place: tuple[int, int], *,
        start: int | None = None, keeper: Keeper | None = None,
    ) -> CheckPoint:  # fmt: skip
        """One more delivery, whose record stands at ``place``. ``start``: of the check point, if not the first."""
        point = CheckPoint(
            at, offsets[0] if start is None else start, pop_time, invisible_ms, tuple(offsets), place, set(offsets),
            keeper=keeper,
        )  # fmt: skip
        self.flights.add(point)
        return point

    def continued(self, at: Position, named: CheckPointName | None, new: CheckPoint) -> None:
        """Whoever has the handle of this delivery has the messages, too; the records between may be read no more."""
        if named is None or named == new.name:
            return
        over = self.flights.find(at, named.pop_time) or self.flights.remember(at, *named, ())
        over.go_on({offset: new for offset in new.offsets if offset not in over.replaced})

    def open_in_order(self, at: Position, next_offset: int) -> OrderQueue:
        """The group pops this queue in order for the first time since it was forgotten."""
        queue = self.orders[at] = OrderQueue(at, next_offset)
        return queue

    def order(self, queue: OrderQueue, info: OrderInfo, next_offset: int, place: int) -> None:
        """It stands so with a queue. One without messages in flight needs no record: its offset says all."""
        queue.info, queue.next_offset = info, next_offset
        queue.pop_time, queue.place = max(queue.pop_time, info.pop_time), place if info.left else -1
        if info.left:
            heapq.heappush(self._free, (info.free_ms, queue.at))
            if len(self._free) > 64 + 4 * len(self.orders):
                self._free = [(each.info.free_ms, each.at) for each in self.orders.values() if each.info]
                heapq.heapify(self._free)

    def freed(self, now_ms: int) -> Iterator[Position]:
        """Queues whose messages in flight became visible since the last time, and maybe others."""
        while self._free and self._free[0][0] <= now_ms:
            yield heapq.heappop(self._free)[1]

    def move(self, at: Position, offset: int) -> None:
        """The group goes on elsewhere. Who has messages of a queue that is popped in order holds it up no longer."""
        if (ordered := self.orders.get(at)) is not None:
            ordered.info, ordered.next_offset, ordered.place = None, offset, -1
        queue = self.flights.get(at)
        if queue is None:
            return
        queue.next_offset = offset
        for point in tuple(queue.popped.values()):
            again = [each for each in point.offsets if each >= offset and each in point.left]
            self.flights.settle(point, again, lost=True)

    def forget(self, ats: Sequence[Position]) -> None:
        """Nobody pops these queues any more."""
        self.flights.forget(ats)
        for at in ats:
            self.orders.pop(at, None)

    def in_flight(self, ats: Sequence[Position], from_offset: int = 0) -> Iterator[DroppedDelivery]:
        """Deliveries in flight of these queues, without those of a plain pop before the offset."""
        for at in ats:
            queue, ordered = self.flights.get(at), self.orders.get(at)
            for point in queue.popped.values() if queue else ():
                yield DroppedDelivery(at, point.pop_time, sorted(each for each in point.left if each >= from_offset))
            if ordered is not None and ordered.info is not None:
                yield DroppedDelivery(at, ordered.info.pop_time, ordered.info.left)

    def matching(self, group: str, topic: str, queue_id: int) -> list[Position]:
        """The queues that are popped of a group and a topic, '' for all, and of a queue number, -1 for all."""
        known = dict.fromkeys([*(queue.at for queue in self.flights), *self.orders])
        return [
            at for at in known if group in ("", at.group) and topic in ("", at.topic) and queue_id in (-1, at.queue_id)
        ]

    def oldest(self, end: int) -> int:
        """Where the oldest record stands that counts, ``end`` without one."""
        point = self.flights.oldest(records.REVIVE_QUEUE)
        places = [queue.place for queue in self.orders.values() if queue.place >= 0]
        return min(places + ([] if point is None else [point.place[1]]), default=end)
