"""Messages that a member had, or may have had, and that no trace tells of.

A client drops traces that it cannot send, and one that is killed has not sent its last ones. The offsets that it told
show that: its handlers had what lies below, from where the queue stood when it got it. So do records between two of a
queue that were traced. What a filter left out, and what a reset jumped over, no handler had: where the evidence shows
either, nothing is lost.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dejamq_analytics.evidence.client import ClientStart, GivenMessage, Hold
from dejamq_analytics.evidence.mark import MS, SECOND, PropertyFilters, QueueName, Reset
from dejamq_analytics.evidence.stored import Records, Stored

Span = tuple[int, int]
Looks = str | tuple[tuple[str, str], ...]
Place = tuple[str, QueueName, int]
"""A group, a queue, and an offset of it."""


SAME_TIME_US = SECOND
"""Two machines' clocks are taken for right up to this."""


class Shown(NamedTuple):
    """What evidence shows of offsets that no handler passed: filters by properties, and offsets that somebody set."""

    filters: PropertyFilters
    resets: Sequence[Reset]


NOTHING_SHOWN = Shown(PropertyFilters(), ())


class Untraced(NamedTuple):
    """So many messages of a member; of a group where no log tells which member had them. ``offset`` is one of them.

    ``messages`` is 0 where it may have had the one at this offset, or none.
    """

    who: str
    messages: int
    queue: QueueName
    offset: int


def find(
    clients: Iterable[ClientStart], given: Iterable[GivenMessage], records: Records, shown: Shown = NOTHING_SHOWN
) -> list[Untraced]:
    """By member and by group. A record that a filter of the group may have left out is none, nor is one that a reset
    jumped over; one that the stores lack is one, as its trace may lie where it lay.
    """
    search = _Search([*clients], [*given], records, shown)
    found: list[Untraced] = []
    for client in search.clients:
        for hold in client.holds:
            if "trace" in client.has:
                found += search.passed(client, hold)
            if "trace" in client.has or hold.highest <= 0:
                found += search.in_hand(client, hold)
    return found + search.of_groups()


class _Search:
    """All that is told of queues, by group and queue."""

    def __init__(
        self, clients: Sequence[ClientStart], given: Sequence[GivenMessage], records: Records, shown: Shown
    ) -> None:
        self.clients, self._brokers = clients, records.brokers
        self._traced, self._jumps = _Traced(given, shown.filters), _jumps(clients, given, shown.resets)
        self._by_queue = _by_queue(records)
        self._told: dict[tuple[str, QueueName], list[tuple[int, int]]] = defaultdict(list)
        for client in clients:
            for hold in client.holds:
                self._told[hold.group, hold.queue] += hold.persisted
        for acts in self._told.values():
            acts.sort()

    def passed(self, client: ClientStart, hold: Hold) -> list[Untraced]:
        """What lies below the offsets that it told, from where it began."""
        records, jumped = self._by_queue[hold.queue], self._jumps[hold.group, hold.queue]
        told = [value for _, value in hold.persisted]
        if told:
            told += _first_after(client, hold, records)
            told += [value for value in self._before(client, hold) if value < hold.highest]
        there, absent = _between(records, told), NONE
        gone = [
            one.queue_offset for one in there
            if self._traced.lacks(client, hold.group, one) and not _in(jumped, one.queue_offset)
        ]  # fmt: skip
        if hold.queue.broker_name in self._brokers:
            absent = _absent(there, told, records[0].queue_offset if records else 0, jumped)
        return _told(client.name, hold.queue, gone, absent)

    def in_hand(self, client: ClientStart, hold: Hold) -> list[Untraced]:
        """The message at which its offset stood last, where it lay there in time: a handler may have been given it."""
        stood = [value for _, value in hold.persisted[-1:]] or self._before(client, hold)
        stood = stood or self._traced.lowest(hold.group, hold.queue)
        return [
            Untraced(client.name, 0, hold.queue, one.queue_offset)
            for value in stood for one in _at(self._by_queue[hold.queue], value)
            if self._traced.lacks(client, hold.group, one) and one.stored_ms * MS <= _until(client, hold)
        ]  # fmt: skip

    def of_groups(self) -> list[Untraced]:
        """What lies between offsets that members told or were given, and none was given."""
        found: list[Untraced] = []
        for (group, queue), offsets in sorted(self._traced.offsets.items()):
            known = [*offsets, *(value for _, value in self._told[group, queue])]
            gone = [
                one.queue_offset for one in _between(self._by_queue[queue], known)
                if not self._traced.by_group(group, one) and self._traced.would_have(group, one)
                and not _in(self._jumps[group, queue], one.queue_offset)
            ]  # fmt: skip
            found += _told(f"the members of {group}", queue, gone)
        return found

    def _before(self, client: ClientStart, hold: Hold) -> list[int]:
        """The last offset that any member told before this one had the queue: it began there or before."""
        if hold.opened is None or hold.group in client.broadcasting:
            return []
        told = self._told[hold.group, hold.queue]
        end = bisect_left(told, (hold.opened.at_us - SAME_TIME_US,))
        return [value for _, value in told[max(0, end - 1) : end]]


