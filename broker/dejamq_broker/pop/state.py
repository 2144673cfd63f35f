"""What the revive topic says, kept in memory: every change is a record first, and a start reads the records again.

A check point, an acknowledgement or a mark is appended, and then the memory follows in the same step. So a crash
between two records leaves what the records say.
"""

import heapq
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dejamq_proto import names
from dejamq_proto.codes import DejamqError
from dejamq_proto.loose_json import BAD_JSON
from dejamq_proto.records.record import MAX_PROPERTIES_SIZE, BadRecord, Record, decode
from dejamq_proto.texts import MOST_32, number_of

from dejamq_broker.pop import records
from dejamq_broker.pop.flight import CheckPoint, CheckPointName, Flights, Keeper, PopQueue
from dejamq_broker.pop.order import OrderInfo, OrderQueue
from dejamq_broker.pop.order_file import OrderFile
from dejamq_broker.pop.records import AckBody, CheckPointBody, FoundRecord, MovedBody, OrderBody, Writing
from dejamq_broker.tables.offsets import OffsetTable, Position
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
TIMER = -1
"""In place of the revive queue's number: the record lies in RocketMQ's timer."""
ORIGIN = RecordOrigin("pop")
READ_MESSAGES, READ_BYTES = 1024, 1 << 20
LONGEST_REFERENCE = 1024
"""Bytes of properties that ``reference`` takes at most, its name included."""
MOST_BEHIND = 50_000
"""Records of the revive topic behind the oldest that counts. More are a longer start, so that one is written again."""


class DroppedDelivery(NamedTuple):
    """Messages of one delivery that are in flight no more, though nobody acknowledged them and no copy was stored."""

    at: Position
    pop_time: int
    offsets: list[int]


