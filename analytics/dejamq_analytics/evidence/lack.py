"""The evidence that is not there and would make an audit surer, as an operator would fetch it or switch it on.

Clean is what every delivery can be seen of. So each member's log must be whole from its start to its orderly stop, and
brokers must tell who the members were.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dejamq_analytics.evidence.brokers import LEFT
from dejamq_analytics.evidence.client import ClientStart
from dejamq_analytics.evidence.mark import Mark
from dejamq_analytics.evidence.process import Process
from dejamq_analytics.evidence.untraced import Untraced

NO_TRACE = (
    "trace records of {}: its deliveries cannot be seen. Switch on enableTrace in the client and traceTopicEnable in "
    "the broker"
)
LOST_TRACES = (
    "trace records of {} message(s) that {} had by the offsets told, as {} queue {} offset {}: a client "
    "drops traces that it cannot send, and sends none where a broker has traceOn=false"
)
NO_FIRST_TRACE = (
    "the trace record of {} for {} queue {} offset {}, if there was one: it had the queue while that message lay "
    "there, and told no higher offset"
)
BROADCASTS = "each member of {}: the group broadcasts, so nothing shows a member whose machine is not among these"
NO_BEGIN = "the begin of the log of {}: what its handlers were given before may have no trace"
NO_END = "the end of the log of {}, until it stopped in order: what its handlers were given last may have no trace"
NOT_JOINED = "broker.log of the time when {} joined: it may tell of other members, whose machines are not among these"
NO_LINES = "lines of use in the client's log of machine {}: its level is INFO where nobody set another"
NO_LOG = "the log of {}: logs/rocketmqlogs/rocketmq_client.log in the home of its user"
NO_STORE = "the commit log of each broker: its store directory, with --store or among the others"
EMPTY_STORE = "records in {}: this store is empty, so that nothing tells whose it is. Copy its folder commitlog again"
NO_BROKER_LOG = "broker.log and store.log of each broker: logs/rocketmqlogs in the home of its user"


class ToldMembers(NamedTuple):
    """Client ids of consumers that brokers' logs tell of, those whose begin they tell, and groups that broadcast."""

    known: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()
    broadcasting: frozenset[str] = frozenset()


def told_members(marks: Iterable[Mark]) -> ToldMembers:
    """What lines of brokers tell."""
    lines = [mark for mark in marks if mark.what in ("joined", *LEFT)]
    joined = [mark.said for mark in lines if mark.what == "joined"]
    return ToldMembers(
        frozenset(mark.said["client_id"] for mark in lines if mark.said.get("client_id")),
        frozenset(said["client_id"] for said in joined),
        frozenset(said["group"] for said in joined if said["model"] == "BROADCASTING"),
    )


def of(
    processes: Iterable[Process],
    stores: Mapping[str, bool],
    lost: Iterable[Untraced] = (),
    *,
    members: ToldMembers,
    mute: Iterable[str] = (),
    journaled: bool = False,
) -> tuple[list[str], bool]:
    """In words; and whether there may be deliveries that nobody can see, as those whose traces are ``lost``.

    ``stores``: by folder, whether there is any record. ``members`` that broadcast keep offsets in files of their own.
    ``mute``: machines whose client logs tell nothing. ``journaled``: the brokers have journals.
    """
    every = [*processes]
    clients = [one for one in every if isinstance(one, ClientStart) and (one.holds or one.given)]
    silent = [one.name for one in clients if "trace" not in one.has and _worked(one)]
    dropped = [_lost(one) for one in lost]
    everywhere = members.broadcasting.union(*(one.broadcasting for one in clients))
    found = [NO_TRACE.format(name) for name in sorted(silent)]
    untold = [] if journaled else [*_untold(every, clients, members), *map(NO_LINES.format, sorted(mute))]
    found += untold or [NO_LOG.format(one.name) for one in clients if "log" not in one.has]
    found += dropped + [BROADCASTS.format(group) for group in sorted(everywhere)]
    stored = any(stores.values())
    found += [EMPTY_STORE.format(store) for store, filled in sorted(stores.items()) if not filled]
    if not stores:
        found.append(NO_STORE)
    if not journaled and not any("broker.log" in one.has for one in every):
        found.append(NO_BROKER_LOG)
    return found, bool(silent or dropped or everywhere or untold) or not stored or not (clients or journaled)


def _untold(every: Iterable[Process], clients: Iterable[ClientStart], told: ToldMembers) -> Iterable[str]:
    """What of the members' time no log tells. A second delivery of then leaves no sign where its trace is lost too."""
    logged = [one for one in every if isinstance(one, ClientStart) and one.marks and one.client_id in told.known]
    yield from (NO_LOG.format(name) for name in sorted(told.known - {one.client_id for one in (*clients, *logged)}))
    members = {one.name: one for one in (*clients, *logged)}
    for _, one in sorted(members.items()):
        if "log" not in one.has:
            yield NO_LOG.format(one.name)
            continue
        if not one.marks_of("created") and not one.marks_of("starting"):
            yield NO_BEGIN.format(one.name)
        if one.closed_us is None:
            yield NO_END.format(one.name)
        if one.client_id not in told.joined:
            yield NOT_JOINED.format(one.name)


def _lost(one: Untraced) -> str:
    """In words."""
    place = one.queue.topic, one.queue.queue_id, one.offset
    if one.messages:
        return LOST_TRACES.format(one.messages, one.who, *place)
    return NO_FIRST_TRACE.format(one.who, *place)


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