def _first_after(client: ClientStart, hold: Hold, records: Sequence[Stored]) -> list[int]:
    """The first offset stored after the member had the queue: it began there or before, whatever it told first."""
    if hold.opened is None or client.skew_ms is not None:
        return []
    open_us = hold.opened.at_us + hold.opened.within_us + SAME_TIME_US
    first = bisect_right(records, open_us, key=lambda one: one.stored_ms * MS)
    return [one.queue_offset for one in records[first : first + 1] if one.queue_offset < hold.highest]


class Absent(NamedTuple):
    """How many offsets a store lacks, and the first one."""

    messages: int
    first: int


NONE = Absent(0, 0)


class _Traced:
    """What trace records tell of deliveries."""

    def __init__(self, given: Iterable[GivenMessage], filters: PropertyFilters) -> None:
        self._filters = filters
        self.offsets: dict[tuple[str, QueueName], list[int]] = defaultdict(list)
        self._lowest: dict[tuple[str, QueueName], int] = {}
        self._members: set[tuple[str, Place]] = set()
        self._places: set[Place] = set()
        self._looks: set[tuple[str, str, Looks]] = set()
        self._unplaced: set[tuple[str, str]] = set()
        for one in given:
            group, record = one.mark.said["group"], one.record
            if record is None:
                self._unplaced.add((group, one.mark.said["unique_key"]))
                continue
            place = group, record.queue, record.queue_offset
            self.offsets[group, record.queue].append(record.queue_offset)
            known = self._lowest.get((group, record.queue), record.queue_offset)
            self._lowest[group, record.queue] = min(known, record.queue_offset)
            self._members.add((one.process.key, place))
            self._places.add(place)
            self._looks.add((group, record.queue.topic, self._look(group, record)))

    def by_member(self, client: ClientStart, group: str, record: Stored) -> bool:
        return (client.key, (group, record.queue, record.queue_offset)) in self._members or self._somewhere(
            group, record
        )

    def by_group(self, group: str, record: Stored) -> bool:
        return (group, record.queue, record.queue_offset) in self._places or self._somewhere(group, record)

    def lowest(self, group: str, queue: QueueName) -> list[int]:
        """The lowest offset of the queue that a handler of the group was given, if any was."""
        return [self._lowest[group, queue]] if (group, queue) in self._lowest else []

    def _somewhere(self, group: str, record: Stored) -> bool:
        """A delivery of this message to the group may have been of any of its records."""
        return (group, record.unique_key) in self._unplaced

    def lacks(self, client: ClientStart, group: str, record: Stored) -> bool:
        """No trace tells that this member was given it, although no filter left it out."""
        return not self.by_member(client, group, record) and self.would_have(group, record)

    def would_have(self, group: str, record: Stored) -> bool:
        """The group has no filter that leaves it out: it was given one that looks the same to it. A retry has none."""
        topic = record.queue.topic
        return topic.startswith("%") or (group, topic, self._look(group, record)) in self._looks

    def _look(self, group: str, record: Stored) -> Looks:
        """What the group's filter sees of a record: its tag, or the properties that an SQL92 filter names."""
        names = self._filters.of(group, record.queue.topic)
        return record.tags if names is None else tuple(one for one in record.facts if one[0] in names)


