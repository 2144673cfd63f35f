"""Delayed messages: 18 levels, one queue of SCHEDULE_TOPIC_XXXX each (RocketMQ: ScheduleMessageService).

A delayed message is stored in its level's queue with its own topic and queue in REAL_TOPIC and REAL_QID; the queue
entry's tags code is the time it is due. When due it is stored again where it belongs. Progress is written every 10 s,
so a crash repeats the deliveries since: RocketMQ's behaviour, and a known cause of duplicates.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import DejamqError
from dejamq_proto.events import ProgressFlush
from dejamq_proto.journal import Journal
from dejamq_proto.record import BadRecord, Record, decode, encode_properties

from dejamq_broker import json_file
from dejamq_broker.data_version import DataVersion
from dejamq_broker.record_writer import Origin, RecordWriter
from dejamq_broker.store.entries import delay_level

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
READ_MESSAGES, READ_BYTES = 32, 256 << 10


def scheduled(record: Record, levels: int) -> Record:
    """The record as it waits for its delay, or itself when it has none. Levels above the last count as it."""
    properties = record.properties
    level = delay_level(properties.get(names.PROPERTY_DELAY, ""), levels)
    if not level:
        return record
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
    """A due record as its consumers will see it; None when it does not say where it belongs.

    The properties stay as they are: DELAY, REAL_TOPIC and REAL_QID remain in what is delivered, as in RocketMQ.
    """
    properties = record.properties
    topic, queue = properties.get(names.PROPERTY_REAL_TOPIC, ""), properties.get(names.PROPERTY_REAL_QUEUE, "")
    if not topic or not queue.isdecimal():
        return None
    return msgspec.structs.replace(record, topic=topic, queue_id=int(queue), magic=None)


class DelayProgress:
    """``config/delayOffset.json``: for each level, the queue offset of the next entry to deliver.

    Kept apart from consumers' offsets and written less often, as in RocketMQ; what was delivered after the last
    write is delivered once more after a crash.
    """

    def __init__(self, path: Path, broker_name: str, journal: Journal) -> None:
        self.path, self._broker_name, self._journal = path, broker_name, journal
        self._offsets: dict[int, int] = {}
        self._version = DataVersion()
        self._changed = False
        self.log_on_disk: Callable[[], Awaitable[None]] = json_file.nothing
        """Awaited before each write: a delivery that a power loss takes back is to be made again."""

    def load(self) -> None:
        """Read the file. Raises UnreadableFile."""
        content, _ = json_file.load(self.path)
        if content is None:
            return
        try:
            self._offsets = msgspec.convert(content.get("offsetTable", {}), dict[int, int], strict=False)
            self._version = msgspec.convert(content.get("dataVersion", {}), DataVersion)
        except msgspec.ValidationError as error:
            raise json_file.UnreadableFile(f"{self.path} is no table of delay progress: {error}") from None

    def get(self, level: int) -> int:
        """The queue offset of the level's next entry to deliver; 0 when nothing is known."""
        return self._offsets.get(level, 0)

    def set(self, level: int, queue_offset: int) -> None:
        """In memory; ``flush`` makes it last."""
        if self.get(level) != queue_offset:
            self._offsets[level] = queue_offset
            self._changed = True

    async def flush(self) -> None:
        """Write the file when anything moved since the last time.

        A write that fails or is cancelled leaves the table marked as changed, so that the next round tries
        again.
        """
        if not self._changed:
            return
        self._changed = False
        try:
            snapshot = self._snapshot()
            await self.log_on_disk()
            await json_file.save(snapshot, self._journal)
        except BaseException:
            self._changed = True
            raise

    def _snapshot(self) -> json_file.Snapshot:
        table = {str(level): queue_offset for level, queue_offset in sorted(self._offsets.items())}
        text = json_file.dumps({"dataVersion": msgspec.to_builtins(self._version), "offsetTable": table})
        progress = msgspec.json.encode(table).decode()
        event = ProgressFlush(broker_name=self._broker_name, service="schedule", progress=progress)
        return json_file.Snapshot(self.path, text, event)


