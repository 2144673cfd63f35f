"""What a copy of a popped message says of the delivery that it was made of."""

from dejamq_proto import names
from dejamq_proto.records.record import Record
from dejamq_proto.texts import MOST_32, number_of

from dejamq_broker.tables.offsets import Position

LONGEST_REFERENCE = 1024
"""Bytes of properties that ``reference`` takes at most, its name included."""


def reference(at: Position, offset: int, pop_time: int) -> str:
    """Names one delivery, in a property of the copy that was made of it."""
    return f"{at.topic} {at.queue_id} {offset} {pop_time} {at.group}"


def read_reference(copied: Record) -> tuple[Position, int, int] | None:
    """The queue, the offset and the pop time that a copy names."""
    fields = copied.properties.get(names.PROPERTY_POP_REF, "").split(" ")
    if len(fields) != 5:
        return None
    queue_id, queue_offset, pop_time = number_of(fields[1], MOST_32), number_of(fields[2]), number_of(fields[3])
    if queue_id is None or queue_offset is None or pop_time is None:
        return None
    return Position(fields[4], fields[0], queue_id), queue_offset, pop_time


def is_retry_of(topic: str, at: Position) -> bool:
    """Whether the topic is where the group gets what it did not acknowledge of this queue; both forms of its name."""
    return topic in (names.pop_retry_topic(at.group, at.topic, v2=v2) for v2 in (False, True))


def is_copy(copied: Record, original: Record) -> bool:
    """Whether a retry may have been made of this message. Of two that are alike, it does not matter of which one."""
    same = (copied.body, copied.born_timestamp_ms) == (original.body, original.born_timestamp_ms)
    key = names.PROPERTY_UNIQUE_KEY
    same &= copied.properties.get(key) == original.properties.get(key)
    return same and copied.reconsume_times == original.reconsume_times + 1
