"""Delayed messages: 18 levels, one queue of SCHEDULE_TOPIC_XXXX each (RocketMQ: ScheduleMessageService).

A delayed message is stored in its level's queue, with its own topic and queue in REAL_TOPIC and REAL_QID. The queue
entry's tags code is the time it is due. When due it is stored again where it belongs. Progress is written every 10 s,
so a crash repeats the deliveries since: RocketMQ's behaviour, and a known cause of duplicates.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import DejamqError
from dejamq_proto.records.record import BadRecord, Record, decode, encode_properties
from dejamq_proto.texts import MOST_32, number_of

from dejamq_broker.deferred.delay_progress import DelayProgress
from dejamq_broker.store.log.entries import delay_level
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
READ_MESSAGES, READ_BYTES = 32, 256 << 10


def scheduled(record: Record, levels: int) -> Record:
    """The record as it waits for its delay, or itself when it has none. Levels above the last count as it.

    A level wins over a time of delivery, which is taken away (RocketMQ: HookUtils).
    """
    properties = record.properties
    level = delay_level(properties.get(names.PROPERTY_DELAY, ""), levels)
    if not level:
        return record
    for name in names.ASKING_FOR_A_TIME:
        properties.pop(name, None)
    properties[names.PROPERTY_DELAY] = str(level)
    properties[names.PROPERTY_REAL_TOPIC] = record.topic
    properties[names.PROPERTY_REAL_QUEUE] = str(record.queue_id)
    return msgspec.structs.replace(
        record,
        topic=names.SCHEDULE_TOPIC,
        queue_id=level - 1,
        raw_properties=encode_properties(properties),
        magic=None,
    )


def restored(record: Record) -> Record | None:
    """A due record as its consumers will see it; None when it does not say where it belongs, or names a system topic.

    The properties stay as they are: DELAY, REAL_TOPIC and REAL_QID remain in the delivered message, as in RocketMQ.
    """
    properties = record.properties
    topic = properties.get(names.PROPERTY_REAL_TOPIC, "")
    queue_id = number_of(properties.get(names.PROPERTY_REAL_QUEUE), MOST_32)
    if not topic or topic in names.NOT_FOR_SENDING or queue_id is None:
        return None
    return msgspec.structs.replace(record, topic=topic, queue_id=queue_id, magic=None)


class DelayService:
    """Delivers what is due. ``step`` is called by a Periodic; between reads the loop serves others.

    RocketMQ: ScheduleMessageService with its DeliverDelayedMessageTimerTask; here one task looks at all levels in turn
    instead of a thread for each. Within a level delivery is in the order of the queue: a level has one delay, so the
    message that was stored first is due first. RocketMQ's asynchronous delivery (enableScheduleAsyncDeliver) does not
    exist here. An append never waits, so there is nothing to overlap, and no second copy of a message that was taken
    for lost (B3).
    """

    def __init__(
        self, store: "MessageStore", writer: RecordWriter, progress: DelayProgress,
        levels_ms: tuple[int, ...], clock_ms: Callable[[], int], error_backoff_ms: int,
        is_topic: Callable[[str], bool],
    ) -> None:  # fmt: skip
        """``is_topic``: whether there is such a topic; messages for a topic that was deleted meanwhile are dropped when
        they are due.
        """
        self._is_topic = is_topic
        self._store, self._writer, self._progress = store, writer, progress
        self._levels_ms, self._clock_ms, self._error_backoff_ms = levels_ms, clock_ms, error_backoff_ms
        self._rests_until_ms: dict[int, int] = {}
        self._closed = False

    async def close(self) -> None:
        """Let a step under way end soon; messages that are due then wait for the next start."""
        self._closed = True

    def clamp(self) -> None:
        """Bring loaded progress into what the queues hold: they may have lost a tail, or their beginning.

        RocketMQ: ScheduleMessageService.load with correctDelayOffset. Progress beyond the queue would otherwise
        wait for entries that other messages will get, and pass over those.
        """
        for level in self._levels():
            low, high = self._bounds(level)
            self._progress.set(level, max(low, min(self._progress.get(level), high)))

    async def step(self) -> None:
        """Deliver what is due, one read of each level in turn: a long backlog of one keeps no other waiting."""
        more = True
        while more and not self._closed:
            more = False
            for level in self._levels():
                if self._holds_some(level) and self._deliver_some(level):
                    more = True
                    await asyncio.sleep(0)

    def _holds_some(self, level: int) -> bool:
        """The answer is nearly always no, ten times a second for each level: asked before anything is read."""
        return self._progress.get(level) != self._store.max_offset(names.SCHEDULE_TOPIC, level - 1)

    def _deliver_some(self, level: int) -> bool:
        """One read's worth; False when nothing more is due. A level that fails, whatever the reason, rests for a
        while, and goes on where it stopped.
        """
        if self._rests(level):
            return False
        try:
            return self._deliver_due(level)
        except Exception as error:
            log.warning(
                "delay_delivery_failed level=%d error=%s", level, error,
                exc_info=None if isinstance(error, DejamqError) else error,
            )  # fmt: skip
            self._rests_until_ms[level] = self._clock_ms() + self._error_backoff_ms
            return False

    def _rests(self, level: int) -> bool:
        """A rest that ends later than a whole rest from now began before the clock was moved back: it is over."""
        now_ms, until_ms = self._clock_ms(), self._rests_until_ms.get(level, 0)
        return now_ms < until_ms <= now_ms + self._error_backoff_ms

    def _deliver_due(self, level: int) -> bool:
        """Progress follows each put, so that a failure repeats nothing.

        A message that cannot be read is passed over: waiting for it would stop the level for ever. RocketMQ does so
        too.
        """
        before = self._progress.get(level)
        for raw in self._read(level):
            record = self._decoded(level, raw)
            if record is None:
                self._progress.set(level, self._progress.get(level) + 1)
                return True
            if not self._is_due(level, record.queue_offset):
                return False
            self._deliver(level, record)
            self._progress.set(level, record.queue_offset + 1)
        return self._progress.get(level) > before

    def _decoded(self, level: int, raw: memoryview) -> Record | None:
        """None for damage, be it only in the place that the record tells: progress would go astray with it."""
        expected = self._progress.get(level)
        try:
            record = decode(raw, check_crc=False)
            if expected <= record.queue_offset < expected + READ_MESSAGES:
                return record
            trouble = f"it says queue offset {record.queue_offset}"
        except BadRecord as error:
            trouble = str(error)
        log.error("delayed_message_damaged level=%d queue_offset=%d error=%s", level, expected, trouble)
        return None

    def _deliver(self, level: int, record: Record) -> None:
        original = restored(record)
        if original is None:
            log.error("delayed_message_homeless level=%d queue_offset=%d", level, record.queue_offset)
        elif not self._is_topic(original.topic):
            text = "delayed_message_dropped level=%d queue_offset=%d: topic %s was deleted"
            log.warning(text, level, record.queue_offset, original.topic)
        else:
            self._writer.put(original, RecordOrigin("schedule", f"{level}:{record.queue_offset}"))

    def _read(self, level: int) -> Iterator[memoryview]:
        """Records of one level from its progress on, at most 32 of them or 256 KiB; none while the first is not due.

        An entry whose record is gone from the log is passed over.
        """
        queue_offset = self._progress.get(level)
        low, high = self._bounds(level)
        if queue_offset < low:
            queue_offset = low
            self._progress.set(level, low)
        if queue_offset >= high or not self._is_due(level, queue_offset):
            return
        found = self._store.read(
            names.SCHEDULE_TOPIC, level - 1, queue_offset, max_messages=READ_MESSAGES, max_bytes=READ_BYTES
        )
        if not len(found.sizes):  # the log of these entries is gone: nothing to deliver there any more
            self._progress.set(level, max(queue_offset, found.next_offset))
        records, at = memoryview(found.records), 0
        for size in found.sizes:
            yield records[at : at + size]
            at += size

    def _is_due(self, level: int, queue_offset: int) -> bool:
        """Due times beyond now + the level's delay come from a clock or table that changed: due at once (RocketMQ)."""
        due_ms = self._store.tags_code_at(names.SCHEDULE_TOPIC, level - 1, queue_offset)
        now_ms = self._clock_ms()
        return due_ms is None or due_ms <= now_ms or due_ms > now_ms + self._levels_ms[level - 1]

    def _levels(self) -> range:
        """Levels that the table no longer has keep their messages until it has them again, as in RocketMQ."""
        return range(1, len(self._levels_ms) + 1)

    def _bounds(self, level: int) -> tuple[int, int]:
        queue = names.SCHEDULE_TOPIC, level - 1
        return self._store.min_offset(*queue), self._store.max_offset(*queue)
