"""Every change of what is popped: a record of the revive topic first, and the memory follows in the same step.

A check point, an acknowledgement or a mark is appended. So a crash between two records leaves what the records say.
"""

from collections.abc import Iterator, Sequence

from dejamq_proto import names
from dejamq_proto.codes import DejamqError
from dejamq_proto.records.record import Record

from dejamq_broker.base.identity import Site
from dejamq_broker.pop import records
from dejamq_broker.pop.flight import CheckPoint, CheckPointName, Keeper, PopQueue
from dejamq_broker.pop.memory import DroppedDelivery, PopMemory
from dejamq_broker.pop.order import OrderInfo, OrderQueue
from dejamq_broker.pop.order_file import OrderFile
from dejamq_broker.pop.revive_log import ReviveLog
from dejamq_broker.tables.offsets import OffsetTable, Position

MOST_BEHIND = 50_000
"""Records of the revive topic behind the oldest that counts. More are a longer start, so that one is written again."""


class PopState:
    """Owned by the event loop. ``flights`` and ``orders`` are for reading; the methods change them."""

    def __init__(
        self, memory: PopMemory, log: ReviveLog, site: Site, offsets: OffsetTable, order_file: OrderFile
    ) -> None:
        self._memory, self._log, self._site = memory, log, site
        self._offsets, self._order_file = offsets, order_file
        self.flights, self.orders = memory.flights, memory.orders
        self.open_in_order, self.freed = memory.open_in_order, memory.freed

    def open(self, at: Position, next_offset: int) -> PopQueue:
        """The group pops this queue for the first time since it was forgotten."""
        return self.flights.open(at, next_offset)

    def popped(
        self, queue: PopQueue, parts: Sequence[Sequence[int]], next_offset: int, pop_time: int, invisible_ms: int,
        keeper: str = "",
    ) -> list[CheckPoint]:  # fmt: skip
        """Messages of the queue are given away, and the next ones are looked for at ``next_offset``.

        They are kept for the client ``keeper``, if one is named.
        Each part is a check point, 1 ms after the one before. Raises what the store raises; then nothing has changed.
        Where it took some of the check points, these count, and the queue goes on behind them.
        """
        points, writing = list[CheckPoint](), self._log.writing
        times = [(pop_time + number, max(0, invisible_ms - number)) for number in range(len(parts))]
        keepers = [
            Keeper(keeper, 0, offsets[0], popped) if keeper else None
            for offsets, (popped, _) in zip(parts, times, strict=True)
        ]
        made = [
            records.check_point(writing, queue.at, offsets, *each, keeper=kept)
            for offsets, each, kept in zip(parts, times, keepers, strict=True)
        ]
        try:
            for offsets, each, kept, place in zip(parts, times, keepers, self._log.put_each(made), strict=True):
                points.append(self._memory.added(queue.at, offsets, *each, place, keeper=kept))
        except DejamqError:
            if not points:
                raise
            next_offset = points[-1].offsets[-1] + 1
        self.advance(queue, next_offset)
        return points

    def advance(self, queue: PopQueue, next_offset: int) -> None:
        """Everything before was given away, or nobody of the group wants it."""
        queue.next_offset = next_offset
        self.commit(queue.at, next_offset)

    def done(self, point: CheckPoint, offsets: Sequence[int], *, lost: bool = False) -> None:
        """Messages in flight are done. Raises what the store raises; then nothing has changed.

        ``lost``: not by their consumer, for whom it is too late.
        """
        self._put_ack(point, offsets)
        self.flights.settle(point, offsets, lost=lost)

    def done_each(
        self, every: Sequence[tuple[CheckPoint, list[int]]]
    ) -> Iterator[tuple[CheckPoint, list[int]]]:  # fmt: skip
        """As ``done``, of several deliveries; each comes when it is done. Raises what the store raises."""
        made = [self._ack_record(point, offsets) for point, offsets in every]
        for (point, offsets), _ in zip(every, self._log.put_each(made), strict=True):
            self.flights.settle(point, offsets)
            yield point, offsets

    def changed(
        self, point: CheckPoint, offset: int, now_ms: int, invisible_ms: int, asked: CheckPointName,
        keeper: Keeper | None = None,
    ) -> CheckPoint:  # fmt: skip
        """A message in flight is so for another time. Raises what the store raises; then nothing has changed.

        ``asked``: the delivery by whose handle the consumer asked. It is another one where answers were lost, or the
        broker had renewed the message.
        The new check point says what it replaces, so it alone is the whole change. The acknowledgement beside it is
        for a RocketMQ that reads the records.
        """
        queue = self.flights.get(point.at)
        assert queue is not None
        pop_time, asked_ms = max(now_ms, queue.pop_time + 1), invisible_ms
        invisible_ms = max(0, now_ms + invisible_ms - pop_time)  # pop times may run ahead of the clock
        record = records.check_point(
            self._log.writing, point.at, [offset], pop_time, invisible_ms, replaces=point.name, asked=asked,
            keeper=keeper,
        )  # fmt: skip
        place = self._log.put(record)
        self.flights.settle(point, [offset])
        new = self._memory.added(point.at, [offset], pop_time, invisible_ms, place, keeper=keeper)
        new.asked_ms, new.asked = asked_ms, asked
        point.replaced[offset] = new
        if asked != point.name:
            self._memory.continued(point.at, asked, new)
        self._put_ack(point, [offset])
        return new

    def ordered(
        self, queue: OrderQueue, info: OrderInfo, next_offset: int, now_ms: int,
        kept: tuple[str, frozenset[int]] | None = None,
    ) -> None:  # fmt: skip
        """It stands otherwise with a queue. Raises what the store raises; then nothing has changed.

        ``kept``: for whom messages are kept, and which; as before where it is not said.
        """
        client_id, offsets = queue.kept if kept is None else kept
        kept = client_id, offsets.intersection(info.left)
        record = records.order(self._log.writing, now_ms, queue.at, next_offset, info.encode(now_ms), kept)
        _, place = self._log.put(record)
        queue.kept = kept
        self._memory.order(queue, info, next_offset, place)
        self.commit(queue.at, next_offset)

    def advance_in_order(self, queue: OrderQueue, next_offset: int) -> None:
        """Nobody of the group wants what stands before."""
        queue.info, queue.next_offset, queue.place = None, next_offset, -1
        self.commit(queue.at, next_offset)

    def moved(self, at: Position, offset: int, now_ms: int) -> list[DroppedDelivery]:
        """The group goes on elsewhere. Messages in flight from there on are forgotten, as they come again: those.

        Of a queue that is popped in order all are.
        """
        if self.flights.get(at) is None and at not in self.orders:
            return []
        dropped = [one for one in self._memory.in_flight([at], offset) if one.offsets]
        self._log.put(records.moved(self._log.writing, now_ms, *at, offset))
        self._memory.move(at, offset)
        return dropped

    def forget(self, group: str, topic: str, now_ms: int) -> list[DroppedDelivery]:
        """The group or the topic was deleted, '' for all of them. What was in flight."""
        ats = self._memory.matching(group, topic, -1)
        if not ats:
            return []
        dropped = [one for one in self._memory.in_flight(ats) if one.offsets]
        self._log.put(records.moved(self._log.writing, now_ms, group, topic, -1, -1))
        self._memory.forget(ats)
        return dropped

    async def tidy(self) -> None:
        """Tell how far the records count no more, and write the oldest again where that is far behind.

        A slave has read none of them, and takes its master's word.
        """
        if not self._site.master:
            return
        self._tell_how_far()
        await self._order_file.write(tuple(self.orders.values()))

    def _tell_how_far(self) -> None:
        end = self._log.end(records.REVIVE_QUEUE)
        place = self._memory.oldest(end)
        if end - place > MOST_BEHIND:
            self._write_again(place)
            place = self._memory.oldest(end)
        at = Position(names.REVIVE_GROUP, self._log.topic, records.REVIVE_QUEUE)
        if place > 0 and self._offsets.get(at) != place - 1:
            self._offsets.commit(at, place - 1, by="revive")

    def _write_again(self, place: int) -> None:
        point = self.flights.oldest(records.REVIVE_QUEUE)
        if point is not None and point.place[1] == place:
            self.put_again(point)
        for queue in self.orders.values():
            if queue.place == place and queue.info is not None:
                self.ordered(queue, queue.info, queue.next_offset, queue.info.pop_time)

    def put_again(self, point: CheckPoint) -> None:
        """Write what is left of it behind all other records."""
        record = records.check_point(
            self._log.writing, point.at, sorted(point.left), point.pop_time, point.invisible_ms,
            start=point.start_offset, asked=point.asked, keeper=point.keeper,
        )  # fmt: skip
        self.flights.move_record(point, self._log.put(record))

    def commit(self, at: Position, offset: int) -> None:
        """The group is so far in a queue. A reset of the queue was obeyed when it was made, so it waits for nobody."""
        self._offsets.take_reset(at)
        if self._offsets.get(at) != offset:
            self._offsets.commit(at, offset, by="pop")

    def _put_ack(self, point: CheckPoint, offsets: Sequence[int]) -> None:
        self._log.put(self._ack_record(point, offsets))

    def _ack_record(self, point: CheckPoint, offsets: Sequence[int]) -> Record:
        return records.ack(self._log.writing, point.at, point.start_offset, offsets, point.pop_time, point.invisible_ms)
