"""``dejamq group``: consumer groups, who is in them, how far they are, stopping and ending them."""

from typing import Annotated, Any

import typer
from dejamq import Admin
from dejamq_proto.codes import DejamqError
from dejamq_proto.names import check_group

from dejamq_cli.access.admin_session import ask, asked_half, finish, refuse_half
from dejamq_cli.access.completion import Group, group_names, topic_names
from dejamq_cli.access.watch import Watch, show_or_watch
from dejamq_cli.groups import create as group_create
from dejamq_cli.groups import plan as group_plan
from dejamq_cli.groups.lists import describe_group, lag_by_topic, lag_of, list_groups, show_description, unknown_group
from dejamq_cli.terminal.dry_run import DryRun, Yes, confirm, say_dry_run
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.output import CANNOT_TELL, DEFAULT_NAMESRV, Format, Namesrv, Output, show_rows, tell

app = typer.Typer(
    help="Consumer groups: members, queues, progress; making, pausing and deleting them.", no_args_is_help=True
)
group_plan.add_to(app)
group_create.add_to(app)


@app.command("list", epilog=examples("dejamq group list --all"))
def list_(
    every: Annotated[
        bool, typer.Option("--all", help="Also those that brokers keep for tools and themselves.")
    ] = False,
    watch: Watch = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """All groups that a broker knows, with members or without."""

    def show(rows: list[dict[str, Any]], output: Format) -> None:
        show_rows(rows, output, empty="no groups")

    finish(show_or_watch(lambda: asked_half(namesrv, lambda admin: list_groups(admin, every)), show, output, watch))


@app.command(epilog=examples("dejamq group describe billing", "dejamq group describe billing --watch"))
def describe(
    group: Group, watch: Watch = None, namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE
) -> None:
    """Members, who consumes which queue, and what is wrong with that.

    Wrong is: queues with no owner or with two, client id clashes, members that are subscribed differently, brokers that
    know different members.

    Who owns a queue is what each member says when it is asked, through its broker. Exit status 1 with a finding that
    does harm, or when nobody knows the group; 3 while a broker or a member does not answer.
    """
    check_group(group)
    last: dict[str, Any] = {}

    def show(told: dict[str, Any], output: Format) -> None:
        last.update(told)
        show_description(told, output)

    silent = show_or_watch(lambda: asked_half(namesrv, lambda admin: describe_group(admin, group)), show, output, watch)
    finish(silent, findings=any(finding["harm"] for finding in last["findings"]))
    if any(member["silence"] for member in last["members"]):
        raise typer.Exit(CANNOT_TELL)


@app.command(epilog=examples("dejamq group lag billing --watch", "dejamq group lag -o json"))
def lag(
    group: Annotated[
        str | None, typer.Argument(metavar="GROUP", help="Default: all groups.", autocompletion=group_names)
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.", autocompletion=topic_names)
    ] = None,
    watch: Watch = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """How many messages wait for the group, queue by queue; without GROUP for all groups, topic by topic.

    A queue of which nothing is committed yet has no lag, and is shown with - as long as the group has members.
    """
    if group is not None:
        check_group(group)

    async def look(admin: Admin) -> list[dict[str, Any]]:
        return await (lag_by_topic(admin, topic) if group is None else lag_of(admin, group, topic))

    def show(rows: list[dict[str, Any]], output: Format) -> None:
        show_rows(rows, output, empty="nothing is committed" if group is None else f"{group} has committed nothing")
        if output is Format.TABLE and rows:
            tell(f"\nlag {sum(row['lag'] or 0 for row in rows)}")

    finish(show_or_watch(lambda: asked_half(namesrv, look), show, output, watch))


@app.command(epilog=examples("dejamq group pause billing"))
def pause(
    group: Group, dry_run: DryRun = False, namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE
) -> None:
    """Stop handing messages to the group, at every broker; its members stay, and keep their queues and offsets.

    What they have pulled already they still handle. RocketMQ: consumeEnable=false.
    """
    _set_enabled(group, False, dry_run, namesrv, output)


@app.command(epilog=examples("dejamq group resume billing"))
def resume(
    group: Group, dry_run: DryRun = False, namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE
) -> None:
    """Hand messages to the group again."""
    _set_enabled(group, True, dry_run, namesrv, output)


@app.command(epilog=examples("dejamq group delete billing --dry-run"))
def delete(
    group: Group,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="Leave what it has committed.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Delete the group at every broker, with its offsets, its retries and its dead letters.

    Only without members: theirs would make it anew.
    """
    check_group(group)

    async def doomed(admin: Admin) -> list[dict[str, Any]]:
        rows = await _rows(admin, group, f"{group} cannot be deleted")
        if members := sorted({one for ids in (await admin.members(group)).values() for one in ids}):
            raise DejamqError(f"group {group} has members; stop them first: {', '.join(members)}")
        return [row | {"offsets": "kept" if keep_offsets else "deleted", "change": "deleted"} for row in rows]

    rows = ask(namesrv, doomed)
    if not dry_run:
        offsets = "" if keep_offsets else "its offsets, "
        confirm(f"this deletes group {group} with {offsets}its retries and its dead letters", yes)
        ask(namesrv, lambda admin: admin.delete_group(group, remove_offsets=not keep_offsets))
    show_rows(rows, output, empty="nothing")
    if dry_run:
        say_dry_run()


def _set_enabled(group: str, on: bool, dry_run: bool, namesrv: str, output: Format) -> None:
    check_group(group)

    async def change(admin: Admin) -> list[dict[str, Any]]:
        rows = await _rows(admin, group, f"{group} cannot be {'resumed' if on else 'paused'}")
        if not dry_run:
            await admin.update_group(group, brokers=[row["broker"] for row in rows], consume_enable=on)
        return rows

    rows = ask(namesrv, change)
    words = {True: "consumes", False: "paused"}
    for row in rows:
        row |= {"before": words[row.pop("enabled")], "after": words[on]}
    show_rows(rows, output, empty="nothing")
    if dry_run:
        say_dry_run()


async def _rows(admin: Admin, group: str, what: str) -> list[dict[str, Any]]:
    """The group at each broker that has it. Raises DejamqError when none has."""
    await refuse_half(admin, what)
    rows = [
        {"group": group, "broker": one.broker_name, "enabled": one.consume_enable}
        for one in await admin.groups()
        if one.group == group
    ]
    if not rows:
        raise unknown_group(group)
    return rows
