"""Rows of ``dejamq group list``, ``describe`` and ``lag``; findings are faults of a group at one moment."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from dejamq import Admin, MessageQueue, RouteNotFound
from dejamq.admin.cluster import ClientConnection
from dejamq.admin.groups import GroupSettings
from dejamq_proto.codes import DejamqError
from dejamq_proto.names import DLQ_PREFIX, RETRY_PREFIX

from dejamq_cli.groups.view import GroupView, look_at, queues_of, subscribed
from dejamq_cli.terminal.output import Format, say, show_object, show_rows, tell

# Findings are pure. During a rebalance of one or two seconds a queue may have no owner or two owners: look again.


@dataclass(frozen=True)
class GroupFinding:
    """``harm``: messages come twice, not at all, or late because of it; else it is only worth knowing."""

    kind: str
    text: str
    harm: bool = True


def findings(view: GroupView, settings: Iterable[GroupSettings]) -> list[GroupFinding]:
    """Everything worth saying, harm first."""
    found = [*_of_queues(view), *_of_members(view), *_of_settings(list(settings))]
    return sorted(found, key=lambda finding: not finding.harm)


def _of_queues(view: GroupView) -> Iterator[GroupFinding]:
    if not view.members or view.broadcasting:
        return
    for queue in sorted(view.wanted | view.owned):
        owners = view.owners(queue)
        name = f"{queue.topic} {queue.broker_name}:{queue.queue_id}"
        if len(owners) > 1:
            yield GroupFinding("two_owners", f"{name} is consumed by {' and '.join(owners)}: its messages come twice")
        elif not owners and view.whole:
            yield GroupFinding("no_owner", f"{name} has no owner: its messages wait")


def _of_members(view: GroupView) -> Iterator[GroupFinding]:
    for client_id in sorted(view.clashing):
        yield GroupFinding(
            "clash", f"{client_id} is the client id of several processes: they all consume the same queues"
        )
    known: dict[str, set[str]] = {}
    for member in view.members:
        if not member.info:
            yield GroupFinding(
                "silent", f"{member.client_id} does not say what it consumes: {member.silence}", harm=False
            )
        elif not member.queues:
            yield GroupFinding("idle", f"{member.client_id} has no queue", harm=False)
        for one in member.connections:
            known.setdefault(one.broker_name, set()).add(member.client_id)
    brokers = {queue.broker_name for queue in view.wanted} & known.keys()
    if len({frozenset(known[name]) for name in brokers}) > 1:
        text = "; ".join(f"{name} knows {', '.join(sorted(known[name]))}" for name in sorted(brokers))
        yield GroupFinding("members_differ", f"brokers know different members: {text}")
    yield from _of_choices(view)


def _of_choices(view: GroupView) -> Iterator[GroupFinding]:
    """All members of a group have to want and to do the same."""
    subscriptions = {member.subscriptions for member in view.members}
    if len(subscriptions) > 1:
        odd = Counter(text for wanted in subscriptions for text in wanted)
        texts = sorted(text for text, count in odd.items() if count < len(subscriptions))
        yield GroupFinding("subscriptions_differ", f"members are subscribed differently: {', '.join(texts)}")
    if len({member.broadcasting for member in view.members}) > 1:
        yield GroupFinding("models_differ", "some members are BROADCASTING, others CLUSTERING")
    if any(member.graceful for member in view.members):
        for member in view.members:
            if member.graceful is False:
                yield GroupFinding(
                    "handover_off",
                    f"{member.client_id} claims no queues, so hand-over is graceful for nobody",
                    harm=False,
                )
    strategies = {member.allocation for member in view.members if member.allocation}
    if len(strategies) > 1:
        yield GroupFinding("allocations_differ", f"members share queues out by {' and '.join(sorted(strategies))}")


def _of_settings(settings: list[GroupSettings]) -> Iterator[GroupFinding]:
    for name in GroupSettings.__struct_fields__:
        values = {one.broker_name: getattr(one, name) for one in settings}
        if name != "broker_name" and len(set(map(str, values.values()))) > 1:
            text = ", ".join(f"{broker} {value}" for broker, value in values.items())
            yield GroupFinding("settings_differ", f"{name} differs between brokers: {text}")
    if paused := [one.broker_name for one in settings if not one.consume_enable]:
        yield GroupFinding(
            "paused", f"paused at {', '.join(paused)}: dejamq group resume {settings[0].group}", harm=False
        )


BUILT_IN = frozenset({"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"})
BUILT_IN_PREFIX = "CID_"
SETTINGS = ("broker", "consume_enable", "consume_message_orderly", "retry_queue_nums", "retry_max_times")


async def list_groups(admin: Admin, every: bool) -> list[dict[str, Any]]:
    """A row a group; what differs between brokers is told as ``mixed``."""
    settings: dict[str, list[GroupSettings]] = {}
    for one in await admin.groups():
        settings.setdefault(one.group, []).append(one)
    members: dict[str, list[ClientConnection]] = {}
    for connection in await admin.connections():
        if connection.role == "consumer":
            members.setdefault(connection.group, []).append(connection)
    names = sorted(settings.keys() | members.keys())
    return [
        _row(name, settings.get(name, []), members.get(name, []))
        for name in names
        if every or name in members or not (name in BUILT_IN or name.startswith(BUILT_IN_PREFIX))
    ]


def _row(name: str, settings: list[GroupSettings], members: list[ClientConnection]) -> dict[str, Any]:
    return {
        "group": name, "members": len({one.client_id for one in members}),
        "model": _same(one.message_model for one in members),
        "consume_enable": _same(one.consume_enable for one in settings),
        "retry_max_times": _same(one.retry_max_times for one in settings),
        "brokers": sorted({one.broker_name for one in settings}),
    }  # fmt: skip


def _same(values: Iterable[Any]) -> Any:
    found = set(values)
    return None if not found else found.pop() if len(found) == 1 else "mixed"


async def describe_group(admin: Admin, group: str) -> dict[str, Any]:
    """Everything about one group. Raises DejamqError for a group that nobody knows."""
    settings = [one for one in await admin.groups() if one.group == group]
    view = await look_at(admin, group)
    if not settings and not view.members and not view.progress:
        raise unknown_group(group)
    return {
        "group": group,
        "settings": [_without_group(one) for one in settings],
        "members": [
            member.row() | {"subscriptions": sorted(member.subscriptions), "silence": member.silence or None}
            for member in view.members
        ],
        "queues": view.queue_rows(),
        "findings": [asdict(finding) for finding in findings(view, settings)],
    }


def unknown_group(group: str) -> DejamqError:
    return DejamqError(f"no broker knows a group {group!r}; see: dejamq group list")


async def check_there(admin: Admin, topic: str) -> None:
    """For a look that found nothing of it. Raises RouteNotFound when there is no such topic."""
    if topic not in await admin.topics():
        raise RouteNotFound(f"no broker has a topic {topic!r}; see: dejamq topic list")


def _without_group(settings: GroupSettings) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(settings)
    del row["group"]
    return {"broker": row.pop("broker_name")} | row


def show_description(told: dict[str, Any], output: Format) -> None:
    """One object, or a table for each part; what is wrong comes last, where people look."""
    if output is Format.JSON:
        show_object(told)
        return
    settings = [{name: row[name] for name in SETTINGS} for row in told["settings"]]
    show_rows(
        settings, output, empty="no broker keeps it", brief=[name for name in SETTINGS if name != "retry_queue_nums"]
    )
    tell("")
    without = ("subscriptions", "silence")
    members = [{name: row[name] for name in row if name not in without} for row in told["members"]]
    show_rows(members, output, empty="no members", brief=("client_id", "queues", "allocation"))
    texts = {text for row in told["members"] for text in row["subscriptions"] if not text.startswith(RETRY_PREFIX)}
    for text in sorted(texts):
        tell(f"subscribed: {text}")
    tell("")
    show_rows(told["queues"], output, empty="no queues", brief=("topic", "broker", "queue_id", "owners", "lag"))
    for finding in told["findings"]:
        say(finding["text"])


async def lag_of(admin: Admin, group: str, topic: str | None) -> list[dict[str, Any]]:
    """A row a queue: those with something committed, and those that its members are subscribed to.

    Raises DejamqError for a group that nobody knows, RouteNotFound for such a topic.
    """
    progress = {one.queue: one for one in await admin.progress(group, topic)}
    topics = subscribed(one for one in await admin.connections(group) if one.role == "consumer")
    wanted = await queues_of(admin, topics if topic is None else topics & {topic})
    if not wanted and not progress and group not in {one.group for one in await admin.groups()}:
        raise unknown_group(group)
    if topic is not None and not wanted and not progress:
        await check_there(admin, topic)
    rows = []
    for queue in sorted({*wanted, *progress}):
        one = progress.get(queue)
        rows.append(_place(queue) | {
            "committed": one and one.committed, "max_offset": one and one.max_offset, "lag": one and one.lag,
        })  # fmt: skip
    return rows


def _place(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}


async def lag_by_topic(admin: Admin, topic: str | None) -> list[dict[str, Any]]:
    """A row for each topic of each group. Dead letters are nobody's lag. Raises RouteNotFound for an unknown topic."""
    groups = sorted({one.group for one in await admin.groups()})
    told = await asyncio.gather(*(admin.progress(group, topic) for group in groups))
    rows = []
    for group, progress in zip(groups, told, strict=True):
        queues: dict[str, list[int]] = {}
        for one in progress:
            if not one.queue.topic.startswith(DLQ_PREFIX):
                queues.setdefault(one.queue.topic, []).append(one.lag)
        rows += [
            {"group": group, "topic": name, "queues": len(lags), "lag": sum(lags)}
            for name, lags in sorted(queues.items())
        ]
    if topic is not None and not rows:
        await check_there(admin, topic)
    return rows
