"""``dejamq topic``: make topics, list them, show what they hold and where they are."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from dejamq import Admin
from dejamq.admin.messages import TopicQueues
from dejamq_proto.codes import Code, ConfigError, RouteNotFound
from dejamq_proto.names import PERM_READ, PERM_WRITE, check_sendable, check_topic

from dejamq_cli.access.admin_session import ask, ask_half, check_brokers, finish, masters_among, refuse_half
from dejamq_cli.access.completion import Brokers, Topic
from dejamq_cli.access.routes import compared, shown_route
from dejamq_cli.access.topic_kinds import kind_of, own_topics
from dejamq_cli.terminal.dry_run import DryRun, Yes, confirm, say_dry_run
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.numbers import fits_32
from dejamq_cli.terminal.output import DEFAULT_NAMESRV, Format, Namesrv, Output, say, show_object, show_rows, tell

PERMS = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE}
DEFAULT_QUEUES = 8
FIELDS = ("read_queues", "write_queues", "perm", "order")

app = typer.Typer(help="Topics: make and change them, what they hold, where their queues are.", no_args_is_help=True)
Queues = Annotated[
    int | None,
    typer.Option(
        min=1,
        callback=fits_32,
        metavar="N",
        help="Queues at each broker.",
        show_default=f"{DEFAULT_QUEUES} for a new topic",
    ),
]
Perm = Annotated[
    str | None,
    typer.Option(metavar="rw|r|w", help="Producers need w, consumers r.", show_default="rw for a new topic"),
]


@app.command(epilog=examples("dejamq topic create orders --queues 4", "dejamq topic create orders --perm r --dry-run"))
def create(
    topic: Topic,
    queues: Queues = None,
    read_queues: Annotated[
        int | None, typer.Option(min=1, callback=fits_32, metavar="N", help="Queues to read from, where they differ.")
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option(min=1, callback=fits_32, metavar="N", help="Queues to write to, where they differ.")
    ] = None,
    perm: Perm = None,
    order: Annotated[
        bool | None,
        typer.Option("--order/--no-order", help="Name servers keep its route also while a broker is away."),
    ] = None,
    broker: Brokers = None,
    dry_run: DryRun = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Create the topic at every broker; where it is already, change what you give and leave the rest.

    To shrink a topic without losing messages lower --write-queues first, and --read-queues when they are consumed.
    """
    check_sendable(topic)
    if perm is not None and perm not in PERMS:
        raise ConfigError(f"--perm is rw, r or w, not {perm!r}")
    wanted = {
        "read_queues": read_queues or queues,
        "write_queues": write_queues or queues,
        "perm": None if perm is None else PERMS[perm],
        "order": order,
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    rows = ask(namesrv, lambda admin: _create(admin, topic, given, broker, dry_run))
    show_rows(rows, output, empty="no broker")
    if dry_run:
        say_dry_run()


@app.command("list", epilog=examples("dejamq topic list --all -o json"))
def list_(
    every: Annotated[bool, typer.Option("--all", help="Also those of retries, dead letters and the system.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """All topics that a live broker has."""
    names, own = ask(namesrv, _names)
    rows = [{"topic": name, "kind": kind_of(name, own)} for name in names]
    if not every:
        rows = [row for row in rows if row["kind"] == "user"]
    show_rows(rows, output, empty="no topics" if every else "no topics (those of the system: --all)")


@app.command(epilog=examples("dejamq topic describe orders"))
def describe(topic: Topic, namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE) -> None:
    """What the topic is at each broker, and what each of its queues holds. Exit status 1 when nobody has it."""
    check_topic(topic)
    told, silent = ask_half(namesrv, lambda admin: _describe(admin, topic))
    if output is Format.JSON:
        show_object(told)
    else:
        show_rows(told["brokers"], output, empty="no broker")
        tell("")
        show_rows(told["queues"], output, empty="no queues")
    finish(silent)


@app.command(epilog=examples("dejamq topic delete orders --dry-run"))
def delete(
    topic: Topic,
    broker: Brokers = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Delete the topic, with its queues and everybody's offsets of it. Exit status 1 when nobody has it.

    Name servers forget it at once. A producer that still sends to it may make it anew, where brokers may create topics.
    """
    check_topic(topic)
    rows = ask(namesrv, lambda admin: _doomed(admin, topic, broker))
    if not dry_run:
        messages = sum(row["messages"] for row in rows)
        confirm(f"this deletes {topic} with {messages} messages at {', '.join(row['broker'] for row in rows)}", yes)
        ask(namesrv, lambda admin: admin.delete_topic(topic, brokers=[row["broker"] for row in rows]))
    show_rows(rows, output, empty="nothing")
    if dry_run:
        say_dry_run()


@app.command(epilog=examples("dejamq topic route orders", "dejamq topic route orders --diff"))
def route(
    topic: Topic,
    diff: Annotated[bool, typer.Option("--diff", help="Ask every name server, and show where they disagree.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Where the topic's queues are. Exit status 1 when nobody has the topic.

    With --diff also when name servers disagree: clients that ask different ones then see different queues, and members
    of one group may share them out differently. Status 3 when a name server does not answer and the others agree.
    """
    check_topic(topic)
    if not diff:
        show_rows(ask(namesrv, lambda admin: shown_route(admin, topic)), output, empty="no route")
        return
    comparison = compared(namesrv, topic)
    show_rows(comparison.rows(output), output, empty="no name server has a route")
    if not comparison.agrees:
        say(f"name servers disagree about {topic}")
    finish(comparison.silent, findings=not comparison.agrees or not comparison.known)


async def _names(admin: Admin) -> tuple[list[str], set[str]]:
    return await admin.topics(), own_topics(await admin.brokers())


async def _create(
    admin: Admin, topic: str, given: Mapping[str, Any], brokers: list[str] | None, dry_run: bool
) -> list[dict[str, Any]]:
    await refuse_half(admin, f"{topic} cannot be created", brokers)
    before = {one.broker_name: one for one in await admin.topic(topic)}
    names = await masters_among(admin, brokers)
    rows = [_created(topic, name, before.get(name), given) for name in names]
    if not dry_run:
        await _carry_out(admin, topic, given, rows)
    return rows


def _created(topic: str, name: str, before: TopicQueues | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The topic at one broker as it is to be."""
    base = before or TopicQueues(name, DEFAULT_QUEUES, DEFAULT_QUEUES, PERM_READ | PERM_WRITE)
    now = {key: getattr(base, key) for key in FIELDS} | dict(given)
    unchanged = before is not None and all(getattr(before, key) == value for key, value in now.items())
    change = "created" if before is None else "unchanged" if unchanged else "changed"
    return {"topic": topic, "broker": name, **now, "change": change}


async def _carry_out(admin: Admin, topic: str, given: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
    for row in rows:
        here = [row["broker"]]
        if row["change"] == "created":
            await admin.create_topic(
                topic, queues=row["write_queues"], perm=row["perm"], order=row["order"], brokers=here
            )  # fmt: skip
            if row["read_queues"] != row["write_queues"]:
                await admin.update_topic(topic, read_queues=row["read_queues"], brokers=here)
        elif row["change"] == "changed":
            await admin.update_topic(topic, **given, brokers=here)


async def _describe(admin: Admin, topic: str) -> dict[str, Any]:
    ranges = await admin.queue_ranges(topic)
    return {
        "topic": topic,
        "brokers": [
            {"broker": one.broker_name} | {name: getattr(one, name) for name in FIELDS}
            for one in await admin.topic(topic)
        ],
        "queues": [
            {
                "broker": one.queue.broker_name, "queue_id": one.queue.queue_id, "min_offset": one.min_offset,
                "max_offset": one.max_offset, "messages": one.max_offset - one.min_offset,
                "last_stored_timestamp_ms": one.last_stored_ms,
            }
            for one in ranges
        ],
    }  # fmt: skip


async def _doomed(admin: Admin, topic: str, brokers: list[str] | None) -> list[dict[str, Any]]:
    """Everything that a deletion takes. Raises RouteNotFound when there is nothing."""
    await refuse_half(admin, f"{topic} cannot be deleted", brokers)
    await check_brokers(admin, brokers or [])
    messages: dict[str, int] = {}
    for one in await admin.queue_ranges(topic):
        name = one.queue.broker_name
        messages[name] = messages.get(name, 0) + one.max_offset - one.min_offset
    names = sorted(set(brokers or messages) & messages.keys())
    if not names:
        raise RouteNotFound(f"none of these brokers has a topic {topic!r}", code=Code.TOPIC_NOT_EXIST)
    return [{"topic": topic, "broker": name, "messages": messages[name], "change": "deleted"} for name in names]
