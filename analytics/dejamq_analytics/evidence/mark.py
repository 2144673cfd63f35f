"""What one line, record or answer tells, before it is known which process it is of."""

from typing import Any, NamedTuple

MS = 1000
SECOND = 1_000_000


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


class Queue(NamedTuple):
    """A message queue as RocketMQ names it."""

    topic: str
    broker_name: str
    queue_id: int
