"""``dejamq cluster``: a local cluster that outlives the command, and the health of any cluster."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from dejamq.config import parse_addresses
from dejamq_lab import rpc_control, standing
from dejamq_lab.rpc_control import BrokerInfo
from dejamq_lab.standing import Member, Size, Standing
from dejamq_proto.codes import ConfigError, DejamqError
from dejamq_proto.serving import wait_for_signal

from dejamq_cli.addresses import ask_any
from dejamq_cli.output import DEFAULT_NAMESRV, INTERRUPTED, NO, OK, Format, Namesrv, Output, show_object, show_rows

app = typer.Typer(help="A local cluster: up, status, down; and the health of any.", no_args_is_help=True)
Directory = Annotated[Path, typer.Option("--dir", help="Where the cluster keeps its stores, journals and logs.")]
HERE = Path(".dejamq")


@app.command()
def up(
    namesrvs: Annotated[int, typer.Option(min=1, help="Name servers.")] = 2,
    brokers: Annotated[int, typer.Option(min=1, max=26, help="Brokers (masters).")] = 2,
    slaves: Annotated[int, typer.Option(min=0, help="Slaves of each broker.")] = 0,
    directory: Directory = HERE,
    foreground: Annotated[bool, typer.Option("-f", "--foreground", help="Stay until Ctrl-C, then end it.")] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Repeatable.")] = None,
    journal_level: Annotated[str, typer.Option(help="off, audit or forensic.")] = "audit",
    output: Output = Format.TABLE,
) -> None:
    """Start name servers and brokers, on RocketMQ's ports where they are free. Returns when clients can use them."""
    size = Size(namesrvs, brokers, slaves, dict(_pair(text) for text in settings or []), journal_level)
    asyncio.run(_up(directory, size, foreground, output))


@app.command()
def status(directory: Directory = HERE, output: Output = Format.TABLE) -> None:
    """The processes of the cluster in --dir. Exit status 1 unless all run and are healthy."""
    state = standing.read_state(directory)
    found = asyncio.run(standing.states(state))
    healthy = bool(found) and all(text == "running" for _, text in found)
    rows = [_row(member, text) for member, text in found]
    if output is Format.JSON:
        show_object({"namesrv": state.namesrv, "healthy": healthy, "processes": rows})
    else:
        show_rows(rows, output, empty="no processes")
    raise typer.Exit(0 if healthy else NO)


@app.command()
def down(
    directory: Directory = HERE,
    purge: Annotated[bool, typer.Option(help="Also remove its stores, journals and logs.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """End the cluster in --dir; brokers drain first. Its data stays unless --purge."""
    state = standing.read_state(directory)
    ended = asyncio.run(standing.down(state))
    if purge:
        standing.purge(directory, state)
    show_rows([_row(member, "stopped") for member in ended], output, empty="nothing was running")


@app.command()
def health(namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE) -> None:
    """Is every name server and every broker it knows serving? Exit status 0 yes, 1 no."""
    rows = asyncio.run(_health(namesrv))
    show_rows(rows, output, empty="nobody")
    if not all(row["healthy"] for row in rows) or not any(row["role"] == "broker" for row in rows):
        raise typer.Exit(NO)


@app.command("list")
def list_(namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE) -> None:
    """The brokers that are registered."""
    brokers: list[BrokerInfo] = asyncio.run(ask_any(namesrv, rpc_control.brokers))
    rows = [
        {"cluster": broker.cluster, "broker": broker.broker_name, "id": broker_id, "address": address}
        for broker in brokers
        for broker_id, address in broker.addresses.items()
    ]
    show_rows(rows, output, empty="no broker is registered")


async def _up(directory: Path, size: Size, foreground: bool, output: Format) -> None:
    state = await standing.up(directory, size)
    if not foreground:
        _tell(state, output)
        return
    try:
        signalled = asyncio.create_task(wait_for_signal())
        await asyncio.sleep(0)  # its handlers are there before anybody can read that the cluster is up
        _tell(state, output)
        number = await signalled
    finally:
        await standing.down(state)
    raise typer.Exit(INTERRUPTED if number == signal.SIGINT else OK)


def _tell(state: Standing, output: Format) -> None:
    if output is Format.JSON:
        rows = [_row(member, "running") for member in state.processes]
        show_object({"namesrv": state.namesrv, "healthy": True, "processes": rows})
    else:
        print(f"export DEJAMQ_NAMESRV='{state.namesrv}'", flush=True)


async def _health(namesrv: str) -> list[dict[str, Any]]:
    """Every name server by itself: they do not know each other, so each one's brokers are looked at."""
    rows, seen = [], set()
    for address in parse_addresses(namesrv):
        rows.append(_health_row("namesrv", "", address, await rpc_control.healthy(address)))
        if not rows[-1]["healthy"]:
            continue
        try:
            brokers = await rpc_control.brokers(address)
        except DejamqError:
            rows[-1]["healthy"] = False
            continue
        for name, where in ((b.broker_name, a) for b in brokers for a in b.addresses.values()):
            if where not in seen:
                seen.add(where)
                rows.append(_health_row("broker", name, where, await rpc_control.healthy(where)))
    return rows


def _health_row(role: str, name: str, address: str, healthy: bool) -> dict[str, Any]:
    return {"role": role, "name": name, "address": address, "healthy": healthy}


def _row(member: Member, state: str) -> dict[str, Any]:
    return {
        "name": member.name, "role": member.role, "pid": member.pid, "address": member.address, "state": state,
    }  # fmt: skip


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set wants KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()
