"""Delivers timed messages (RocketMQ: TimerMessageStore, whose threads are one task here).

A turn puts what came into the timer topic into the wheel, and then handles the slots that are over: marks of recalled
messages first, then the others in the order in which they came. A message of a slot that is over already when it comes
is put into the next one. Progress is written every second, so that a crash repeats the deliveries since (cause B4).

Wheel and timer log follow from the timer topic. Where they are missing, or contradict the log, they are made anew of
it, and what the written progress says is delivered is passed over.
"""

import asyncio
import logging
from array import array
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import BadRecord, Record, decode, java_hash

from dejamq_broker.base.disk_work import beside_loop
from dejamq_broker.deferred.delay import restored
from dejamq_broker.store.files.errors import StoreDamaged, StoreError
from dejamq_broker.timer import rules, units
from dejamq_broker.timer.progress import Reached, TimerProgress
from dejamq_broker.timer.rules import SPARE_SLOTS, WHEEL_SLOTS, SlotPlace, TimerRules
from dejamq_broker.timer.units import TimerLog, Unit
from dejamq_broker.timer.wheel import NO_POSITION, Slot, TimerWheel
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
READ_MESSAGES, READ_BYTES = 512, 1 << 20
TURN_NS = 3_000_000
"""So long the loop is kept at once; then others have their turn."""


