"""Pop: who is given which messages, for how long, and what becomes of them. The doors translate, this decides.

Source: RocketMQ ``PopMessageProcessor``, ``AckMessageProcessor``, ``ChangeInvisibleTimeProcessor``. An acknowledgement
that could not be stored is an error here, where RocketMQ says that all is well (cause B7). A handle whose message was
given away again, or was revived, is refused with NO_MESSAGE.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import FIXED

from dejamq_broker.base.config import PopSettings
from dejamq_broker.base.counts import Counts
from dejamq_broker.base.identity import Site
from dejamq_broker.paths.filtered import Most, read_wanted
from dejamq_broker.paths.rules import PullQuery, PullRules
from dejamq_broker.pop.flight import CheckPoint, CheckPointName, Keeper, PopQueue
from dejamq_broker.pop.handles import NORMAL, ORDER_QUEUE, RETRY_V1, RETRY_V2, Handle, physical_topic
from dejamq_broker.pop.lines import PopLines
from dejamq_broker.pop.order import OrderQueue
from dejamq_broker.pop.ordered import OrderedPops, stale
from dejamq_broker.pop.query import ANY_QUEUE, MOST_MESSAGES, POINT_MESSAGES, PopAnswer, Popped, PopQuery
from dejamq_broker.pop.records import REVIVE_QUEUE
from dejamq_broker.pop.revive import Reviver
from dejamq_broker.pop.state import PopState
from dejamq_broker.store import ReadResult, ReadStatus
from dejamq_broker.tables.offsets import Asker, OffsetTable, Position
from dejamq_broker.tables.topics import TopicTable, check_queue

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
LONGEST_INVISIBLE_MS = 12 * 3_600_000
RETRY_FIRST_EACH = 5
"""Each fifth pop of a topic looks at its retries first (RocketMQ: a chance of 20 %)."""
STRETCH_BYTES = 1 << 20
MOVES_ON = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_FOUND_NULL,
            ReadStatus.MESSAGE_WAS_REMOVING)  # fmt: skip


class Take(NamedTuple):
    """What one pop may still take of a queue, and its delivery's times."""

    query: PopQuery
    kind: int
    most: int
    room: int
    pop_time: int
    invisible_ms: int


