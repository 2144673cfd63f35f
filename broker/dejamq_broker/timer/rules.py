"""What a timed message asks for, how it waits, and what is delivered. Pure, but for the clock.

A timed message waits in ``rmq_sys_wheel_timer`` with its own topic and queue in REAL_TOPIC and REAL_QID, and with the
start of its slot in TIMER_OUT_MS. Source: RocketMQ ``HookUtils``, ``TimerMessageStore``.
"""

from collections.abc import Callable, Mapping

import msgspec
from dejamq_proto import names
from dejamq_proto.records.recall_handle import LONGEST_NUMBER
from dejamq_proto.records.record import MAX_PROPERTIES_SIZE, BadRecord, Record, encode_properties

WHEEL_SLOTS = 7 * 24 * 3600
"""A message never waits in a slot that is further away (RocketMQ: TIMER_WHEEL_TTL_DAY, whatever the precision)."""
SPARE_SLOTS = 60
NO_END_MS = (1 << 63) - 1


class SlotPlace(msgspec.Struct, frozen=True):
    """Where a message waits: the start of its slot (ms). ``rolled``: from there it is stored again, to wait on."""

    slot_ms: int
    rolled: bool


class TimerRules:
    """The limits of one broker, applied to messages."""

    def __init__(
        self, precision_ms: int, max_delay_ms: int, window_slots: int, clock_ms: Callable[[], int],
        log_kept_ms: int = NO_END_MS,
    ) -> None:  # fmt: skip
        """``log_kept_ms``: after so long log files expire. No message waits in one place for more than two thirds of
        that, or it would expire with the log, as RocketMQ lets it. With the defaults both bounds are two days.
        """
        self.precision_ms, self._max_delay_ms, self._clock_ms = precision_ms, max_delay_ms, clock_ms
        most = WHEEL_SLOTS - SPARE_SLOTS
        slots = window_slots if 2 <= window_slots <= most else most
        self.roll_window_ms = slots * precision_ms
        """As RocketMQ has it, which pays no heed to the log's life."""
        self.window_ms = min(slots, max(2, log_kept_ms * 2 // 3 // precision_ms)) * precision_ms

    def waiting(self, record: Record) -> Record:
        """The record as it waits for its time, or itself when it asks for none or its time has come.

        Raises BadRecord for a time that is no number, or too far away. A record with TIMER_OUT_MS has waited before.
        """
        properties = record.properties
        deliver_ms = self.deliver_ms(properties)
        if deliver_ms is None or names.PROPERTY_TIMER_OUT in properties or record.topic == names.TIMER_TOPIC:
            return record
        if deliver_ms <= self._clock_ms():
            if names.PROPERTY_TIMER_DELETE_KEY in properties:
                raise BadRecord("timer message illegal, it is too late to recall what was due before")
            return record
        more = {
            names.PROPERTY_TIMER_OUT: str(self.out_ms(deliver_ms)), names.PROPERTY_REAL_TOPIC: record.topic,
            names.PROPERTY_REAL_QUEUE: str(record.queue_id),
        }  # fmt: skip
        return msgspec.structs.replace(
            record, topic=names.TIMER_TOPIC, queue_id=0, raw_properties=encode_properties(properties | more), magic=None
        )

    def deliver_ms(self, properties: Mapping[str, str]) -> int | None:
        """When it is to be delivered; None: whenever it comes. Raises as ``waiting``."""
        asked = next((name for name in names.ASKING_FOR_A_TIME if name in properties), None)
        if asked is None:
            return None
        text, now_ms = properties[asked], self._clock_ms()
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or len(digits) > LONGEST_NUMBER:
            raise BadRecord(f"timer message illegal, {asked} is {text[:20]!r}, which is no number")
        number = int(text) * (1000 if asked == names.PROPERTY_TIMER_DELAY_SEC else 1)
        deliver_ms = number if asked == names.PROPERTY_TIMER_DELIVER else now_ms + number
        if deliver_ms - now_ms > self._max_delay_ms:
            text = f"it is due in {(deliver_ms - now_ms) // 1000} s, and at most {self._max_delay_ms // 1000} s are"
            raise BadRecord(f"timer message illegal, {text} possible (timer_max_delay_sec)")
        return deliver_ms

    def out_ms(self, deliver_ms: int) -> int:
        """The start of the slot of a delivery time.

        A slot is handled when it is over. A time that begins one belongs to the one before, so that it comes in time.
        """
        return (deliver_ms - 1) // self.precision_ms * self.precision_ms

    def floor(self, time_ms: int) -> int:
        return time_ms // self.precision_ms * self.precision_ms

    def place(self, out_ms: int, stored_ms: int, window_ms: int | None = None) -> SlotPlace:
        """Where a message waits that was stored at this time.

        What waits for longer than the window is stored again on its way, so that the log keeps it. The place follows
        from the record and the window: who makes the wheel anew puts it there again.
        """
        stored_ms, window_ms = self.floor(stored_ms), self.window_ms if window_ms is None else window_ms
        beyond_ms = out_ms - stored_ms - window_ms
        if beyond_ms < 0:
            return SlotPlace(self.floor(out_ms), rolled=False)
        near = beyond_ms < window_ms // 3  # the next wait would be a short one
        return SlotPlace(stored_ms + (self.floor(window_ms // 2) if near else window_ms), rolled=True)


def out_of(properties: Mapping[str, str]) -> int | None:
    """TIMER_OUT_MS of a record in the timer topic; None for a stranger's, which has none."""
    text = properties.get(names.PROPERTY_TIMER_OUT, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER else None


def rolled(record: Record, handled_ms: int) -> Record:
    """The record as it goes on waiting."""
    properties = record.properties
    times = properties.get(names.PROPERTY_TIMER_ROLLS, "0")
    more = {names.PROPERTY_TIMER_ROLLS: str((int(times) if times.isdigit() and len(times) < 9 else 0) + 1)}
    return _restamped(record, properties | more, handled_ms)


def due(original: Record, enqueued_ms: int, handled_ms: int) -> Record:
    """``original`` is the record as its consumers see it, to which RocketMQ adds when it was handled."""
    return _restamped(original, original.properties | {names.PROPERTY_TIMER_ENQUEUED: str(enqueued_ms)}, handled_ms)


def _restamped(record: Record, properties: dict[str, str], handled_ms: int) -> Record:
    """Unchanged where its properties are so long already that no record could hold more."""
    raw = encode_properties(properties | {names.PROPERTY_TIMER_DEQUEUED: str(handled_ms)})
    if len(raw) > MAX_PROPERTIES_SIZE:
        return msgspec.structs.replace(record, magic=None)
    return msgspec.structs.replace(record, raw_properties=raw, magic=None)


def recalled_by(properties: Mapping[str, str]) -> tuple[tuple[str, str], tuple[str, str]]:
    """Topics and keys of marks that recall this message: RocketMQ before 5.3.2 knew the second form only."""
    topic, unique = properties.get(names.PROPERTY_REAL_TOPIC, ""), properties.get(names.PROPERTY_UNIQUE_KEY, "")
    return (topic, delete_key(topic, unique)), (topic, unique)


def delete_key(topic: str, unique_key: str) -> str:
    """How a mark names the message that it recalls."""
    return f"{topic}+{unique_key}"
