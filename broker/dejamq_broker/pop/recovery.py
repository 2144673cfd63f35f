"""A start reads the records of the revive topic again, and those that a RocketMQ left elsewhere in the store."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dejamq_proto import names
from dejamq_proto.loose_json import BAD_JSON
from dejamq_proto.records.record import MAX_PROPERTIES_SIZE, Record
from dejamq_proto.texts import MOST_32, number_of

from dejamq_broker.pop import records
from dejamq_broker.pop.copies import LONGEST_REFERENCE, is_copy, is_retry_of, read_reference
from dejamq_broker.pop.flight import CheckPointName
from dejamq_broker.pop.memory import PopMemory
from dejamq_broker.pop.order import OrderInfo
from dejamq_broker.pop.order_file import OrderFile
from dejamq_broker.pop.records import AckBody, CheckPointBody, FoundRecord, MovedBody, OrderBody
from dejamq_broker.pop.revive_log import ReviveLog
from dejamq_broker.pop.state import PopState
from dejamq_broker.tables.offsets import OffsetTable, Position
from dejamq_broker.tables.topics import TopicTable

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
TIMER = -1
"""In place of the revive queue's number: the record lies in RocketMQ's timer."""


class PopRecovery:
    """Fills the memory, and writes through ``state`` what has to stand elsewhere from now on."""

    def __init__(
        self, state: PopState, memory: PopMemory, log: ReviveLog, store: "MessageStore", topics: TopicTable,
        offsets: OffsetTable, order_file: OrderFile,
    ) -> None:  # fmt: skip
        self._state, self._memory, self._log, self._store = state, memory, log, store
        self._topics, self._offsets, self._order_file = topics, offsets, order_file
        self._flights, self._orders = memory.flights, memory.orders

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
        for queue in self._flights:
            committed = self._offsets.get(queue.at)
            if committed is not None and queue.at not in moved:
                queue.next_offset = max(queue.next_offset, committed)
            if queue.at not in self._orders:
                self._state.commit(queue.at, queue.next_offset)
        for ordered in self._orders.values():
            self._state.commit(ordered.at, ordered.next_offset)
        self._take_over_orders()
        if log_begin is not None and (len(self._flights) or any(ordered.info for ordered in self._orders.values())):
            for copied in self._copies_after(log_begin):
                self._copied(copied)
        if len(self._flights):
            log.info("pops_recovered check_points=%d", len(self._flights))

    def _take_over(self) -> None:
        """A RocketMQ had this store: what it kept in its other revive queues, and in its timer, is written again here.

        Both are then passed over for ever. A check point that is known is one that was taken over before.
        """
        places = [(self._log.topic, queue_id) for queue_id in range(1, records.REVIVE_QUEUES)]
        places.append((names.TIMER_TOPIC, 0))
        revived_ms = {queue_id: self._revived_ms(queue_id) for queue_id in range(records.REVIVE_QUEUES)}
        for topic, queue_id in places:
            end = self._store.max_offset(topic, queue_id)
            if not end:
                continue
            if topic == self._log.topic:
                found = self._revive_records(queue_id)
            else:  # most that waits there are messages for a time, which are the timer's
                found = self._log.read(topic, 0, self._taken(), holding=self._log.topic.encode())
            for record in found:
                self._replay_foreign(record, revived_ms)
            at = Position(names.REVIVE_GROUP, topic, queue_id)
            if self._offsets.get(at) != end - 1:
                self._offsets.commit(at, end - 1, by="revive")
        for queue in self._flights:
            for point in tuple(queue.popped.values()):
                if point.place[0] != records.REVIVE_QUEUE:
                    self._state.put_again(point)

    def _take_over_orders(self) -> None:
        """Of an older file nothing is taken: the group has gone on since."""
        for at, info in self._order_file.read().items():
            if at not in self._orders and self._offsets.get(at) == info.next_offset:
                queue = self._memory.open_in_order(at, info.next_offset)
                self._state.ordered(queue, info, info.next_offset, info.pop_time)

    def _replay_foreign(self, record: Record, revived_ms: dict[int, int]) -> None:
        """A record in the timer is on its way to a revive queue; what was due before the last one there is there."""
        properties, place = record.properties, (record.queue_id, record.queue_offset)
        if record.topic == names.TIMER_TOPIC:
            due = number_of(properties.get(names.PROPERTY_TIMER_OUT))
            queue_id = number_of(properties.get(names.PROPERTY_REAL_QUEUE), MOST_32)
            if properties.get(names.PROPERTY_REAL_TOPIC) != self._log.topic or due is None or queue_id is None:
                return
            if due < revived_ms.get(queue_id, 0):
                return
            place = (TIMER, record.queue_offset)
        found = records.read(record)
        if found is None:
            return
        body = found.body
        if isinstance(body, CheckPointBody) and self._flights.find(body.at, body.pop_time) is None:
            self._seen(body, place, found._replace(replaces=None, asked=None))
        elif isinstance(body, AckBody):
            self._acknowledged(body)

    def _revived_ms(self, queue_id: int) -> int:
        """When the newest record of a revive queue was due; 0 without one."""
        end = self._log.end(queue_id)
        record = next(self._log.read(self._log.topic, queue_id, end - 1, most=1), None) if end else None
        return 0 if record is None else number_of(record.properties.get(names.PROPERTY_TIMER_DELIVER)) or 0

    def _taken(self) -> int:
        at = self._offsets.get(Position(names.REVIVE_GROUP, names.TIMER_TOPIC, 0))
        return 0 if at is None else at + 1

    def _revive_records(self, queue_id: int) -> Iterator[Record]:
        """All of them where the offset lies behind the log: a slave's tables may be newer than its log."""
        told = self._offsets.get(Position(names.REVIVE_GROUP, self._log.topic, queue_id))
        begin = 0 if told is None else told + 1
        return self._log.read(self._log.topic, queue_id, begin if begin <= self._log.end(queue_id) else 0)

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
                self._memory.forget(self._memory.matching(body.group, body.topic, body.queue_id))
            case MovedBody():
                at = Position(body.group, body.topic, body.queue_id)
                moved.add(at)
                self._flights.get(at) or self._flights.open(at, body.offset)
                self._memory.move(at, body.offset)
            case OrderBody():
                self._seen_in_order(body, record.queue_offset, found.keeper_in_order())

    def _acknowledged(self, body: AckBody) -> None:
        point = self._flights.find(body.at, body.pop_time)
        if point is not None:
            self._flights.settle(point, body.offsets if body.offset < 0 else [body.offset])

    def _seen_in_order(self, body: OrderBody, place: int, kept: tuple[str, frozenset[int]]) -> None:
        try:
            info = OrderInfo.read(bytes(body.entry))
        except BAD_JSON as error:
            log.warning("order_not_read %s: %s", body.at, error)
            return
        if info is not None:
            queue = self._orders.get(body.at) or self._memory.open_in_order(body.at, body.next_offset)
            self._memory.order(queue, info, body.next_offset, place)
            queue.kept = kept

    def _seen(self, body: CheckPointBody, place: tuple[int, int], found: FoundRecord) -> None:
        """One with the same name as an earlier one takes its place, as in RocketMQ."""
        at, offsets, left = body.at, body.offsets(), body.unacknowledged()
        replaces, keeper = found.replaces, found.keeper()
        queue = self._flights.get(at) or self._flights.open(at, 0)
        if offsets:
            queue.next_offset = max(queue.next_offset, offsets[-1] + 1)
        earlier = self._flights.find(at, replaces.pop_time if replaces else body.pop_time)
        if earlier is None and replaces is not None:
            earlier = self._flights.remember(at, replaces.start_offset, replaces.pop_time, offsets)
        if earlier is not None:
            self._flights.settle(earlier, offsets if replaces else tuple(earlier.left))
        if left:
            new = self._memory.added(
                at, left, body.pop_time, body.invisible_ms, place, start=body.start_offset, keeper=keeper
            )
            new.asked = found.asked or replaces
            if earlier is not None:  # handles of before may lead to it
                if replaces is None:
                    new.go_on(earlier.replaced)
                earlier.go_on(dict.fromkeys(left, new))
            first = None if keeper is None else CheckPointName(keeper.start_offset, keeper.pop_time)
            for named in (first, new.asked):
                self._memory.continued(at, named, new)

    def _copies_after(self, log_offset: int) -> Iterator[Record]:
        """Retries and dead letters that lie behind this place in the log, by the topics that hold such."""
        for config in tuple(self._topics):
            if names.is_internal(config.topic_name):
                for queue_id in range(config.queues):
                    yield from self._newest(config.topic_name, queue_id, log_offset)

    def _newest(self, topic: str, queue_id: int, log_offset: int) -> Iterator[Record]:
        at = self._store.max_offset(topic, queue_id) - 1
        while at >= self._store.min_offset(topic, queue_id):
            record = next(self._log.read(topic, queue_id, at, most=1), None)
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
        point, ordered = self._flights.find(at, pop_time), self._orders.get(at)
        if point is not None and offset in point.left:
            self._state.done(point, [offset])
        elif ordered is None or ordered.info is None or ordered.info.pop_time != pop_time:
            return
        elif offset in ordered.info.left:
            ordered.info.done.add(offset)
            self._state.ordered(ordered, ordered.info, ordered.info.next_offset, pop_time)

    def _original_of(self, copied: Record) -> tuple[Position, int, int] | None:
        """The delivery in flight that a copy without a reference was made of: its properties left no space for one."""
        if len(copied.raw_properties) + LONGEST_REFERENCE < MAX_PROPERTIES_SIZE:
            return None
        for at, pop_time, offsets in self._memory.in_flight(self._memory.matching("", "", -1)):
            if copied.topic in (at.topic, names.dlq_topic(at.group)) or is_retry_of(copied.topic, at):
                for offset in offsets:
                    original = next(self._log.read(at.topic, at.queue_id, offset, most=1), None)
                    if original is not None and is_copy(copied, original):
                        return at, offset, pop_time
        return None
