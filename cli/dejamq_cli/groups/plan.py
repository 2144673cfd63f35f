"""``dejamq group plan``: who gets which queue, computed as members compute it."""

import asyncio
from collections.abc import Sequence
from itertools import product
from typing import Annotated, Any

import typer
from dejamq import Admin, MessageQueue
from dejamq.values.allocation import STRATEGIES
from dejamq.values.config import parse_addresses
from dejamq_proto.codes import ConfigError, DejamqError, RouteNotFound
from dejamq_proto.names import PERM_READ, check_group

from dejamq_cli.access.admin_session import asked
from dejamq_cli.access.completion import group_names, topic_names
from dejamq_cli.groups.plan_view import SharePlan, View, given_members, given_queues, plan, queue_text, ranges_text
from dejamq_cli.groups.view import look_at, subscribed
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.output import DEFAULT_NAMESRV, NO, Format, Namesrv, Output, say, show_object, show_rows, tell

DEFAULT_STRATEGY = "averagely"
EPILOG = examples(
    "dejamq group plan billing",
    "dejamq group plan --queues 8 --members c1,c2,c3",
    "dejamq group plan --queues broker-a:4,broker-b:4 --members c1,c2 --members c1,c2,c3",
)


def add_to(app: typer.Typer) -> None:
    app.command("plan", epilog=EPILOG)(plan_)


def plan_(
    group: Annotated[
        str | None,
        typer.Argument(metavar="GROUP", help="Take what is not given from this group.", autocompletion=group_names),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"{', '.join(STRATEGIES)}.", show_default=f"the group's, else {DEFAULT_STRATEGY}"
        ),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(metavar="8|BROKER:4,…", help="The queues of a topic; given twice: two views of them."),
    ] = None,
    members: Annotated[
        list[str] | None, typer.Option(metavar="ID,ID,…", help="Client ids; given twice: two views of the group.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.", autocompletion=topic_names)
    ] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Who gets which queue, by the strategies that members use; from lists that you give, or those of a live group.

    Nobody hands out queues: each member computes its share from the lists that it has. With two views, or when brokers
    or name servers of the live group tell different things, it shows which queues may have two owners, or none, while
    some members act on one view and some on the other. Exit status 1 then, and when a queue has no owner.
    """
    given_q = [given_queues(text, topic or "topic") for text in queues or []]
    given_m = [given_members(text) for text in members or []]
    if group is None:
        if not given_q or not given_m:
            raise ConfigError("give a GROUP, or both --queues and --members")
        told = plan(strategy or DEFAULT_STRATEGY, views_of(given_q, given_m))
    else:
        check_group(group)
        told = asyncio.run(_live(namesrv, group, topic, strategy, given_q, given_m))
    _show(told, output)


def views_of(queues: Sequence[Sequence[MessageQueue]], members: Sequence[Sequence[str]]) -> list[View]:
    """Each list of members with each list of queues."""
    pairs = list(product(members, queues))
    return [View(str(number), tuple(ids), tuple(some)) for number, (ids, some) in enumerate(pairs, 1)]


async def _live(
    namesrv: str, group: str, topic: str | None, strategy: str | None, queues: list[tuple[MessageQueue, ...]],
    members: list[tuple[str, ...]],
) -> SharePlan:  # fmt: skip
    """Ask for lists that were not given: members of each broker, routes of each name server."""

    async def question(admin: Admin) -> SharePlan:
        lists = members or sorted({tuple(ids) for ids in (await admin.members(group)).values()})
        if not lists:
            raise DejamqError(f"group {group} has no members now; give --members")
        seen = queues or await _seen_queues(admin, namesrv, group, topic)
        return plan(strategy or await _strategy(admin, group), views_of(seen, lists))

    return await asked(namesrv, question)


async def _seen_queues(admin: Admin, namesrv: str, group: str, topic: str | None) -> list[tuple[MessageQueue, ...]]:
    """The queues of the group's topics in the eyes of each name server that answers."""
    topics = {topic} if topic else subscribed(await admin.connections(group))
    if not topics:
        raise DejamqError(f"no member of {group} has told its topics; give --topic or --queues")
    routes = await asyncio.gather(*(_route(address, topics) for address in parse_addresses(namesrv)))
    seen = sorted({route for route in routes if route})
    if not seen:
        raise RouteNotFound(f"no name server has a route of {', '.join(sorted(topics))}")
    return seen


async def _route(address: str, topics: set[str]) -> tuple[MessageQueue, ...]:
    found: list[MessageQueue] = []
    async with Admin(address) as admin:
        for topic in sorted(topics):
            (told,) = (await admin.routes(topic)).values()
            if not isinstance(told, DejamqError):
                found += [
                    MessageQueue(topic, one.broker_name, queue_id)
                    for one in told
                    if one.perm & PERM_READ
                    for queue_id in range(one.read_queues)
                ]
    return tuple(found)


async def _strategy(admin: Admin, group: str) -> str:
    """The one that its members say they use."""
    names = {member.allocation for member in (await look_at(admin, group)).members if member.allocation}
    if len(names) > 1:
        raise ConfigError(f"members use different strategies ({', '.join(sorted(names))}); choose one: --strategy")
    return names.pop() if names else DEFAULT_STRATEGY


def _show(told: SharePlan, output: Format) -> None:
    rows = told.queue_rows()
    if output is Format.JSON:
        show_object({
            "strategy": told.strategy,
            "views": [
                {
                    "members": view.members, "queues": list(map(queue_text, view.queues)),
                    "shares": [{"member": one, "queues": list(map(queue_text, some))} for one, some in shares.items()],
                }
                for view, shares in zip(told.views, told.shares, strict=True)
            ],
            "queues": rows,
        })  # fmt: skip
    else:
        _show_tables(told, rows)
    _say_harm(told, rows)
    if any(row["overlap"] or row["gap"] for row in rows):
        raise typer.Exit(NO)


def _say_harm(told: SharePlan, rows: list[dict[str, Any]]) -> None:
    for member in sorted({one for view in told.views for one in view.members if view.members.count(one) > 1}):
        say(f"{member} is there twice: both processes take the same queues")
    if moved := sum(row["overlap"] and row["gap"] for row in rows):
        say(f"{moved} of {len(rows)} queues may have two owners, or none, while members act on different views")
    if alone := sum(row["gap"] and not row["overlap"] for row in rows):
        say(f"{alone} of {len(rows)} queues have no owner{'' if len(told.views) == 1 else ' in some view'}")


def _show_tables(told: SharePlan, rows: list[dict[str, Any]]) -> None:
    numbered = len(told.views) > 1
    for view, shares in zip(told.views, told.shares, strict=True):
        if numbered:
            tell(f"view {view.label}: {len(view.members)} members, {len(view.queues)} queues, {told.strategy}")
        shown = [{"member": one, "queues": len(some), "which": ranges_text(some)} for one, some in shares.items()]
        show_rows(shown, Format.TABLE, empty="no members")
        tell("")
    differing = [row for row in rows if row["overlap"] or row["gap"]]
    columns = [
        {"queue": f"{row['topic']} {row['broker']}:{row['queue_id']}"}
        | {f"view {view.label}": owner for view, owner in zip(told.views, row["owners"], strict=True)}
        for row in differing
    ]
    show_rows(columns, Format.TABLE, empty="every queue has one owner" + (" in all views" if numbered else ""))