class Pops:
    """Owned by the event loop; it never waits."""

    def __init__(
        self, store: "MessageStore", state: PopState, reviver: Reviver, in_order: OrderedPops, topics: TopicTable,
        offsets: OffsetTable, rules: PullRules, lines: PopLines, site: Site, counts: Counts, settings: PopSettings,
        clock_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._store, self.state, self._reviver, self._in_order = store, state, reviver, in_order
        self._topics, self._offsets, self._rules = topics, offsets, rules
        self._lines, self._site, self._counts, self._settings = lines, site, counts, settings
        self._clock_ms = clock_ms
        self._turns: dict[tuple[str, str], int] = {}
        self._closed = False

    def close(self) -> None:
        """Give nothing away from now on, and take no word on what was given."""
        self._closed = True

    # pop

    def begin(self, query: PopQuery) -> None:
        """Check the request and make its filter. Raises the error that the consumer is to see."""
        self._check_serving()
        if not 1 <= query.max_messages <= MOST_MESSAGES:
            text = f"a pop gives 1 to {MOST_MESSAGES} messages, not {query.max_messages}"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)
        _check_invisible(query.invisible_ms)
        if query.queue_id < ANY_QUEUE:
            raise DejamqError(f"{query.queue_id} is no queue; -1 is any", code=Code.INVALID_PARAMETER)
        pull = PullQuery(
            asker=query.asker, group=query.group, topic=query.topic, queue_id=max(query.queue_id, 0), queue_offset=0,
            expression=query.expression, expression_type=query.expression_type,
        )  # fmt: skip
        self._rules.admit(pull)
        query.tags, query.wanted = pull.tags, pull.wanted

    def pop(self, query: PopQuery) -> PopAnswer:
        """What is there for the group now, maybe nothing. Raises what the store raises, with nothing given away.

        The records of check points are stored before anybody sees the messages.
        """
        self._check_serving()
        batches: list[Popped] = []
        left, room, rest = query.max_messages, query.max_bytes, 0
        queues = self._queues(query)
        now_ms = self._clock_ms()
        pop_time = max([now_ms, *(queue.pop_time + 1 for queue, _ in queues)])
        invisible_ms = max(0, now_ms + query.invisible_ms - pop_time)  # pop times may run ahead of the clock
        for queue, kind in queues:
            if isinstance(queue, OrderQueue) and queue.blocked(now_ms, query.attempt_id):
                continue
            if left and room > 0:
                take = Take(query, kind, left, room, pop_time, invisible_ms)
                try:
                    popped = (
                        self._pop_in_order(take, queue)
                        if isinstance(queue, OrderQueue)
                        else self._pop_queue(take, queue)
                    )
                except DejamqError:
                    if not batches:
                        raise
                    break  # what was given away already must be told
                batches += popped
                for each in popped:
                    left, room = left - len(each.offsets), room - len(each.records)
            rest += max(0, self._store.max_offset(queue.at.topic, queue.at.queue_id) - queue.next_offset)
        return PopAnswer(pop_time, tuple(batches), rest)

    def has_messages(self, query: PopQuery) -> bool:
        """Whether a pop might find some now; filters are not looked at."""
        self._check_serving()
        return any(
            self._store.max_offset(queue.at.topic, queue.at.queue_id) > queue.next_offset
            for queue, _ in self._queues(query)
            if not (isinstance(queue, OrderQueue) and queue.blocked(self._clock_ms(), query.attempt_id))
        )

    def _queues(self, query: PopQuery) -> list[tuple[PopQueue | OrderQueue, int]]:
        return [(self._queue(query, at), kind) for at, kind in self._places(query)]

    def _places(self, query: PopQuery) -> Iterator[tuple[Position, int]]:
        """The queues in the order in which this pop looks at them: another one first each time."""
        turn = self._turns.get((query.group, query.topic), 0)
        self._turns[query.group, query.topic] = turn + 1
        own = [(at, NORMAL) for at in self._own_places(query, turn)]
        if query.ordered:
            yield from own
            return
        retries = [
            (Position(query.group, config.topic_name, queue_id), kind)
            for kind in (RETRY_V1, RETRY_V2)
            if (config := self._topics.get(physical_topic(query.group, query.topic, kind))) is not None
            for queue_id in range(config.read_queue_nums)
        ]
        yield from (retries + own if turn % RETRY_FIRST_EACH == 0 else own + retries)

    def _own_places(self, query: PopQuery, turn: int) -> list[Position]:
        if query.queue_id != ANY_QUEUE:
            return [Position(query.group, query.topic, query.queue_id)]
        count = self._topics.require(query.topic).read_queue_nums
        return [Position(query.group, query.topic, (turn + number) % count) for number in range(count)]

    def _queue(self, query: PopQuery, at: Position) -> PopQueue | OrderQueue:
        """Where a group without an offset begins is written down at once. Source: RocketMQ ``getInitOffset``."""
        known = self.state.orders.get(at) if query.ordered else self.state.flights.get(at)
        if known is not None:
            return known
        committed = self._offsets.get(at)
        begin = self._first_offset(query, at) if committed is None else committed
        if committed is None:
            self._offsets.commit(at, begin, by="pop")
        return self.state.open_in_order(at, begin) if query.ordered else self.state.open(at, begin)

    def _first_offset(self, query: PopQuery, at: Position) -> int:
        low, high = self._store.min_offset(at.topic, at.queue_id), self._store.max_offset(at.topic, at.queue_id)
        if query.from_min or at.topic.startswith(names.RETRY_PREFIX):
            return low
        if low <= 0 and (not high or self._store.entry_in_memory(at.topic, at.queue_id, 0)):
            return 0
        return max(high - 1, 0)

    def _pop_queue(self, take: Take, queue: PopQueue) -> list[Popped]:
        """Of each check point what it gives."""
        most = min(take.most, self._settings.pop_inflight_message_threshold - len(queue.flight))
        if most <= 0:
            return []
        query = take.query
        found = self._read(query, queue.at, take.kind, queue.next_offset, most, take.room)
        if not found.sizes:
            if found.next_offset != queue.next_offset:  # over messages that the group does not want
                self.state.advance(queue, found.next_offset)
            return []
        offsets, log_offsets = _places_of(found.records, found.sizes)
        firsts = range(0, len(offsets), POINT_MESSAGES)
        parts = [offsets[first : first + POINT_MESSAGES] for first in firsts]
        keeper = query.asker.client_id if query.kept else ""
        points = self.state.popped(queue, parts, found.next_offset, take.pop_time, take.invisible_ms, keeper)
        popped, at = [], 0
        for first, point in zip(firsts, points, strict=False):
            sizes = found.sizes[first : first + POINT_MESSAGES]
            records = found.records[at : at + sum(sizes)]
            at += len(records)
            self._lines.popped(query, point, queue.next_offset if point is points[-1] else point.offsets[-1] + 1)
            popped.append(Popped(
                topic=queue.at.topic, kind=take.kind, queue_id=queue.at.queue_id, start_offset=point.start_offset,
                pop_time=point.pop_time, invisible_ms=point.invisible_ms, revive_queue_id=REVIVE_QUEUE,
                broker_name=self._site.broker_name, offsets=point.offsets,
                log_offsets=log_offsets[first : first + POINT_MESSAGES], sizes=sizes, records=records,
            ))  # fmt: skip
        self._counts.found(query.topic, query.group, sum(len(each.sizes) for each in popped), at, 0)
        return popped

    def _pop_in_order(self, take: Take, queue: OrderQueue) -> list[Popped]:
        """The queue is free: what is left of its last batch, and what follows."""
        query = take.query
        most = min(take.most, POINT_MESSAGES)
        found = self._read(query, queue.at, NORMAL, queue.next_offset, most, take.room)
        if not found.sizes:
            if found.next_offset != queue.next_offset:
                self.state.advance_in_order(queue, found.next_offset)
            return []
        records = found.records
        places = list(zip(*_places_of(records, found.sizes), found.sizes, strict=True))
        wanted = set(self._in_order.wanted(queue, [place[0] for place in places]))
        if not wanted:  # all of them became dead letters; others of the batch keep their tries
            assert queue.info is not None
            self.state.ordered(queue, queue.info, queue.info.next_offset, take.pop_time)
            return self._pop_in_order(take, queue)
        offsets = tuple(place[0] for place in places if place[0] in wanted)
        keeper = query.asker.client_id if query.kept else ""
        info = self._in_order.popped(queue, offsets, take.pop_time, take.invisible_ms, query.attempt_id, keeper)
        pieces, at = [], 0
        for offset, _, size in places:
            if offset in wanted:
                pieces.append(records[at : at + size])
            at += size
        self._counts.found(query.topic, query.group, len(offsets), sum(map(len, pieces)), 0)
        point = CheckPoint(queue.at, offsets[0], info.pop_time, info.invisible_ms, offsets, (ORDER_QUEUE, 0), set())
        self._lines.popped(query, point, found.next_offset)
        return [Popped(
            topic=queue.at.topic, kind=NORMAL, queue_id=queue.at.queue_id, start_offset=offsets[0],
            pop_time=info.pop_time, invisible_ms=info.invisible_ms, revive_queue_id=ORDER_QUEUE,
            broker_name=self._site.broker_name, offsets=offsets,
            log_offsets=tuple(place[1] for place in places if place[0] in wanted), sizes=list(map(len, pieces)),
            records=b"".join(pieces), counts=tuple(info.counts.get(offset, 0) for offset in offsets),
        )]  # fmt: skip

    def _read(self, query: PopQuery, at: Position, kind: int, offset: int, most: int, room: int) -> ReadResult:
        """From where the group goes on. An offset that is none is corrected, and it is read once more.

        Retries are the group's, whatever their tags.
        """
        found = self._read_at(query, at, kind, offset, most, room)
        if found.status in MOVES_ON and not found.sizes and found.next_offset != offset:
            found = self._read_at(query, at, kind, found.next_offset, most, room)
        return found

    def _read_at(self, query: PopQuery, at: Position, kind: int, offset: int, most: int, room: int) -> ReadResult:
        if kind == NORMAL and query.wanted is not None:
            return read_wanted(
                lambda begin, count: self._store.read(
                    at.topic, at.queue_id, begin, max_messages=count, max_bytes=STRETCH_BYTES
                ),
                query.wanted, offset, Most(most, room, self._rules.window),
            )  # fmt: skip
        tags = query.tags if kind == NORMAL else None
        return self._store.read(at.topic, at.queue_id, offset, tags=tags, max_messages=most, max_bytes=room)

    # what becomes of it

    def ack(self, group: str, topic: str, handles: Sequence[Handle], asker: Asker) -> list[DejamqError | None]:
        """These are done: of each, why it is refused, or None. Those of one delivery are one record, all in one piece.

        Saying it again is no error, nor is a handle that a change replaced: both are the consumer's. Raises
        TOPIC_NOT_EXIST, and what the store raises: then none of the rest counts.
        """
        self._check_serving()
        self._topics.require(topic)
        outcomes: list[DejamqError | None] = []
        wanted: dict[int, tuple[CheckPoint, list[int]]] = {}
        points: dict[tuple[int, int, int, int, str], CheckPoint] = {}
        for handle in handles:
            name = handle.kind, handle.queue_id, handle.pop_time, handle.start_offset, handle.broker_name
            try:
                if handle.revive_queue_id == ORDER_QUEUE:
                    outcome = "ok" if self._in_order.ack(self._at(group, topic, handle), handle) else "again"
                    place = Position(group, topic, handle.queue_id)
                    self._lines.acknowledged(place, [handle.queue_offset], handle.pop_time, asker, outcome)
                    outcomes.append(None)
                    continue
                point = points.get(name)
                if point is None:
                    point = points[name] = self._point(group, topic, handle)
                point = _own(point, handle)
            except DejamqError as error:
                outcomes.append(error)
                place = Position(group, physical_topic(group, topic, handle.kind), handle.queue_id)
                self._lines.acknowledged(place, [handle.queue_offset], handle.pop_time, asker, "refused", str(error))
                continue
            outcomes.append(None)
            wanted.setdefault(id(point), (point, []))[1].append(handle.queue_offset)
        new = [
            (point, sorted(there)) for point, offsets in wanted.values() if (there := point.left.intersection(offsets))
        ]
        for point, done in self.state.done_each(new):
            del wanted[id(point)]
            self._lines.acknowledged(point.at, done, point.pop_time, asker, "ok")
        for point, offsets in wanted.values():
            self._lines.acknowledged(point.at, offsets, point.pop_time, asker, "again")
        return outcomes

    def change(
        self, group: str, topic: str, handle: Handle, invisible_ms: int, asker: Asker, keeper: Keeper | None = None,
        *, asked: Handle | None = None,
    ) -> Handle:  # fmt: skip
        """The message is invisible for so long from now on; 0: it comes again at once. Its new handle.

        ``keeper``: the broker keeps it so, and for whom. ``asked``: the handle that the consumer has and asked by,
        where the broker has changed it since.
        Asked the same again with the old handle, as after a lost answer, it is the same answer. Raises as ``ack``.
        """
        self._check_serving()
        self._topics.require(topic)
        _check_invisible(invisible_ms)
        offset = handle.queue_offset
        if handle.revive_queue_id == ORDER_QUEUE:
            return self._change_in_order(group, topic, handle, invisible_ms, asker, kept=keeper is not None)
        named = self._point(group, topic, handle)
        point = _own(named, handle)
        if offset not in point.left:
            raise stale(handle)
        by = named.name if asked is None else CheckPointName(asked.start_offset, asked.pop_time)
        if point is not named and point.asked_ms == invisible_ms:
            new, how = point, "again"
        else:
            new = self.state.changed(point, offset, self._clock_ms(), invisible_ms, by, keeper)
            how = "renewed" if new.visible_ms > point.visible_ms else "visible"
        self._lines.changed(
            point.at, offset, asker, pop_time=point.pop_time, new_pop_time=new.pop_time,
            invisible_ms=new.invisible_ms, how=how, asked_pop_time=by.pop_time if by != point.name else 0,
        )  # fmt: skip
        return msgspec.structs.replace(
            handle,
            start_offset=offset,
            pop_time=new.pop_time,
            invisible_ms=new.invisible_ms,
            revive_queue_id=REVIVE_QUEUE,
        )

    def _change_in_order(
        self, group: str, topic: str, handle: Handle, invisible_ms: int, asker: Asker, *, kept: bool
    ) -> Handle:
        at = self._at(group, topic, handle)
        changed = self._in_order.change(at, handle, invisible_ms, kept=kept)
        how = "renewed" if changed.invisible_ms > handle.invisible_ms else "visible"
        self._lines.changed(
            at, handle.queue_offset, asker, pop_time=handle.pop_time, new_pop_time=changed.pop_time,
            invisible_ms=changed.invisible_ms, how=how,
        )  # fmt: skip
        return changed

    def bury(self, group: str, topic: str, handle: Handle) -> None:
        """The consumer gives the message up: a dead letter, which names the delivery, and done. Raises as ``change``.

        Saying it again is no error. A crash between the two steps makes no second letter (RocketMQ: cause B16).
        """
        self._check_serving()
        self._topics.require(topic)
        if handle.revive_queue_id == ORDER_QUEUE:
            self._in_order.bury(self._at(group, topic, handle), handle)
            return
        point = _own(self._point(group, topic, handle), handle)
        if handle.queue_offset in point.left:
            self._reviver.bury(point.at, handle.queue_offset, point.pop_time, point.invisible_ms)
            self.state.done(point, [handle.queue_offset])

    def _at(self, group: str, topic: str, handle: Handle) -> Position:
        """The queue that a handle names. Raises MESSAGE_ILLEGAL for one of another broker, or none."""
        if handle.broker_name != self._site.broker_name:
            text = f"the receipt handle is one of broker {handle.broker_name!r:.60}, not of {self._site.broker_name!r}"
            raise DejamqError(text, code=Code.MESSAGE_ILLEGAL)
        at = Position(group, physical_topic(group, topic, handle.kind), handle.queue_id)
        config = self._topics.get(at.topic)
        if config is not None:
            try:
                check_queue(config, at.queue_id)
            except DejamqError as error:
                raise DejamqError(str(error), code=Code.MESSAGE_ILLEGAL) from None
        return at

    def _point(self, group: str, topic: str, handle: Handle) -> CheckPoint:
        """The delivery that a handle names.

        Raises MESSAGE_ILLEGAL for a handle of another broker or an impossible queue, NO_MESSAGE for one that names
        nothing, or a message that was given away again, or is done by its copy.
        """
        at = self._at(group, topic, handle)
        point = self.state.flights.find(at, handle.pop_time)
        if point is None or point.start_offset != handle.start_offset:
            raise stale(handle)
        return point

    def _check_serving(self) -> None:
        if not self._site.master:
            raise DejamqError(
                "messages are popped at the master, this broker is a slave",
                code=Code.SLAVE_NOT_AVAILABLE,
                definite=True,
            )
        if self._closed:
            raise DejamqError("the broker is shutting down", code=Code.SERVICE_NOT_AVAILABLE)


def _check_invisible(invisible_ms: int) -> None:
    if not 0 <= invisible_ms <= LONGEST_INVISIBLE_MS:
        text = f"messages are invisible for 0 to {LONGEST_INVISIBLE_MS} ms, not {invisible_ms}"
        raise DejamqError(text, code=Code.INVALID_PARAMETER)


def _own(point: CheckPoint, handle: Handle) -> CheckPoint:
    """The delivery by which the message of a handle goes on. Raises NO_MESSAGE where it is none of these, or lost."""
    offset = handle.queue_offset
    if offset not in point.offsets:
        raise stale(handle)
    while (later := point.replaced.get(offset)) is not None:
        point = later
    if offset in point.lost:
        raise stale(handle)
    return point


def _places_of(records: bytes, sizes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Queue offsets and log offsets of records that follow one another."""
    queue_offsets, log_offsets, at = [], [], 0
    for size in sizes:
        fields = FIXED.unpack_from(records, at)
        queue_offsets.append(fields[5])
        log_offsets.append(fields[6])
        at += size
    return tuple(queue_offsets), tuple(log_offsets)
