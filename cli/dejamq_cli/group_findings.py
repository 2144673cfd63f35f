"""What is wrong with a consumer group at one moment. Pure.

While a group is sharing its queues out anew, for a second or two, queues may well have no owner or two: look again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dejamq.admin_groups import GroupSettings

from dejamq_cli.group_view import GroupView


@dataclass(frozen=True)
class Finding:
    """``harm``: messages come twice, not at all, or late because of it; else it is only worth knowing."""

    kind: str
    text: str
    harm: bool = True


def findings(view: GroupView, settings: Iterable[GroupSettings]) -> list[Finding]:
    """Everything worth saying, harm first."""
    found = [*_of_queues(view), *_of_members(view), *_of_settings(list(settings))]
    return sorted(found, key=lambda finding: not finding.harm)


def _of_queues(view: GroupView) -> Iterator[Finding]:
    if not view.members or view.broadcasting:
        return
    for queue in sorted(view.wanted | view.owned):
        owners = view.owners(queue)
        name = f"{queue.topic} {queue.broker_name}:{queue.queue_id}"
        if len(owners) > 1:
            yield Finding("two_owners", f"{name} is consumed by {' and '.join(owners)}: its messages come twice")
        elif not owners and view.whole:
            yield Finding("no_owner", f"{name} has no owner: its messages wait")


def _of_members(view: GroupView) -> Iterator[Finding]:
    for client_id in sorted(view.clashing):
        yield Finding("clash", f"{client_id} is the client id of several processes: they all consume the same queues")
    known: dict[str, set[str]] = {}
    for member in view.members:
        if not member.info:
            yield Finding("silent", f"{member.client_id} does not say what it consumes: {member.silence}", harm=False)
        elif not member.queues:
            yield Finding("idle", f"{member.client_id} has no queue", harm=False)
        for one in member.connections:
            known.setdefault(one.broker_name, set()).add(member.client_id)
    brokers = {queue.broker_name for queue in view.wanted} & known.keys()
    if len({frozenset(known[name]) for name in brokers}) > 1:
        text = "; ".join(f"{name} knows {', '.join(sorted(known[name]))}" for name in sorted(brokers))
        yield Finding("members_differ", f"brokers know different members: {text}")
    yield from _of_choices(view)


def _of_choices(view: GroupView) -> Iterator[Finding]:
    """All members of a group have to want and to do the same."""
    subscriptions = {member.subscriptions for member in view.members}
    if len(subscriptions) > 1:
        odd = Counter(text for wanted in subscriptions for text in wanted)
        texts = sorted(text for text, count in odd.items() if count < len(subscriptions))
        yield Finding("subscriptions_differ", f"members are subscribed differently: {', '.join(texts)}")
    if len({member.broadcasting for member in view.members}) > 1:
        yield Finding("models_differ", "some members are BROADCASTING, others CLUSTERING")
    strategies = {member.allocation for member in view.members if member.allocation}
    if len(strategies) > 1:
        yield Finding("allocations_differ", f"members share queues out by {' and '.join(sorted(strategies))}")


def _of_settings(settings: list[GroupSettings]) -> Iterator[Finding]:
    for name in GroupSettings.__struct_fields__:
        values = {one.broker_name: getattr(one, name) for one in settings}
        if name != "broker_name" and len(set(map(str, values.values()))) > 1:
            text = ", ".join(f"{broker} {value}" for broker, value in values.items())
            yield Finding("settings_differ", f"{name} differs between brokers: {text}")
    if paused := [one.broker_name for one in settings if not one.consume_enable]:
        yield Finding("paused", f"paused at {', '.join(paused)}: dejamq group resume {settings[0].group}", harm=False)
