"""The evidence that is not there and would make an audit surer, as an operator would fetch it or switch it on.

Traces may be lost. A client drops those that it cannot send, and one that is killed has not sent its last ones. The
offsets that it told show that: its handlers had what lies below. So do records between two of a queue that were traced.
What a filter left out, and what a reset jumped over, no handler had: where the evidence shows either, nothing is lost.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dejamq_analytics.evidence.client import ClientStart, GivenMessage, Hold
from dejamq_analytics.evidence.mark import MS, SECOND, PropertyFilters, QueueName, Reset
from dejamq_analytics.evidence.process import Process
from dejamq_analytics.evidence.stored import Records, Stored

NO_TRACE = (
    "trace records of {}: its deliveries cannot be seen. Switch on enableTrace in the client and traceTopicEnable in "
    "the broker"
)
LOST_TRACES = (
    "trace records of {} message(s) that {} had by the offsets told, as {} queue {} offset {}: a client "
    "drops traces that it cannot send, and sends none where a broker has traceOn=false"
)
BROADCASTS = "each member of {}: the group broadcasts, so nothing shows a member whose machine is not among these"
NO_LOG = "the log of {}: logs/rocketmqlogs/rocketmq_client.log in the home of its user"
NO_STORE = "the commit log of each broker: its store directory, with --store or among the others"
EMPTY_STORE = "records in {}: this store is empty, so that nothing tells whose it is. Copy its folder commitlog again"
NO_BROKER_LOG = "broker.log and store.log of each broker: logs/rocketmqlogs in the home of its user"


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
    """So many messages of a member; of a group where no log tells which member had them. ``offset`` is one of them."""

    who: str
    messages: int
    queue: QueueName
    offset: int


def of(
    processes: Iterable[Process],
    stores: Mapping[str, bool],
    lost: Iterable[Untraced] = (),
    *,
    broadcasting: Iterable[str] = (),
    journaled: bool = False,
) -> tuple[list[str], bool]:
    """In words; and whether there may be deliveries that nobody can see, as those whose traces are ``lost``.

    ``stores``: by folder, whether there is any record. ``broadcasting``: groups that brokers name so. Their members
    keep offsets in files of their own. ``journaled``: the brokers have journals.
    """
    every = [*processes]
    clients = [one for one in every if isinstance(one, ClientStart) and (one.holds or one.given)]
    silent = [one.name for one in clients if "trace" not in one.has and _worked(one)]
    dropped = [
        LOST_TRACES.format(one.messages, one.who, one.queue.topic, one.queue.queue_id, one.offset) for one in lost
    ]
    everywhere = {*broadcasting}.union(*(one.broadcasting for one in clients))
    unlogged = [one.name for one in clients if "log" not in one.has]
    found = [NO_TRACE.format(name) for name in sorted(silent)] + [NO_LOG.format(name) for name in sorted(unlogged)]
    found += dropped + [BROADCASTS.format(group) for group in sorted(everywhere)]
    stored = any(stores.values())
    found += [EMPTY_STORE.format(store) for store, filled in sorted(stores.items()) if not filled]
    if not stores:
        found.append(NO_STORE)
    if not journaled and not any("broker.log" in one.has for one in every):
        found.append(NO_BROKER_LOG)
    return found, bool(silent or dropped or everywhere) or not stored or not (clients or journaled)


def kinds(processes: Iterable[Process]) -> dict[str, set[str]]:
    """Of each role the kinds of evidence that there are of every such process."""
    found: dict[str, set[str]] = {}
    for one in processes:
        role = one.role
        if isinstance(one, ClientStart) and not (one.holds or one.given):
            role = "producer"
        found[role] = one.has & found[role] if role in found else set(one.has)
    return found


def _worked(client: ClientStart) -> bool:
    """Whether it may have been given something: a queue that it told an offset of was not empty. A member that
    broadcasts keeps its offsets in a file of its own, so nothing speaks against it.
    """
    return bool(client.broadcasting) or any(hold.highest > 0 for hold in client.holds)


def untraced(
    clients: Iterable[ClientStart], given: Iterable[GivenMessage], records: Records, shown: Shown = NOTHING_SHOWN
) -> list[Untraced]:
    """By member and by group. A record that a filter of the group may have left out is none, nor is one that a reset
    jumped over; one that the stores lack is one, as its trace may lie where it lay.
    """
    clients, given = [*clients], [*given]
    traced, jumps = _Traced(given, shown.filters), _jumps(clients, given, shown.resets)
    by_queue = _by_queue(records)
    found: list[Untraced] = []
    told_of: dict[tuple[str, QueueName], list[int]] = defaultdict(list)
    for client in clients:
        for hold in client.holds:
            told_of[hold.group, hold.queue] += [value for _, value in hold.persisted]
    for client in clients:
        for hold in client.holds if "trace" in client.has else []:
            told = [value for _, value in hold.persisted]
            told += _first_after(client, hold, by_queue[hold.queue]) if told else []
            there, absent = [*_between(by_queue[hold.queue], told)], NONE
            jumped = jumps[hold.group, hold.queue]
            gone = [
                one.queue_offset for one in there
                if not traced.by_member(client, hold.group, one) and traced.would_have(hold.group, one)
                and not _in(jumped, one.queue_offset)
            ]  # fmt: skip
            if hold.queue.broker_name in records.brokers:
                lowest = by_queue[hold.queue][0].queue_offset if by_queue[hold.queue] else 0
                absent = _absent(there, told, lowest, jumped)
            found += _told(client.name, hold.queue, gone, absent)
    for (group, queue), offsets in sorted(traced.offsets.items()):
        gone = [
            one.queue_offset for one in _between(by_queue[queue], [*offsets, *told_of[group, queue]])
            if not traced.by_group(group, one) and traced.would_have(group, one)
            and not _in(jumps[group, queue], one.queue_offset)
        ]  # fmt: skip
        found += _told(f"the members of {group}", queue, gone)
    return found


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
            self._members.add((one.process.key, place))
            self._places.add(place)
            self._looks.add((group, record.queue.topic, self._look(group, record)))

    def by_member(self, client: ClientStart, group: str, record: Stored) -> bool:
        return (client.key, (group, record.queue, record.queue_offset)) in self._members or self._somewhere(
            group, record
        )

    def by_group(self, group: str, record: Stored) -> bool:
        return (group, record.queue, record.queue_offset) in self._places or self._somewhere(group, record)

    def _somewhere(self, group: str, record: Stored) -> bool:
        """A delivery of this message to the group may have been of any of its records."""
        return (group, record.unique_key) in self._unplaced

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
