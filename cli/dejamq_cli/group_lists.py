"""What ``dejamq group list``, ``describe`` and ``lag`` tell, as rows."""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import msgspec
from dejamq import Admin, MessageQueue, RouteNotFound
from dejamq.admin_cluster import ClientConnection
from dejamq.admin_groups import GroupSettings
from dejamq_proto.codes import DejamqError
from dejamq_proto.names import DLQ_PREFIX, RETRY_PREFIX

from dejamq_cli.group_findings import findings
from dejamq_cli.group_view import look_at, queues_of, subscribed
from dejamq_cli.output import Format, say, show_object, show_rows, tell

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
