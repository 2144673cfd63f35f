"""``dejamq client``: who is connected, and client ids that two processes share."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from dejamq import Admin
from dejamq.admin.cluster import ClientConnection

from dejamq_cli.access.admin_session import asked_half, finish
from dejamq_cli.access.completion import group_names
from dejamq_cli.access.watch import Watch, show_or_watch
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.output import DEFAULT_NAMESRV, Format, Namesrv, Output, say, show_rows

app = typer.Typer(help="Clients: producers and consumers that are connected.", no_args_is_help=True)
BRIEF = ("role", "group", "client_id", "version", "clash")
OneGroup = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="Only this group.", autocompletion=group_names)
]


@app.command("list", epilog=examples("dejamq client list", "dejamq client list --group billing --watch 5"))
def list_(
    group: OneGroup = None,
    watch: Watch = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Producers and consumers, the brokers they are connected to, and client ids that several processes use.

    Two consumers of one group with one client id take themselves for one member: each takes the same queues, and all of
    them are delivered twice. Exit status 1 while there is such a clash. A producer is connected once it has sent.
    """
    clashing = False

    def show(rows: list[dict[str, Any]], output: Format) -> None:
        nonlocal clashing
        shown = [{name: row[name] for name in row if name != "clash_addresses"} for row in rows]
        show_rows(rows if output is Format.JSON else shown, output, empty="nobody is connected", brief=BRIEF)
        clashing = False
        told = {
            f"{row['role']} {row['client_id']} of {row['group']}": row["clash_addresses"]
            for row in rows
            if row["clash"]
        }
        for name, addresses in told.items():
            clashing = True
            say(f"{name} is the client id of several processes: {', '.join(addresses)}")

    silent = show_or_watch(lambda: asked_half(namesrv, lambda admin: _list(admin, group)), show, output, watch)
    finish(silent, findings=clashing)


async def _list(admin: Admin, group: str | None) -> list[dict[str, Any]]:
    clashes = {
        (one.role, one.group, one.client_id): sorted(one.addresses) for one in await admin.clashes() if one.present
    }
    return merged(await admin.connections(group), clashes)


def merged(
    connections: Sequence[ClientConnection], clashes: Mapping[tuple[str, str, str], Sequence[str]]
) -> list[dict[str, Any]]:
    """One row a client, which has a connection to each of its brokers."""
    rows: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for one in connections:
        key = (one.role, one.group, one.client_id, one.boot_id)
        row = rows.setdefault(key, {
            "role": one.role, "group": one.group, "client_id": one.client_id, "host": one.address.rpartition(":")[0],
            "brokers": [], "version": f"{one.language} {one.version}".strip(), "last_heartbeat_timestamp_ms": 0,
            "clash": key[:3] in clashes, "clash_addresses": clashes.get(key[:3], []),
        })  # fmt: skip
        row["brokers"].append(one.broker_name)
        row["last_heartbeat_timestamp_ms"] = max(row["last_heartbeat_timestamp_ms"], one.last_heartbeat_ms)
    return list(rows.values())
