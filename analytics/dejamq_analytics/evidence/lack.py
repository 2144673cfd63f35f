"""The evidence that is not there and would make an audit surer, as an operator would fetch it or switch it on."""

from collections.abc import Iterable

from dejamq_analytics.evidence.client import Client
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
NO_LOG = "the log of {}: logs/rocketmqlogs/rocketmq_client.log in the home of its user"
NO_STORE = "the commit log of each broker: its store directory, with --store or among the others"
NO_BROKER_LOG = "broker.log and store.log of each broker: logs/rocketmqlogs in the home of its user"


def of(
    processes: Iterable[Process], stores: Iterable[str], lost: Iterable[Untraced] = (), *, journaled: bool = False
) -> tuple[list[str], bool]:
    """In words; and whether there were deliveries that nobody can see, as those whose traces are ``lost``.

    ``journaled``: the brokers have journals.
    """
    every = [*processes]
    clients = [one for one in every if isinstance(one, Client) and (one.holds or one.given)]
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
        if isinstance(one, Client) and not (one.holds or one.given):
            role = "producer"
        found[role] = one.has & found[role] if role in found else set(one.has)
    return found


def _worked(client: Client) -> bool:
    """Whether it may have been given something: a queue that it told an offset of was not empty."""
    return any(value > 0 for hold in client.holds for _, value in hold.persisted)
