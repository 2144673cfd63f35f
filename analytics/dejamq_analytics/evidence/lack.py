"""The evidence that is not there and would make an audit surer, as an operator would fetch it or switch it on.

Traces may be lost. A client drops those that it cannot send, and one that is killed has not sent its last ones. The
offsets that it told show that: its handlers had what lies below. So do records between two of a queue that were traced.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dejamq_analytics.evidence.client import ClientStart, GivenMessage
from dejamq_analytics.evidence.mark import QueueName
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
NO_LOG = "the log of {}: logs/rocketmqlogs/rocketmq_client.log in the home of its user"
NO_STORE = "the commit log of each broker: its store directory, with --store or among the others"
NO_BROKER_LOG = "broker.log and store.log of each broker: logs/rocketmqlogs in the home of its user"


Place = tuple[str, QueueName, int]
"""A group, a queue, and an offset of it."""


class Untraced(NamedTuple):
    """So many messages of a member; of a group where no log tells which member had them. ``offset`` is one of them."""

    who: str
    messages: int
    queue: QueueName
    offset: int


def of(
    processes: Iterable[Process], stores: Iterable[str], lost: Iterable[Untraced] = (), *, journaled: bool = False
) -> tuple[list[str], bool]:
    """In words; and whether there were deliveries that nobody can see, as those whose traces are ``lost``.

    ``journaled``: the brokers have journals.
    """
    every = [*processes]
    clients = [one for one in every if isinstance(one, ClientStart) and (one.holds or one.given)]
    silent = [one.name for one in clients if "trace" not in one.has and _worked(one)]
    dropped = [
        LOST_TRACES.format(one.messages, one.who, one.queue.topic, one.queue.queue_id, one.offset) for one in lost
    ]
    unlogged = [one.name for one in clients if "log" not in one.has]
    found = [NO_TRACE.format(name) for name in sorted(silent)] + [NO_LOG.format(name) for name in sorted(unlogged)]
    found += dropped
    stored = any(stores)
    if not stored:
        found.append(NO_STORE)
    if not journaled and not any("broker.log" in one.has for one in every):
        found.append(NO_BROKER_LOG)
    return found, bool(silent or dropped) or not stored or not (clients or journaled)


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
    """Whether it may have been given something: a queue that it told an offset of was not empty."""
    return any(value > 0 for hold in client.holds for _, value in hold.persisted)


def untraced(clients: Iterable[ClientStart], given: Iterable[GivenMessage], records: Records) -> list[Untraced]:
    """By member and by group. A record that a filter of the group may have left out is none; one that the stores lack
    is one, as its trace may lie where it lay.
    """
    traced = _Traced(given)
    by_queue = _by_queue(records)
    found: list[Untraced] = []
    for client in clients:
        for hold in client.holds if "trace" in client.has else []:
            told = [value for _, value in hold.persisted]
            there, absent = [*_between(by_queue[hold.queue], told)], NONE
            gone = [
                one.queue_offset for one in there
                if not traced.by_member(client, hold.group, one) and traced.would_have(hold.group, one)
            ]  # fmt: skip
            if hold.queue.broker_name in records.brokers:
                lowest = by_queue[hold.queue][0].queue_offset if by_queue[hold.queue] else 0
                absent = _absent(there, told, lowest)
            found += _told(client.name, hold.queue, gone, absent)
    for (group, queue), offsets in sorted(traced.offsets.items()):
        gone = [
            one.queue_offset for one in _between(by_queue[queue], offsets)
            if not traced.by_group(group, one) and traced.would_have(group, one)
        ]  # fmt: skip
        found += _told(f"the members of {group}", queue, gone)
    return found


class Absent(NamedTuple):
    """How many offsets a store lacks, and the first one."""

    messages: int
    first: int


NONE = Absent(0, 0)


class _Traced:
    """What trace records tell of deliveries."""

    def __init__(self, given: Iterable[GivenMessage]) -> None:
        self.offsets: dict[tuple[str, QueueName], list[int]] = defaultdict(list)
        self._members: set[tuple[str, Place]] = set()
        self._places: set[Place] = set()
        self._tags: set[tuple[str, str, str]] = set()
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
            self._tags.add((group, record.queue.topic, record.tags))

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
        """The group has no filter by tag that leaves it out: it was given one of the same tag. A retry has none."""
        topic = record.queue.topic
        return topic.startswith("%") or (group, topic, record.tags) in self._tags


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


def _absent(there: Sequence[Stored], offsets: Sequence[int], lowest: int) -> Absent:
    """Offsets of that range that no store has a record of. Below the ``lowest`` that it has they expired."""
    if not offsets:
        return NONE
    begin = max(min(offsets), lowest)
    known = sorted({one.queue_offset for one in there})
    count = max(offsets) - begin - len(known)
    if count <= 0:
        return NONE
    gaps = (begin + at for at, offset in enumerate(known) if offset != begin + at)
    return Absent(count, next(gaps, begin + len(known)))


def _told(who: str, queue: QueueName, gone: Sequence[int], absent: Absent = NONE) -> list[Untraced]:
    count = len(gone) + absent.messages
    first = min([*gone, *([absent.first] if absent.messages else [])], default=0)
    return [Untraced(who, count, queue, first)] if count else []