class PopState:
    """Owned by the event loop. ``flights`` and ``orders`` are for reading; the methods change them."""

    def __init__(
        self, store: "MessageStore", writer: RecordWriter, topics: TopicTable, offsets: OffsetTable, cluster: str,
        order_file: OrderFile,
    ) -> None:  # fmt: skip
        self._store, self._writer, self._topics, self._offsets = store, writer, topics, offsets
        self.topic, self._order_file = names.revive_topic(cluster), order_file
        self.flights = Flights()
        self.orders: dict[Position, OrderQueue] = {}
        self._free: list[tuple[int, Position]] = []

    # changes

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
        points, writing = list[CheckPoint](), self._writing
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
            for offsets, each, kept, place in zip(parts, times, keepers, self._put_each(made), strict=True):
                points.append(self._added(queue.at, offsets, *each, place, keeper=kept))
        except DejamqError:
            if not points:
                raise
            next_offset = points[-1].offsets[-1] + 1
        self.advance(queue, next_offset)
        return points

    def advance(self, queue: PopQueue, next_offset: int) -> None:
        """Everything before was given away, or nobody of the group wants it."""
        queue.next_offset = next_offset
        self._commit(queue.at, next_offset)

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
        for (point, offsets), _ in zip(every, self._put_each(made), strict=True):
            self.flights.settle(point, offsets)
            yield point, offsets

    def changed(
        self, point: CheckPoint, offset: int, now_ms: int, invisible_ms: int, asked: CheckPoint,
        keeper: Keeper | None = None,
    ) -> CheckPoint:  # fmt: skip
        """A message in flight is so for another time. Raises what the store raises; then nothing has changed.

        ``asked``: the delivery by whose handle the consumer asked. It is another one where answers were lost.
        The new check point says what it replaces, so it alone is the whole change. The acknowledgement beside it is
        for a RocketMQ that reads the records.
        """
        queue = self.flights.get(point.at)
        assert queue is not None
        pop_time, asked_ms = max(now_ms, queue.pop_time + 1), invisible_ms
        invisible_ms = max(0, now_ms + invisible_ms - pop_time)  # pop times may run ahead of the clock
        record = records.check_point(
            self._writing, point.at, [offset], pop_time, invisible_ms, replaces=point.name, asked=asked.name,
            keeper=keeper,
        )  # fmt: skip
        place = self._put(record)
        self.flights.settle(point, [offset])
        new = self._added(point.at, [offset], pop_time, invisible_ms, place, keeper=keeper)
        new.asked_ms, new.asked = asked_ms, asked.name
        point.replaced[offset] = new
        self._put_ack(point, [offset])
        return new

    def open_in_order(self, at: Position, next_offset: int) -> OrderQueue:
        """The group pops this queue in order for the first time since it was forgotten."""
        queue = self.orders[at] = OrderQueue(at, next_offset)
        return queue

    def ordered(
        self, queue: OrderQueue, info: OrderInfo, next_offset: int, now_ms: int,
        kept: tuple[str, frozenset[int]] | None = None,
    ) -> None:  # fmt: skip
        """It stands otherwise with a queue. Raises what the store raises; then nothing has changed.

        ``kept``: for whom messages are kept, and which; as before where it is not said.
        """
        client_id, offsets = queue.kept if kept is None else kept
        kept = client_id, offsets.intersection(info.left)
        record = records.order(self._writing, now_ms, queue.at, next_offset, info.encode(now_ms), kept)
        _, place = self._put(record)
        queue.kept = kept
        self._order(queue, info, next_offset, place)
        self._commit(queue.at, next_offset)

    def advance_in_order(self, queue: OrderQueue, next_offset: int) -> None:
        """Nobody of the group wants what stands before."""
        queue.info, queue.next_offset, queue.place = None, next_offset, -1
        self._commit(queue.at, next_offset)

    def freed(self, now_ms: int) -> Iterator[Position]:
        """Queues whose messages in flight became visible since the last time, and maybe others."""
        while self._free and self._free[0][0] <= now_ms:
            yield heapq.heappop(self._free)[1]

    def moved(self, at: Position, offset: int, now_ms: int) -> list[DroppedDelivery]:
        """The group goes on elsewhere. Messages in flight from there on are forgotten, as they come again: those.

        Of a queue that is popped in order all are.
        """
        if self.flights.get(at) is None and at not in self.orders:
            return []
        dropped = [one for one in self._of([at], offset) if one.offsets]
        self._put(records.moved(self._writing, now_ms, *at, offset))
        self._move(at, offset)
        return dropped

    def forget(self, group: str, topic: str, now_ms: int) -> list[DroppedDelivery]:
        """The group or the topic was deleted, '' for all of them. What was in flight."""
        ats = self._matching(group, topic, -1)
        if not ats:
            return []
        dropped = [one for one in self._of(ats) if one.offsets]
        self._put(records.moved(self._writing, now_ms, group, topic, -1, -1))
        self._forget(ats)
        return dropped

    def _of(self, ats: Sequence[Position], from_offset: int = 0) -> Iterator[DroppedDelivery]:
        """Deliveries in flight of these queues, without those of a plain pop before the offset."""
        for at in ats:
            queue, ordered = self.flights.get(at), self.orders.get(at)
            for point in queue.popped.values() if queue else ():
                yield DroppedDelivery(at, point.pop_time, sorted(each for each in point.left if each >= from_offset))
            if ordered is not None and ordered.info is not None:
                yield DroppedDelivery(at, ordered.info.pop_time, ordered.info.left)

    async def tidy(self) -> None:
        """Tell how far the records count no more, and write the oldest again where that is far behind.

        A slave has read none of them, and takes its master's word.
        """
        if not self._writer.site.master:
            return
        self._tell_how_far()
        await self._order_file.write(tuple(self.orders.values()))

    def _tell_how_far(self) -> None:
        end = self._store.max_offset(self.topic, records.REVIVE_QUEUE)
        place = self._oldest(end)
        if end - place > MOST_BEHIND:
            self._write_again(place)
            place = self._oldest(end)
        at = Position(names.REVIVE_GROUP, self.topic, records.REVIVE_QUEUE)
        if place > 0 and self._offsets.get(at) != place - 1:
            self._offsets.commit(at, place - 1, by="revive")

    def _oldest(self, end: int) -> int:
        """Where the oldest record stands that counts, ``end`` without one."""
        point = self.flights.oldest(records.REVIVE_QUEUE)
        places = [queue.place for queue in self.orders.values() if queue.place >= 0]
        return min(places + ([] if point is None else [point.place[1]]), default=end)

    def _write_again(self, place: int) -> None:
        point = self.flights.oldest(records.REVIVE_QUEUE)
        if point is not None and point.place[1] == place:
            self._put_again(point)
        for queue in self.orders.values():
            if queue.place == place and queue.info is not None:
                self.ordered(queue, queue.info, queue.next_offset, queue.info.pop_time)

    # the start

    def recover(self) -> None:
        """Read the records that count. A copy that was stored behind the first of them is the last word on its message.

        A record of another queue may stand behind a copy whose own record a crash, or a full disk, took.
        """
        moved: set[Position] = set()
        log_begin: int | None = None
        for record in self._revive_records(records.REVIVE_QUEUE):
            self._replay(record, moved)
            log_begin = record.log_offset if log_begin is None else log_begin
        self._take_over()
        for queue in self.flights:
            committed = self._offsets.get(queue.at)
            if committed is not None and queue.at not in moved:
                queue.next_offset = max(queue.next_offset, committed)
            if queue.at not in self.orders:
                self._commit(queue.at, queue.next_offset)
        for ordered in self.orders.values():
            self._commit(ordered.at, ordered.next_offset)
        self._take_over_orders()
        if log_begin is not None and (len(self.flights) or any(ordered.info for ordered in self.orders.values())):
            for copied in self._copies_after(log_begin):
                self._copied(copied)
        if len(self.flights):
            log.info("pops_recovered check_points=%d", len(self.flights))

    def _take_over(self) -> None:
        """A RocketMQ had this store: what it kept in its other revive queues, and in its timer, is written again here.

        Both are then passed over for ever. A check point that is known is one that was taken over before.
        """
        places = [(self.topic, queue_id) for queue_id in range(1, records.REVIVE_QUEUES)] + [(names.TIMER_TOPIC, 0)]
        revived_ms = {queue_id: self._revived_ms(queue_id) for queue_id in range(records.REVIVE_QUEUES)}
        for topic, queue_id in places:
            end = self._store.max_offset(topic, queue_id)
            if not end:
                continue
            if topic == self.topic:
                found = self._revive_records(queue_id)
            else:  # most that waits there are messages for a time, which are the timer's
                found = self._records(topic, 0, self._taken(), holding=self.topic.encode())
            for record in found:
                self._replay_foreign(record, revived_ms)
            at = Position(names.REVIVE_GROUP, topic, queue_id)
            if self._offsets.get(at) != end - 1:
                self._offsets.commit(at, end - 1, by="revive")
        for queue in self.flights:
            for point in tuple(queue.popped.values()):
                if point.place[0] != records.REVIVE_QUEUE:
                    self._put_again(point)

    def _take_over_orders(self) -> None:
        """Of an older file nothing is taken: the group has gone on since."""
        for at, info in self._order_file.read().items():
            if at not in self.orders and self._offsets.get(at) == info.next_offset:
                self.ordered(self.open_in_order(at, info.next_offset), info, info.next_offset, info.pop_time)

    def _put_again(self, point: CheckPoint) -> None:
        """What is left of it, behind all other records."""
        record = records.check_point(
            self._writing, point.at, sorted(point.left), point.pop_time, point.invisible_ms, start=point.start_offset,
            asked=point.asked, keeper=point.keeper,
        )  # fmt: skip
        self.flights.move_record(point, self._put(record))

    def _replay_foreign(self, record: Record, revived_ms: dict[int, int]) -> None:
        """A record in the timer is on its way to a revive queue; what was due before the last one there is there."""
        properties, place = record.properties, (record.queue_id, record.queue_offset)
        if record.topic == names.TIMER_TOPIC:
            due = number_of(properties.get(names.PROPERTY_TIMER_OUT))
            queue_id = number_of(properties.get(names.PROPERTY_REAL_QUEUE), MOST_32)
            if properties.get(names.PROPERTY_REAL_TOPIC) != self.topic or due is None or queue_id is None:
                return
            if due < revived_ms.get(queue_id, 0):
                return
            place = (TIMER, record.queue_offset)
        found = records.read(record)
        if found is None:
            return
        body = found.body
        if isinstance(body, CheckPointBody) and self.flights.find(body.at, body.pop_time) is None:
            self._seen(body, place, found._replace(replaces=None, asked=None))
        elif isinstance(body, AckBody):
            self._acknowledged(body)

    def _revived_ms(self, queue_id: int) -> int:
        """When the newest record of a revive queue was due; 0 without one."""
        end = self._store.max_offset(self.topic, queue_id)
        record = next(self._records(self.topic, queue_id, end - 1, most=1), None) if end else None
        return 0 if record is None else number_of(record.properties.get(names.PROPERTY_TIMER_DELIVER)) or 0

    def _taken(self) -> int:
        at = self._offsets.get(Position(names.REVIVE_GROUP, names.TIMER_TOPIC, 0))
        return 0 if at is None else at + 1

    def _revive_records(self, queue_id: int) -> Iterator[Record]:
        """All of them where the offset lies behind the log: a slave's tables may be newer than its log."""
        told = self._offsets.get(Position(names.REVIVE_GROUP, self.topic, queue_id))
        begin = 0 if told is None else told + 1
        return self._records(
            self.topic, queue_id, begin if begin <= self._store.max_offset(self.topic, queue_id) else 0
        )

    def _replay(self, record: Record, moved: set[Position]) -> None:
        found = records.read(record)
        if found is None:
            return
        body = found.body
        match body:
            case CheckPointBody():
                self._seen(body, (record.queue_id, record.queue_offset), found)
            case AckBody():
                self._acknowledged(body)
            case MovedBody(offset=offset) if offset < 0:
                self._forget(self._matching(body.group, body.topic, body.queue_id))
            case MovedBody():
                at = Position(body.group, body.topic, body.queue_id)
                moved.add(at)
                self.flights.get(at) or self.flights.open(at, body.offset)
                self._move(at, body.offset)
            case OrderBody():
                self._seen_in_order(body, record.queue_offset, found.keeper_in_order())

    def _acknowledged(self, body: AckBody) -> None:
        point = self.flights.find(body.at, body.pop_time)
        if point is not None:
            self.flights.settle(point, body.offsets if body.offset < 0 else [body.offset])

    def _seen_in_order(self, body: OrderBody, place: int, kept: tuple[str, frozenset[int]]) -> None:
        try:
            info = OrderInfo.read(bytes(body.entry))
        except BAD_JSON as error:
            log.warning("order_not_read %s: %s", body.at, error)
            return
        if info is not None:
            queue = self.orders.get(body.at) or self.open_in_order(body.at, body.next_offset)
            self._order(queue, info, body.next_offset, place)
            queue.kept = kept

    def _seen(self, body: CheckPointBody, place: tuple[int, int], found: FoundRecord) -> None:
        """One with the same name as an earlier one takes its place, as in RocketMQ."""
        at, offsets, left = body.at, body.offsets(), body.unacknowledged()
        replaces, keeper = found.replaces, found.keeper()
        queue = self.flights.get(at) or self.flights.open(at, 0)
        if offsets:
            queue.next_offset = max(queue.next_offset, offsets[-1] + 1)
        earlier = self.flights.find(at, replaces.pop_time if replaces else body.pop_time)
        if earlier is None and replaces is not None:
            earlier = self.flights.remember(at, replaces.start_offset, replaces.pop_time, offsets)
        if earlier is not None:
            self.flights.settle(earlier, offsets if replaces else tuple(earlier.left))
        if left:
            new = self._added(at, left, body.pop_time, body.invisible_ms, place, start=body.start_offset, keeper=keeper)
            new.asked = found.asked or replaces
            if earlier is not None:  # handles of before may lead to it
                if replaces is None:
                    new.go_on(earlier.replaced)
                earlier.go_on(dict.fromkeys(left, new))
            first = None if keeper is None else CheckPointName(keeper.start_offset, keeper.pop_time)
            for named in (first, new.asked):
                self._continued(at, named, new)

    def _continued(self, at: Position, named: CheckPointName | None, new: CheckPoint) -> None:
        """Whoever has the handle of this delivery has the messages, too; the records between may be read no more."""
        if named is None or named == new.name:
            return
        over = self.flights.find(at, named.pop_time) or self.flights.remember(at, *named, ())
        over.go_on({offset: new for offset in new.offsets if offset not in over.replaced})

    def _copies_after(self, log_offset: int) -> Iterator[Record]:
        """Retries and dead letters that lie behind this place in the log, by the topics that hold such."""
        for config in tuple(self._topics):
            if names.is_internal(config.topic_name):
                for queue_id in range(config.queues):
                    yield from self._newest(config.topic_name, queue_id, log_offset)

    def _newest(self, topic: str, queue_id: int, log_offset: int) -> Iterator[Record]:
        at = self._store.max_offset(topic, queue_id) - 1
        while at >= self._store.min_offset(topic, queue_id):
            record = next(self._records(topic, queue_id, at, most=1), None)
            if record is None or record.log_offset <= log_offset:
                return
            yield record
            at -= 1

    def _copied(self, copied: Record) -> None:
        """The copy is stored, and a crash took the acknowledgement that follows it."""
        place = read_reference(copied) or self._original_of(copied)
        if place is None:
            return
        at, offset, pop_time = place
        point, ordered = self.flights.find(at, pop_time), self.orders.get(at)
        if point is not None and offset in point.left:
            self.done(point, [offset])
        elif ordered is None or ordered.info is None or ordered.info.pop_time != pop_time:
            return
        elif offset in ordered.info.left:
            ordered.info.done.add(offset)
            self.ordered(ordered, ordered.info, ordered.info.next_offset, pop_time)

    def _original_of(self, copied: Record) -> tuple[Position, int, int] | None:
        """The delivery in flight that a copy without a reference was made of: its properties left no space for one."""
        if len(copied.raw_properties) + LONGEST_REFERENCE < MAX_PROPERTIES_SIZE:
            return None
        for at, pop_time, offsets in self._of([*dict.fromkeys([*(queue.at for queue in self.flights), *self.orders])]):
            if copied.topic in (at.topic, names.dlq_topic(at.group)) or is_retry_of(copied.topic, at):
                for offset in offsets:
                    original = next(self._records(at.topic, at.queue_id, offset, most=1), None)
                    if original is not None and _is_copy(copied, original):
                        return at, offset, pop_time
        return None

    def _records(
        self, topic: str, queue_id: int, at: int, most: int = READ_MESSAGES, *, holding: bytes = b""
    ) -> Iterator[Record]:
        """What is in a queue from an offset on; all of it, unless ``most`` is 1.

        Pieces of the queue without the bytes ``holding`` are passed over unread.
        """
        end = self._store.max_offset(topic, queue_id) if most > 1 else at + 1
        while at < end:
            found = self._store.read(topic, queue_id, at, max_messages=most, max_bytes=READ_BYTES)
            data, begin = found.records, 0
            for size in found.sizes if holding in data else ():
                try:
                    yield decode(data, begin)
                except BadRecord as error:
                    log.warning("revive_record_damaged topic=%s queue=%d near=%d: %s", topic, queue_id, at, error)
                begin += size
            at = max(at + 1, found.next_offset)

    # parts

    @property
    def _writing(self) -> Writing:
        return Writing(self.topic, self._writer.site.broker_name, self._writer.site.store_host)

    def _put(self, record: Record) -> tuple[int, int]:
        (place,) = self._put_each([record])
        return place

    def _put_each(self, made: Sequence[Record]) -> Iterator[tuple[int, int]]:
        """Store records of the revive topic, in one piece where that can be: the place of each."""
        if not made:
            return
        self._topics.ensure(self.topic, records.REVIVE_QUEUES)
        together = self._writer.put_all(made, ORIGIN.kind)
        if together is not None:
            yield from ((records.REVIVE_QUEUE, offset) for offset in together)
            return
        for record in made:
            yield record.queue_id, int(self._writer.put(record, ORIGIN).queue_offsets[0])

    def _put_ack(self, point: CheckPoint, offsets: Sequence[int]) -> None:
        self._put(self._ack_record(point, offsets))

    def _ack_record(self, point: CheckPoint, offsets: Sequence[int]) -> Record:
        return records.ack(self._writing, point.at, point.start_offset, offsets, point.pop_time, point.invisible_ms)

    def _added(
        self, at: Position, offsets: Sequence[int], pop_time: int, invisible_ms: int, place: tuple[int, int], *,
        start: int | None = None, keeper: Keeper | None = None,
    ) -> CheckPoint:  # fmt: skip
        point = CheckPoint(
            at, offsets[0] if start is None else start, pop_time, invisible_ms, tuple(offsets), place, set(offsets),
            keeper=keeper,
        )  # fmt: skip
        self.flights.add(point)
        return point

    def _order(self, queue: OrderQueue, info: OrderInfo, next_offset: int, place: int) -> None:
        """A queue without messages in flight needs no record: its offset says all."""
        queue.info, queue.next_offset = info, next_offset
        queue.pop_time, queue.place = max(queue.pop_time, info.pop_time), place if info.left else -1
        if info.left:
            heapq.heappush(self._free, (info.free_ms, queue.at))
            if len(self._free) > 64 + 4 * len(self.orders):
                self._free = [(each.info.free_ms, each.at) for each in self.orders.values() if each.info]
                heapq.heapify(self._free)

    def _commit(self, at: Position, offset: int) -> None:
        """A reset of the queue was obeyed when it was made, so it waits for nobody."""
        self._offsets.take_reset(at)
        if self._offsets.get(at) != offset:
            self._offsets.commit(at, offset, by="pop")

    def _forget(self, ats: Sequence[Position]) -> None:
        self.flights.forget(ats)
        for at in ats:
            self.orders.pop(at, None)

    def _move(self, at: Position, offset: int) -> None:
        """Whoever has messages of a queue that is popped in order holds it up no longer."""
        if (ordered := self.orders.get(at)) is not None:
            ordered.info, ordered.next_offset, ordered.place = None, offset, -1
        queue = self.flights.get(at)
        if queue is None:
            return
        queue.next_offset = offset
        for point in tuple(queue.popped.values()):
            again = [each for each in point.offsets if each >= offset and each in point.left]
            self.flights.settle(point, again, lost=True)

    def _matching(self, group: str, topic: str, queue_id: int) -> list[Position]:
        known = dict.fromkeys([*(queue.at for queue in self.flights), *self.orders])
        return [
            at for at in known if group in ("", at.group) and topic in ("", at.topic) and queue_id in (-1, at.queue_id)
        ]