class TimerService:
    """Owned by the event loop. ``step`` is called by a Periodic."""

    def __init__(
        self, store: "MessageStore", writer: RecordWriter, progress: TimerProgress, timing: TimerRules,
        wheel: TimerWheel, unit_log: TimerLog, clock_ms: Callable[[], int], error_backoff_ms: int,
        is_topic: Callable[[str], bool], *, left_to_others: str,
    ) -> None:  # fmt: skip
        """``left_to_others``: the topic of pop's records, which a RocketMQ keeps in its timer; pop takes them over.

        For ``is_topic`` see ``DelayService``.
        """
        self._store, self._writer, self._progress, self._rules = store, writer, progress, timing
        self._wheel, self._units, self._clock_ms = wheel, unit_log, clock_ms
        self._turn = asyncio.Lock()
        self._error_backoff_ms, self._is_topic, self.left_to_others = error_backoff_ms, is_topic, left_to_others
        self._read_ms = self._queue_offset = self._slot_done = self._handled = 0
        self._delivered = Reached()
        self._first_late, self._rolled = -1, False
        self._rests_until_ms = 0
        self._turn_ends = 0
        self._closed = False

    def recover(self) -> None:
        """At a start of a master, before anything is served. Raises StoreError."""
        reached, now_ms = self._progress.reached, self._clock_ms()
        earliest_ms = self._rules.floor(now_ms) - (WHEEL_SLOTS - SPARE_SLOTS) * self._rules.precision_ms
        self._read_ms = max(self._rules.floor(reached.read_ms), earliest_ms) if reached.read_ms else earliest_ms
        self._slot_done = reached.slot_done if self._read_ms == reached.read_ms else 0
        try:
            trouble = self._load(reached)
            if trouble:
                log.warning("timer_wheel_made_anew reason=%s", trouble)
                self._begin_anew(reached)
        except OSError as error:
            raise StoreError(f"the timer's files cannot be read or written: {error}") from error
        low, high = self._bounds()
        self._queue_offset = max(low, min(self._queue_offset, high))
        self._tell()

    async def close_files(self) -> None:
        """After the last step and the last flush."""
        self.close_now()

    def close_now(self) -> None:
        """As a crash does, without a flush."""
        self._wheel.close()
        self._units.close()

    async def close(self) -> None:
        """Let a step under way end soon; messages that are due then wait for the next start."""
        self._closed = True

    @property
    def waiting(self) -> int:
        """How many messages wait, about."""
        return self._wheel.waiting(self._read_ms) + self.messages_behind

    @property
    def behind_ms(self) -> int:
        """How long ago the next slot was over."""
        return max(0, self._rules.floor(self._clock_ms()) - self._read_ms) if self._wheel.exists else 0

    @property
    def messages_behind(self) -> int:
        """Messages of the timer topic that are not in the wheel yet."""
        return max(0, self._store.max_offset(names.TIMER_TOPIC, 0) - self._progress.reached.queue_offset)

    async def step(self) -> None:
        """One turn. The clock is read first: marks that were taken before their slot is over are found in it."""
        now_ms = self._clock_ms()
        if now_ms < self._rests_until_ms <= now_ms + self._error_backoff_ms:
            return
        try:
            async with self._turn:
                await self._take_in()
                await self._deliver_until(self._rules.floor(now_ms))
        except (DejamqError, OSError) as error:
            log.warning("timer_failed read_ms=%d queue_offset=%d error=%s", self._read_ms, self._queue_offset, error)
            self._rests_until_ms = now_ms + self._error_backoff_ms

    async def flush(self) -> None:
        """Write the progress, be it a slave's copy of it. Raises StoreError, OSError."""
        await self._progress.flush(self._sync)

    async def tidy(self) -> None:
        """Write the progress, and delete files of the timer log that point before the log's beginning."""
        await self.flush()
        async with self._turn:  # which reads the files
            await beside_loop(self._units.delete_before, self._store.log_min)

    # the start

    def _load(self, reached: Reached) -> str:
        """Bring the files into what they were, and find how far the timer topic is in them. Answers what hinders it."""
        trouble = self._other_than_now(reached)
        if trouble:
            return trouble
        try:
            self._units.load()
            self._wheel.load()
        except StoreDamaged as error:
            return str(error)
        if self._units.holds_some and not self._wheel.exists:
            return "the wheel is missing"
        last: Unit | None = None
        for position, found in self._units.scan(max(0, reached.log_end - self._units.file_size)):
            newer = max(0, (reached.log_end - position) // units.SIZE)  # the others were on disk before the progress
            if newer < len(found):
                self._revise(position + newer * units.SIZE, found[newer:])
            last = Unit(*(int(value) for value in found[-1].item()[1:8]))
        self._units.cut()
        self._wheel.write()
        if self._wheel.highest_position(self._read_ms) >= self._units.end:
            return "the wheel knows of units that the timer log does not have"
        if last is not None and last.log_offset + last.record_size > self._store.log_max:
            return "the timer log knows of messages that the log does not have"
        if last is None and reached.log_end:
            return "the timer log is missing"
        self._queue_offset = max(reached.queue_offset, 0 if last is None else self._after(last))
        return ""

    def _other_than_now(self, reached: Reached) -> str:
        """What the files were made for that this start is not."""
        if not reached.in_wheel:
            return "it was not complete, or this broker was a slave"
        if self._progress.found_ms not in (0, self._rules.precision_ms):
            return f"it was made for slots of {self._progress.found_ms} ms"
        if reached != Reached() and self._window_of(reached) != self._rules.window_ms:
            return f"it was made for waits of up to {self._window_of(reached)} ms in one place"
        return ""

    def _window_of(self, reached: Reached) -> int:
        return reached.window_ms or self._rules.roll_window_ms

    def _begin_anew(self, reached: Reached) -> None:
        self._wheel.clear()
        self._units.clear()
        self._delivered, self._queue_offset, self._slot_done = reached, 0, 0
        self._progress.begin_anew()

    def _revise(self, position: int, found: units.Units) -> None:
        """Slots of which a unit is missing: the file of the wheel is older than that of the units."""
        slots_ms = found["written_ms"].astype(np.int64) + found["delay_ms"]
        order = np.argsort(slots_ms, kind="stable")
        starts = np.flatnonzero(np.diff(slots_ms[order], prepend=-1))
        ends = np.append(starts[1:], len(order))
        for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
            slot_ms = int(slots_ms[order[begin]])
            first, last = (position + int(order[number]) * units.SIZE for number in (begin, end - 1))
            slot = self._wheel.get(slot_ms)
            if slot.last < last:
                first = first if slot.first == NO_POSITION else slot.first
                self._wheel.put(slot_ms, Slot(first, last, max(slot.count, 0) + end - begin))

    def _after(self, unit: Unit) -> int:
        """The place in the timer topic behind the message of a unit; 0 when it is gone."""
        record = self._record(unit)
        return 0 if record is None else record.queue_offset + 1

    # from the timer topic into the wheel

    async def _take_in(self) -> None:
        """Everything that is there now, behind what could not be written the last time."""
        await self._write()
        end = self._store.max_offset(names.TIMER_TOPIC, 0)
        while self._queue_offset < end and not self._closed:
            self._queue_offset = max(self._queue_offset, self._bounds()[0])
            found = self._store.read(
                names.TIMER_TOPIC, 0, self._queue_offset, max_messages=READ_MESSAGES, max_bytes=READ_BYTES
            )
            if not len(found.sizes):
                self._queue_offset = min(max(self._queue_offset + 1, found.next_offset), end)
            begin, at = self._queue_offset, 0
            for number, size in enumerate(found.sizes):
                self._put_in(begin + number, memoryview(found.records)[at : at + size])
                at += size
                self._queue_offset = begin + number + 1
            await self._write()
            self._tell()
            await asyncio.sleep(0)

    async def _write(self) -> None:
        """Beside the loop. Only one turn puts something in, and it waits here."""
        if self._units.unwritten or self._wheel.unwritten:
            await beside_loop(self._write_out)

    def _write_out(self) -> None:
        """The units first: a slot must not point to one that is not there."""
        self._units.write()
        self._wheel.write()

    def _put_in(self, queue_offset: int, raw: memoryview) -> None:
        """Into its slot, or the next one that is handled when its own is over. Strangers' records are passed over."""
        try:
            record = decode(raw, check_crc=False)
        except BadRecord as error:
            log.error("timed_message_damaged queue_offset=%d error=%s", queue_offset, error)
            return
        properties = record.properties
        out_ms = rules.out_of(properties)
        if out_ms is None or properties.get(names.PROPERTY_REAL_TOPIC) == self.left_to_others:
            return
        stored_ms, delivered = record.store_timestamp_ms, self._delivered
        place = self._rules.place(out_ms, stored_ms)
        if queue_offset < delivered.queue_offset:
            waited_at = self._rules.place(out_ms, stored_ms, self._window_of(delivered))
            if waited_at.slot_ms < delivered.read_ms:
                return
        slot_ms = max(place.slot_ms, self._read_ms)
        if slot_ms != place.slot_ms and self._first_late < 0:
            self._first_late = queue_offset
        deletes = names.PROPERTY_TIMER_DELETE_KEY in properties
        written_ms = self._rules.floor(record.store_timestamp_ms)
        slot = self._wheel.get(slot_ms)
        position = self._units.append(Unit(
            previous=slot.last, magic=_magic(place, deletes=deletes), written_ms=written_ms,
            delay_ms=slot_ms - written_ms, log_offset=record.log_offset, record_size=len(raw),
            topic_hash=java_hash(properties.get(names.PROPERTY_REAL_TOPIC, "")),
        ))  # fmt: skip
        first = position if slot.first == NO_POSITION else slot.first
        self._wheel.put(slot_ms, Slot(first, position, slot.count + (-1 if deletes else 1)))

    # out of the wheel

    async def _deliver_until(self, end_ms: int) -> None:
        """Handle the slots before this time. What is stored again on its way may belong to one of the next slots."""
        while not self._closed:
            slot_ms = self._wheel.next_used(self._read_ms, end_ms)
            if slot_ms is None:
                self._move_to(max(end_ms, self._read_ms))
                return
            self._move_to(slot_ms)
            if not await self._handle_slot(slot_ms):
                return
            self._first_late = -1
            self._move_to(slot_ms + self._rules.precision_ms)
            if self._rolled:
                self._rolled = False
                await self._take_in()

    def _move_to(self, read_ms: int) -> None:
        if read_ms != self._read_ms:
            self._read_ms, self._slot_done = read_ms, 0
            if self._wheel.exists:
                self._tell()

    async def _handle_slot(self, slot_ms: int) -> bool:
        """Whether it is done; it is not when the broker closes meanwhile."""
        self._turn_ends = perf_counter_ns() + TURN_NS
        reader = self._units.reader()
        positions, marks = await self._chain(slot_ms, reader)
        recalled = set(self._recalled(marks, reader))
        for number in range(len(positions) - 1 - self._slot_done, -1, -1):
            if self._closed:
                return False
            unit = reader.read(positions[number])
            if unit is not None and not unit.recalls:
                self._handle_unit(unit, slot_ms, recalled)
            self._slot_done = len(positions) - number
            self._handled += 1
            self._tell()
            await self._breathe()
        return True

    async def _chain(self, slot_ms: int, reader: units.UnitReader) -> tuple["array[int]", list[int]]:
        """Positions of a slot's units, the last one first, and of those that are marks of recalled messages."""
        positions, marks = array("q"), []
        position = self._wheel.get(slot_ms).last
        while position != NO_POSITION:
            unit = reader.read(position)
            if unit is None or unit.previous >= position:
                log.error("timer_unit_missing slot_ms=%d position=%d", slot_ms, position)
                break
            positions.append(position)
            if unit.recalls:
                marks.append(position)
            position = unit.previous
            await self._breathe()
        return positions, marks

    def _recalled(self, marks: list[int], reader: units.UnitReader) -> Iterator[tuple[str, str]]:
        """The messages that these marks recall: of the topic that the mark was sent to, and their keys.

        So nobody recalls messages of a topic that he may not send to.
        """
        for position in marks:
            unit = reader.read(position)
            record = None if unit is None else self._record(unit)
            if record is not None:
                topic = record.properties.get(names.PROPERTY_REAL_TOPIC, "")
                yield topic, record.properties.get(names.PROPERTY_TIMER_DELETE_KEY, "")

    def _handle_unit(self, unit: Unit, slot_ms: int, recalled: set[tuple[str, str]]) -> None:
        """Store its message where it belongs, or again where it waits. Raises what the store raises.

        What no store can take is logged and passed over: to try it again would stop all others for ever.
        """
        record = self._record(unit)
        if record is None:
            log.error("timed_message_gone slot_ms=%d log_offset=%d", slot_ms, unit.log_offset)
            return
        rolls, queue_offset = bool(unit.magic & units.ROLL), record.queue_offset
        if record.properties.get(names.PROPERTY_REAL_TOPIC) == self.left_to_others:
            return
        if not rolls and recalled and not recalled.isdisjoint(rules.recalled_by(record.properties)):
            return
        origin = RecordOrigin("timer_roll" if rolls else "timer", f"{slot_ms}:{queue_offset}")
        now_ms = self._clock_ms()
        try:
            if rolls:
                self._rolled = True
                self._writer.put(rules.rolled(record, now_ms), origin)
                return
            original = restored(record)
            if original is None:
                log.error("timed_message_homeless queue_offset=%d", queue_offset)
            elif not self._is_topic(original.topic):
                text = "timed_message_dropped queue_offset=%d: topic %s was deleted"
                log.warning(text, queue_offset, original.topic)
            else:
                self._writer.put(rules.due(original, unit.written_ms, now_ms), origin)
        except DejamqError as error:
            if error.code != Code.MESSAGE_ILLEGAL:
                raise
            log.error("timed_message_refused queue_offset=%d error=%s", queue_offset, error)

    def _record(self, unit: Unit) -> Record | None:
        """The waiting message of a unit; None when it is gone, or another message is there."""
        raw = self._store.record_at(unit.log_offset)
        if raw is None or len(raw) != unit.record_size:
            return None
        try:
            record = decode(raw, check_crc=False)
        except BadRecord:
            return None
        return record if record.topic == names.TIMER_TOPIC else None

    async def _breathe(self) -> None:
        if perf_counter_ns() >= self._turn_ends:
            await asyncio.sleep(0)
            self._turn_ends = perf_counter_ns() + TURN_NS

    def _bounds(self) -> tuple[int, int]:
        return self._store.min_offset(names.TIMER_TOPIC, 0), self._store.max_offset(names.TIMER_TOPIC, 0)

    def _tell(self) -> None:
        """While the wheel is made anew, the old progress is what counts.

        A message in another slot than its own counts as taken in when that slot is done: who makes the wheel anew would
        take it for delivered. A broker that has had no timed message yet writes nothing.
        """
        if not self._wheel.exists and self._progress.reached == Reached():
            return
        if self._queue_offset >= self._delivered.queue_offset:
            offset = self._queue_offset if self._first_late < 0 else self._first_late
            self._progress.set(Reached(
                self._read_ms, offset, self._slot_done, self._units.end, window_ms=self._rules.window_ms,
                handled=self._handled,
            ))  # fmt: skip

    def _sync(self) -> None:
        self._units.sync()
        self._wheel.sync()


def _magic(place: SlotPlace, *, deletes: bool) -> int:
    return units.DEFAULT | (units.ROLL if place.rolled else 0) | (units.DELETE if deletes else 0)
