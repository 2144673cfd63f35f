"""One client process: its queues and the messages that its handlers were given."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dejamq_analytics.evidence.mark import Mark, QueueName
from dejamq_analytics.evidence.process import Process
from dejamq_analytics.evidence.stored import Stored

OPENED, ENTERED, PERSISTED, ENDED, DROPPED, LAST = range(6)
"""The order of a client's acts within one moment of its clock."""
REQUEST = re.compile(r"[0-9A-Fa-f]{32}$|[0-9A-Fa-f]{56}$")

MADE_UP = r"@\d+~[0-9A-Fa-f]{8}"
"""In the name of a client that is known by an ``Origin`` alone: no log tells its id."""


class Origin:
    """The process that made an id of RocketMQ's: its address, the lower half of its process id, its class loader."""

    def __init__(self, unique_id: str) -> None:
        address, rest = (unique_id[:8], unique_id[8:]) if len(unique_id) == 32 else (unique_id[:32], unique_id[32:])
        self.ip = ".".join(str(byte) for byte in bytes.fromhex(address)) if len(address) == 8 else address
        self.pid = int(rest[:4], 16)
        self.key = f"{self.ip}@{self.pid}~{rest[4:12]}"


def origin_of(unique_id: str) -> Origin | None:
    """None for an id of another form, such as one of a gRPC client."""
    return Origin(unique_id) if REQUEST.match(unique_id) else None


@dataclass
class Hold:
    """One time that a process had a queue: a process queue."""

    pq_id: int
    group: str
    queue: QueueName
    opened: Mark | None
    ended_us: int | None = None
    entered: list["GivenMessage"] = field(default_factory=list)
    persisted: list[tuple[int, int]] = field(default_factory=list)
    not_told: list[int] = field(default_factory=list)
    """When its offset could not be told."""
    begun_at: int | None = None
    unlocking: tuple[int, dict[str, Any]] | None = None
    """When its lock was given back, and that event."""
    opening: dict[str, Any] | None = None
    dropping: dict[str, Any] | None = None
    told_last: dict[str, Any] | None = None
    """Its events PQ_OPEN and PQ_DROP, and its last PERSIST."""
    low_waters: list[tuple[int, int]] | None = None
    """Its low-water mark from each moment on; made when all its deliveries are known."""
    highest: int = -1
    """The highest offset that was told."""
    last_entered: dict[Stored, int] = field(default_factory=dict)
    """When a handler was last given each record."""

    def persist(self, at_us: int, value: int) -> None:
        """An offset was told, in the order of time."""
        self.persisted.append((at_us, value))
        self.highest = max(self.highest, value)

    def enter(self, given: "GivenMessage", record: Stored) -> None:
        """A handler was given a record that came through this queue."""
        self.entered.append(given)
        self.last_entered[record] = max(given.mark.at_us, self.last_entered.get(record, given.mark.at_us))

    @property
    def start(self) -> int | None:
        """A client of version 5 does not say where it begins: not behind what it told first, nor what it delivered."""
        if self.begun_at is not None:
            return self.begun_at
        known = [value for _, value in self.persisted[:1]]
        known += [one.record.queue_offset for one in self.entered if one.record]
        return min(known, default=None)

    def in_flight(self, at_us: int) -> int:
        """How many handlers worked on its messages at a moment."""
        return sum(one.mark.at_us <= at_us and (one.ended is None or one.ended.at_us > at_us) for one in self.entered)


@dataclass
class GivenMessage:
    """A message that a handler was given."""

    mark: Mark
    delivery_id: int
    process: "ClientStart"
    record: Stored | None = None
    hold: Hold | None = None
    ended: Mark | None = None
    kind: str = "first"
    thrown_away: bool = False
    expired: Mark | None = None
    """The line that its time is over."""


class ClientStart(Process):
    """A client process with its queues and deliveries."""

    def __init__(self, key: str, name: str, client_id: str) -> None:
        super().__init__(key, name, "consumer")
        self.client_id = client_id
        self.pid = ""
        self.ip = client_id.partition("@")[0]
        self.holds: list[Hold] = []
        self._holds_of: dict[tuple[str, QueueName], list[Hold]] = defaultdict(list)
        self._kinds: dict[str, list[Mark]] | None = None
        self.given: list[GivenMessage] = []
        self.orderly: set[str] = set()
        self.broadcasting: set[str] = set()
        self.groups: set[str] = set()
        self.closed_us: int | None = None
        self.lost_us: int | None = None
        """Before this its last connection had ended, as brokers and other members tell."""
        self.lost: Mark | None = None

    def open(self, group: str, queue: QueueName, opened: Mark | None) -> Hold:
        """One more process queue."""
        hold = Hold(len(self.holds) + 1, group, queue, opened)
        self.holds.append(hold)
        self._holds_of[group, queue].append(hold)
        return hold

    def holds_of(self, group: str, queue: QueueName) -> Sequence[Hold]:
        """Its process queues of this queue, in the order in which they were opened."""
        return self._holds_of.get((group, queue), ())

    def hold_at(self, group: str, queue: QueueName, at_us: int) -> Hold | None:
        """Its process queue of this queue at a moment: the last one opened by then."""
        of_queue = reversed(self.holds_of(group, queue))
        return next((one for one in of_queue if one.opened is None or one.opened.at_us <= at_us), None)

    def marks_of(self, what: str) -> Sequence[Mark]:
        """Lines of one kind in the order of time, once all of its log is read."""
        if self._kinds is None:
            self._kinds = defaultdict(list)
            for mark in self.marks:
                self._kinds[mark.what].append(mark)
        return self._kinds.get(what, ())

    def marks_between(self, what: str, since_us: int, until_us: int) -> Sequence[Mark]:
        """Those from the first moment to the last one, both included."""
        every = self.marks_of(what)
        return every[bisect_left(every, since_us, key=_time) : bisect_right(every, until_us, key=_time)]


def _time(mark: Mark) -> int:
    return mark.at_us