def _jumps(
    clients: Sequence[ClientStart], given: Sequence[GivenMessage], resets: Iterable[Reset]
) -> dict[tuple[str, QueueName], list[Span]]:
    """Offsets that nobody was given, as somebody had set the offset of a queue further on than its members were.

    They begin behind the last one told or traced below. Whoever may have been further before the reset did not jump.
    """
    found: dict[tuple[str, QueueName], list[Span]] = defaultdict(list)
    for reset in resets:
        group, queue, new, latest_us = reset
        holders = [one for one in clients if one.holds_of(group, queue)]
        told = [act for one in holders for hold in one.holds_of(group, queue) for act in hold.persisted]
        had = [
            (one.mark.at_us, one.record.queue_offset + 1) for one in given
            if one.record is not None and (one.mark.said["group"], one.record.queue) == (group, queue)
        ]  # fmt: skip
        in_time = latest_us + SAME_TIME_US
        ahead = any(at_us <= in_time and value >= new for at_us, value in told)
        ahead = ahead or any(at_us <= in_time and value > new for at_us, value in had)
        before = [value for _, value in told if value < new] + [value for _, value in had if value <= new]
        if before and not ahead and all(one.skew_ms is None for one in holders):
            found[group, queue].append((max(before), new))
    return found


def _in(spans: Iterable[Span], offset: int) -> bool:
    return any(begin <= offset < end for begin, end in spans)


def _by_queue(records: Records) -> dict[QueueName, list[Stored]]:
    found: dict[QueueName, list[Stored]] = defaultdict(list)
    for some in records.by_key.values():
        for one in some:
            found[one.queue].append(one)
    for there in found.values():
        there.sort(key=_offset)
    return found


def _offset(one: Stored) -> int:
    return one.queue_offset


def _between(records: Sequence[Stored], offsets: Sequence[int]) -> Sequence[Stored]:
    """Those from the lowest of the offsets up to the highest one, of records in their order."""
    if not offsets:
        return ()
    begin, end = (bisect_left(records, offset, key=_offset) for offset in (min(offsets), max(offsets)))
    return records[begin:end]


def _at(records: Sequence[Stored], offset: int) -> Sequence[Stored]:
    """Those of this offset, of records in their order."""
    return records[bisect_left(records, offset, key=_offset) : bisect_right(records, offset, key=_offset)]


def _until(client: ClientStart, hold: Hold) -> int:
    """The last moment that the member may have had the queue, by the clock of a broker."""
    last = client.marks[-1].at_us if client.marks else 0
    return (last if hold.ended_us is None else hold.ended_us) + SAME_TIME_US


def _absent(there: Sequence[Stored], offsets: Sequence[int], lowest: int, jumped: Sequence[Span] = ()) -> Absent:
    """Offsets of that range that no store has a record of. Below the ``lowest`` that it has they expired."""
    if not offsets:
        return NONE
    at, end = max(min(offsets), lowest), max(offsets)
    count, first = 0, 0
    known = [(one.queue_offset, one.queue_offset + 1) for one in there]
    for begin, behind in sorted([*known, *jumped, (end, end)]):
        gap = min(begin, end) - at
        if gap > 0:
            first = first if count else at
            count += gap
        at = max(at, behind)
    return Absent(count, first)


def _told(who: str, queue: QueueName, gone: Sequence[int], absent: Absent = NONE) -> list[Untraced]:
    count = len(gone) + absent.messages
    first = min([*gone, *([absent.first] if absent.messages else [])], default=0)
    return [Untraced(who, count, queue, first)] if count else []