def reference(at: Position, offset: int, pop_time: int) -> str:
    """Names one delivery, in a property of the copy that was made of it."""
    return f"{at.topic} {at.queue_id} {offset} {pop_time} {at.group}"


def is_retry_of(topic: str, at: Position) -> bool:
    """Whether the topic is where the group gets what it did not acknowledge of this queue; both forms of its name."""
    return topic in (names.pop_retry_topic(at.group, at.topic, v2=v2) for v2 in (False, True))


def _is_copy(copied: Record, original: Record) -> bool:
    """Of two messages that are alike it does not matter which one it is."""
    same = (copied.body, copied.born_timestamp_ms) == (original.body, original.born_timestamp_ms)
    key = names.PROPERTY_UNIQUE_KEY
    same &= copied.properties.get(key) == original.properties.get(key)
    return same and copied.reconsume_times == original.reconsume_times + 1


def read_reference(copied: Record) -> tuple[Position, int, int] | None:
    """The queue, the offset and the pop time that a copy names."""
    fields = copied.properties.get(names.PROPERTY_POP_REF, "").split(" ")
    if len(fields) != 5:
        return None
    queue_id, queue_offset, pop_time = number_of(fields[1], MOST_32), number_of(fields[2]), number_of(fields[3])
    if queue_id is None or queue_offset is None or pop_time is None:
        return None
    return Position(fields[4], fields[0], queue_id), queue_offset, pop_time
