"""What one line, record or answer tells, before it is known which process it is of."""

from typing import Any, NamedTuple

MS = 1000
SECOND = 1_000_000
LARGEST, LONGEST = 1 << 63, 20


def whole(text: object) -> int:
    """A number that a line tells. Raises ValueError for one that no Java program writes: beyond 64 bits, or none."""
    if isinstance(text, str) and len(text) > LONGEST:
        raise ValueError("a number of more than 64 bits")
    number = int(text) if isinstance(text, str | int) and not isinstance(text, bool) else LARGEST
    if not -LARGEST <= number < LARGEST:
        raise ValueError("a number of more than 64 bits")
    return number


def moment_us(text: object) -> int:
    """Milliseconds since 1970 in microseconds. Raises ValueError for a time that no journal can hold."""
    return whole(whole(text) * MS)


class Mark(NamedTuple):
    """``what`` names the kind, and ``said`` has its fields. The act was at ``at_us`` or up to ``within_us`` later."""

    at_us: int
    within_us: int
    source: str
    """The file and the line, or the place in a store."""
    host: str
    """The folder that the file came in: one for each machine."""
    what: str
    said: dict[str, Any]
    pid: str = ""


class QueueName(NamedTuple):
    """A message queue as RocketMQ names it."""

    topic: str
    broker_name: str
    queue_id: int


class Reset(NamedTuple):
    """An offset of a group that somebody set, at ``latest_us`` or before."""

    group: str
    queue: QueueName
    new: int
    latest_us: int