class DelayService:
    """Delivers what is due. ``step`` is called by a Periodic; between reads the loop serves others.

    RocketMQ: ScheduleMessageService with its DeliverDelayedMessageTimerTask; one step looks at all levels in
    turn instead of one timer for each. Within a level delivery is in the order of the queue: a level has one
    delay, so what was stored first is due first.
    """

    def __init__(
        self, store: "MessageStore", writer: RecordWriter, progress: DelayProgress,
        levels_ms: tuple[int, ...], clock_ms: Callable[[], int], error_backoff_ms: int,
    ) -> None:  # fmt: skip
        self._store, self._writer, self._progress = store, writer, progress
        self._levels_ms, self._clock_ms, self._error_backoff_ms = levels_ms, clock_ms, error_backoff_ms
        self._paused_until_ms: dict[int, int] = {}
        self._closed = False

    async def close(self) -> None:
        """Let a step under way end soon; what is due then waits for the next start."""
        self._closed = True

    def clamp(self) -> None:
        """Bring loaded progress into what the queues hold: they may have lost a tail, or their beginning.

        RocketMQ: ScheduleMessageService.load with correctDelayOffset. Progress beyond the queue would otherwise
        wait for entries that other messages will get, and pass over those.
        """
        for level in range(1, len(self._levels_ms) + 1):
            low, high = self._bounds(level)
            self._progress.set(level, max(low, min(self._progress.get(level), high)))

    async def step(self) -> None:
        """Deliver what is due at every level. One that fails rests for a while and keeps no other waiting."""
        for level in range(1, len(self._levels_ms) + 1):
            if self._paused_until_ms.get(level, 0) > self._clock_ms():
                continue
            try:
                await self._deliver_all_due(level)
            except (DejamqError, BadRecord) as error:
                log.warning("delay_delivery_failed level=%d error=%s", level, error)
                self._paused_until_ms[level] = self._clock_ms() + self._error_backoff_ms

    async def _deliver_all_due(self, level: int) -> None:
        more = True
        while more and not self._closed:
            more = self._deliver_due(level)
            await asyncio.sleep(0)

    def _deliver_due(self, level: int) -> bool:
        """One read's worth; False when nothing more is due. Progress follows each put."""
        before = self._progress.get(level)
        for record in self._read(level):
            if not self._is_due(level, record.queue_offset):
                return False
            original = restored(record)
            if original is None:
                log.error("delayed_message_homeless level=%d queue_offset=%d", level, record.queue_offset)
            else:
                self._writer.put(original, Origin("schedule", f"{level}:{record.queue_offset}"))
            self._progress.set(level, record.queue_offset + 1)
        return self._progress.get(level) > before

    def _read(self, level: int) -> Iterator[Record]:
        """Records of one level from its progress on, at most 32 of them or 256 KiB; none while the first is not due.

        An entry whose record is gone from the log is passed over, because waiting for it would stop the level
        for ever.
        """
        queue_offset = self._progress.get(level)
        low, high = self._bounds(level)
        if queue_offset < low:
            self._progress.set(level, low)
        if queue_offset >= high or not self._is_due(level, max(queue_offset, low)):
            return
        found = self._store.read(
            names.SCHEDULE_TOPIC, level - 1, max(queue_offset, low), max_messages=READ_MESSAGES, max_bytes=READ_BYTES
        )
        if not len(found.sizes):  # the log of these entries is gone: nothing to deliver there any more
            self._progress.set(level, max(queue_offset, found.next_offset))
        at = 0
        for size in found.sizes:
            yield decode(found.records, at, check_crc=False)
            at += int(size)

    def _is_due(self, level: int, queue_offset: int) -> bool:
        """Due times beyond now + the level's delay come from a clock or table that changed: due at once (RocketMQ)."""
        due_ms = self._store.tags_code_at(names.SCHEDULE_TOPIC, level - 1, queue_offset)
        now_ms = self._clock_ms()
        return due_ms is None or due_ms <= now_ms or due_ms > now_ms + self._levels_ms[level - 1]

    def _bounds(self, level: int) -> tuple[int, int]:
        queue = names.SCHEDULE_TOPIC, level - 1
        return self._store.min_offset(*queue), self._store.max_offset(*queue)
