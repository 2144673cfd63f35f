"""``dejamq group create``: a group before its first member, and how often its messages are tried."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from dejamq import Admin
from dejamq.admin.groups import GroupSettings
from dejamq_proto.names import check_group

from dejamq_cli.access.admin_session import ask, masters_among, refuse_half
from dejamq_cli.access.completion import Brokers, Group
from dejamq_cli.terminal.dry_run import DryRun, say_dry_run
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.numbers import fits_32
from dejamq_cli.terminal.output import DEFAULT_NAMESRV, Format, Namesrv, Output, show_rows

EPILOG = examples("dejamq group create billing --retry-max-times 5", "dejamq group create billing --dry-run")
NEW = {"retry_max_times": 16, "retry_queue_nums": 1}
"""Settings of a new group when the caller gives none; RocketMQ uses the same."""


def add_to(app: typer.Typer) -> None:
    app.command("create", epilog=EPILOG)(create)


def create(
    group: Group,
    retry_max_times: Annotated[
        int | None,
        typer.Option(
            min=0, callback=fits_32, metavar="N", help="Tries before a message is a dead letter.",
            show_default="16 for a new group",
        ),
    ] = None,
    retry_queues: Annotated[
        int | None,
        typer.Option(
            min=1, callback=fits_32, metavar="N", help="Queues of its retry topic.", show_default="1 for a new group"
        ),
    ] = None,
    broker: Brokers = None,
    dry_run: DryRun = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:  # fmt: skip
    """Create the group at every broker; where it is already, change what you give and leave the rest.

    Consumers make their group themselves where brokers allow that (autoCreateSubscriptionGroup, on by default).
    RocketMQ: updateSubGroup.
    """
    check_group(group)
    wanted = {"retry_max_times": retry_max_times, "retry_queue_nums": retry_queues}
    given = {name: value for name, value in wanted.items() if value is not None}
    show_rows(ask(namesrv, lambda admin: _create(admin, group, given, broker, dry_run)), output, empty="no broker")
    if dry_run:
        say_dry_run()


async def _create(
    admin: Admin, group: str, given: Mapping[str, Any], brokers: list[str] | None, dry_run: bool
) -> list[dict[str, Any]]:
    await refuse_half(admin, f"{group} cannot be created", brokers)
    before = {one.broker_name: one for one in await admin.groups() if one.group == group}
    rows = [_created(group, name, before.get(name), given) for name in await masters_among(admin, brokers)]
    if not dry_run and (changed := [row["broker"] for row in rows if row["change"] != "unchanged"]):
        await admin.update_group(group, brokers=changed, **given)
    return rows


def _created(group: str, name: str, before: GroupSettings | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The group at one broker as it is to be."""
    was = NEW if before is None else {key: getattr(before, key) for key in NEW}
    now = {**was, **given}
    change = "created" if before is None else "unchanged" if now == was else "changed"
    return {"group": group, "broker": name, **now, "change": change}
