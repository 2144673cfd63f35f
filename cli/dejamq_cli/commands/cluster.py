"""``dejamq cluster``: a local cluster that outlives the command, and the health of any cluster."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from dejamq import Admin
from dejamq_lab.cluster import background
from dejamq_lab.cluster.background import RunningServer, Size, StandingCluster
from dejamq_proto.codes import ConfigError
from dejamq_proto.journal.writer import Level
from dejamq_proto.serving.server import wait_for_signal

from dejamq_cli.access.admin_session import ask
from dejamq_cli.access.health import health_of, masters, usable
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.output import (
    DEFAULT_NAMESRV,
    INTERRUPTED,
    NO,
    OK,
    Format,
    Namesrv,
    Output,
    say,
    show_object,
    show_rows,
    tell,
)

app = typer.Typer(help="A local cluster: up, status, start, down; and the health of any.", no_args_is_help=True)
Directory = Annotated[Path, typer.Option("--dir", help="Where the cluster keeps its stores, journals and logs.")]
HERE = Path(".dejamq")


@app.command(
    epilog=examples(
        "dejamq cluster up", "dejamq cluster up --brokers 1 --namesrvs 1 --set autoCreateTopicEnable=false",
        "dejamq cluster up --slaves 1 --set brokerRole=SYNC_MASTER", 'eval "$(dejamq cluster up)"',
    )
)  # fmt: skip
def up(
    namesrvs: Annotated[int, typer.Option(min=1, metavar="N", help="Name servers.")] = 2,
    brokers: Annotated[int, typer.Option(min=1, max=26, metavar="N", help="Brokers (masters).")] = 2,
    slaves: Annotated[int, typer.Option(min=0, metavar="N", help="Slaves of each broker.")] = 0,
    directory: Directory = HERE,
    foreground: Annotated[bool, typer.Option("-f", "--foreground", help="Stay until Ctrl-C, then end it.")] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Repeatable.")] = None,
    journal_level: Annotated[Level, typer.Option(help="Of the servers.")] = Level.AUDIT,
    output: Output = Format.TABLE,
) -> None:
    """Start name servers and brokers, on RocketMQ's ports where they are free. Returns when clients can use them."""
    size = Size(namesrvs, brokers, slaves, dict(_pair(text) for text in settings or []), journal_level)
    asyncio.run(_up(directory, size, foreground, output))


@app.command(epilog=examples("dejamq cluster status -o json"))
def status(directory: Directory = HERE, output: Output = Format.TABLE) -> None:
    """The processes of the cluster in --dir, with the role of each broker and how far behind each slave is.

    Exit status 1 unless all run and are healthy, and all slaves follow their masters.
    """
    state = background.read_state(directory)
    found = asyncio.run(background.states(state))
    replicas = asyncio.run(background.replicas(state))
    alone = [f"{name} does not follow its master: {one.trouble}" for name, one in replicas.items() if one.trouble]
    healthy = bool(found) and not alone and all(text == "running" for _, text in found)
    rows = [_row(member, text) | _replica(replicas.get(member.name)) for member, text in found]
    if output is Format.JSON:
        show_object({"namesrv": state.namesrv, "healthy": healthy, "processes": rows})
    else:
        show_rows(rows, output, empty="no processes")
    for line in alone:
        say(line)
    raise typer.Exit(0 if healthy else NO)


@app.command(epilog=examples("dejamq cluster start", "dejamq cluster start --dir .dejamq -o json"))
def start(directory: Directory = HERE, output: Output = Format.TABLE) -> None:
    """Start again the processes of the cluster in --dir that have stopped or were killed, each with its store.

    They get the addresses and settings that they had. Returns when clients can use them.
    """
    started = asyncio.run(background.start(directory))
    show_rows([_row(member, "running") for member in started], output, empty="nothing had stopped")


@app.command(epilog=examples("dejamq cluster down", "dejamq cluster down --purge"))
def down(
    directory: Directory = HERE,
    purge: Annotated[bool, typer.Option(help="Also remove its stores, journals and logs.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """End the cluster in --dir; brokers drain first, masters before slaves. Its data stays unless --purge."""
    state = background.read_state(directory)
    ended = asyncio.run(background.down(state))
    if purge:
        background.purge(directory, state)
    show_rows([_row(member, "stopped") for member in ended], output, empty="nothing was running")


@app.command(epilog=examples("dejamq cluster health --brokers 2", "dejamq cluster health --strict -o json"))
def health(
    brokers: Annotated[int, typer.Option(min=1, metavar="N", help="So many masters must serve, at least.")] = 1,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also no while only a name server or a slave is away.")
    ] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Can clients use the cluster? Exit status 0 yes, 1 no.

    Yes is: some name server serves, and so does every master that one of them knows, at least one. A name server that
    is away, and a slave that does not serve or follow its master, is said and shown; clients use the others. Name
    servers forget a broker that has been away for two minutes: --brokers notices that. Nothing here waits longer than
    6 s.
    """
    servers = asyncio.run(health_of(namesrv))
    show_rows([server.row() for server in servers], output, empty="nobody")
    if away := [server.address for server in servers if server.role == "namesrv" and not server.healthy]:
        say(f"name servers that do not serve: {', '.join(away)}")
    if headless := [server.name for server in servers if not server.address]:
        say(f"brokers without a master: {', '.join(headless)}")
    if apart := [f"{server.name} {server.address}" for server in servers if server.following is False]:
        say(f"slaves that do not follow their masters: {', '.join(apart)}")
    if (there := len(masters(servers))) < brokers:
        say(f"name servers know {there} of {brokers} masters")
    if not usable(servers) or there < brokers or (strict and (away or apart)):
        raise typer.Exit(NO)


@app.command("list", epilog=examples("dejamq cluster list -o json"))
def list_(namesrv: Namesrv = DEFAULT_NAMESRV, output: Output = Format.TABLE) -> None:
    """The brokers that are registered, with every replica. None of them is asked: dejamq broker list does that."""
    rows = [
        {"cluster": broker.cluster, "broker": broker.broker_name, "id": broker_id, "address": address}
        for broker in ask(namesrv, Admin.brokers)
        for broker_id, address in sorted(broker.addresses.items())
    ]
    show_rows(rows, output, empty="no broker is registered")


async def _up(directory: Path, size: Size, foreground: bool, output: Format) -> None:
    state = await background.up(directory, size)
    if not foreground:
        _tell(state, output)
        return
    try:
        signalled = asyncio.create_task(wait_for_signal())
        await asyncio.sleep(0)  # its handlers are there before anybody can read that the cluster is up
        _tell(state, output)
        number = await signalled
    finally:
        await background.down(state)
    raise typer.Exit(INTERRUPTED if number == signal.SIGINT else OK)


def _tell(state: StandingCluster, output: Format) -> None:
    if output is Format.JSON:
        rows = [_row(member, "running") for member in state.processes]
        show_object({"namesrv": state.namesrv, "healthy": True, "processes": rows})
    else:
        tell(f"export DEJAMQ_NAMESRV='{state.namesrv}'")


def _replica(replica: background.ReplicaRole | None) -> dict[str, Any]:
    """Of a broker: its role, and how far behind its master a slave is, as far as that can be told."""
    if replica is None:
        return {"broker_role": None, "lag_bytes": None, "lag_ms": None}
    return {"broker_role": replica.role or None, "lag_bytes": replica.lag_bytes, "lag_ms": replica.lag_ms}


def _row(member: RunningServer, state: str) -> dict[str, Any]:
    return {
        "name": member.name, "role": member.role, "pid": member.pid, "address": member.address, "state": state,
    }  # fmt: skip


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set wants KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()
