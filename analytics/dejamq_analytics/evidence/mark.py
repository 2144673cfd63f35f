"""What one line, record or answer tells, before it is known which process it is of."""

import re
from collections import defaultdict
from collections.abc import Iterable, Set
from typing import Any, NamedTuple

MS = 1000
SECOND = 1_000_000
SAME_CLOCK_US, TWO_CLOCKS_US = 2 * MS, 2 * SECOND
"""How far two lines of one machine, or of two whose clocks are taken for right, must be apart to be in order."""
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


QUOTED = re.compile(r"'[^']*'")
NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


class PropertyFilters:
    """Subscriptions by SQL92, as brokers tell of them. What such a filter answers depends on the properties it names.

    The names are kept by group and topic. Words of the language are among them, and do no harm.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], set[str]] = defaultdict(set)

    def learn(self, marks: Iterable[Mark]) -> None:
        """From lines and answers that tell of a group's filters. One that changed has the names of all."""
        for mark in marks:
            for topic, expression in mark.said.get("filters", {}).items():
                self._names[mark.said["group"], topic] |= {*NAME.findall(QUOTED.sub("", expression))}

    def properties(self, topic: str) -> Set[str]:
        """Which properties of the topic's messages any group's filter looks at."""
        return {name for (_, of), names in self._names.items() if of == topic for name in names}

    def of(self, group: str, topic: str) -> Set[str] | None:
        """Which ones this group's filter looks at; None where it is not known to filter by them."""
        return self._names.get((group, topic))
