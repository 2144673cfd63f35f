"""``dejamq bench``: throughput and latency, with the machine's own baseline measured in the same run."""

import asyncio
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer
from dejamq_lab.bench.auditing import measure_audit
from dejamq_lab.bench.client.result import BenchResult, Load
from dejamq_lab.bench.measure import Bench
from dejamq_lab.bench.peers import NAMES
from dejamq_proto.codes import ConfigError
from dejamq_proto.journal.writer import Level as JournalLevel

from dejamq_cli.commands.audit import needs_spark
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.output import Format, Output, show_object, show_rows

app = typer.Typer(
    help="Measure throughput and latency, of a cluster of one broker started for it, of --namesrv or of a --peer.",
    no_args_is_help=True,
)

Where = Annotated[str | None, typer.Option("--namesrv", metavar="HOST:PORT;…", help="Measure this cluster instead.")]
Peer = Annotated[
    str | None, typer.Option("--peer", metavar="NAME", help=f"Measure this one instead: {', '.join(NAMES)}.")
]
Messages = Annotated[int, typer.Option(min=1, help="How many messages.")]
Body = Annotated[int, typer.Option("--body-bytes", min=1, help="Size of each body.")]
Level = Annotated[JournalLevel, typer.Option("--journal-level", help="Of servers and clients.")]
Queues = Annotated[int, typer.Option(min=1, help="Queues of each topic.")]
Topics = Annotated[int, typer.Option(min=1, help="Topics, in turn.")]


class Mode(StrEnum):
    SUBMIT = "submit"
    AWAIT = "await"
    SINGLE = "single"
    BATCH = "batch"


class FlushMode(StrEnum):
    ASYNC = "async"
    SYNC = "sync"


class Transport(StrEnum):
    GRPC = "grpc"
    FRAMES = "frames"


Carrier = Annotated[Transport, typer.Option(help="What carries runs and pulls: frames need a broker's fast port.")]
Flush = Annotated[FlushMode, typer.Option(help="Whether a send is answered before the disk has it, or after.")]


@app.command(
    epilog=examples(
        "dejamq bench send",
        "dejamq bench send --mode await --concurrency 64 --flush-mode sync -o json",
        "dejamq bench send --peer redis",
    )
)
def send(
    messages: Messages = 200_000,
    body_bytes: Body = 1024,
    mode: Annotated[
        Mode, typer.Option(help="submit, await (many senders), single (one at a time) or batch (one batch at a time).")
    ] = Mode.SUBMIT,
    concurrency: Annotated[int, typer.Option(min=1, help="Senders in mode await.")] = 256,
    batch_size: Annotated[int, typer.Option(min=1, help="Messages of a batch in mode batch.")] = 32,
    queues: Queues = 4,
    topics: Topics = 1,
    flush_mode: Flush = FlushMode.ASYNC,
    journal_level: Level = JournalLevel.AUDIT,
    transport: Carrier = Transport.GRPC,
    namesrv: Where = None,
    peer: Peer = None,
    output: Output = Format.TABLE,
) -> None:
    """Acknowledged sends a second; with another mode than submit also the time of one."""
    load = Load(
        messages, body_bytes, mode=mode, concurrency=concurrency, journal_level=journal_level, queues=queues,
        topics=topics, flush_mode=flush_mode, batch_size=batch_size if mode is Mode.BATCH else 1, transport=transport,
    )  # fmt: skip
    _measure("send", load, namesrv, peer, output)


@app.command()
def consume(
    messages: Messages = 200_000,
    body_bytes: Body = 1024,
    batch_size: Annotated[int, typer.Option(min=1, help="Messages a handler is given at once.")] = 1,
    while_sending: Annotated[
        bool, typer.Option("--while-sending", help="Together with the producer, from its begin to the last message.")
    ] = False,
    queues: Queues = 4,
    topics: Topics = 1,
    journal_level: Level = JournalLevel.AUDIT,
    transport: Carrier = Transport.GRPC,
    namesrv: Where = None,
    peer: Peer = None,
    output: Output = Format.TABLE,
) -> None:
    """Messages a second through an async handler that reads the body. They are sent first; that is not counted."""
    load = Load(
        messages, body_bytes, journal_level=journal_level, batch_size=batch_size, together=while_sending,
        queues=queues, topics=topics, transport=transport,
    )  # fmt: skip
    _measure("consume", load, namesrv, peer, output)


@app.command()
def poll(
    messages: Messages = 500_000,
    body_bytes: Body = 1024,
    queues: Queues = 4,
    topics: Topics = 1,
    journal_level: Level = JournalLevel.AUDIT,
    transport: Carrier = Transport.GRPC,
    namesrv: Where = None,
    peer: Peer = None,
    output: Output = Format.TABLE,
) -> None:
    """Messages a second out of polls of 500, body and id of each read. They are sent first; that is not counted."""
    load = Load(messages, body_bytes, journal_level=journal_level, queues=queues, topics=topics, transport=transport)
    _measure("poll", load, namesrv, peer, output)


@app.command()
def latency(
    messages: Messages = 50_000,
    body_bytes: Body = 1024,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 10_000,
    queues: Queues = 4,
    topics: Topics = 1,
    journal_level: Level = JournalLevel.AUDIT,
    transport: Carrier = Transport.GRPC,
    namesrv: Where = None,
    peer: Peer = None,
    output: Output = Format.TABLE,
) -> None:
    """From just before the send to the handler, at a given rate: median and 99th percentile."""
    load = Load(
        messages, body_bytes, rate=rate, journal_level=journal_level, queues=queues, topics=topics, transport=transport
    )
    _measure("latency", load, namesrv, peer, output)


@app.command()
def audit(
    messages: Messages = 100_000,
    body_bytes: Body = 64,
    journal_level: Level = JournalLevel.AUDIT,
    output: Output = Format.TABLE,
) -> None:
    """Messages a second through the whole audit, Spark's start included; they are sent and consumed first."""
    if journal_level is JournalLevel.OFF:
        raise ConfigError("--journal-level off leaves nothing to audit: audit or forensic")
    needs_spark()
    _show(asyncio.run(measure_audit(Load(messages, body_bytes, journal_level=journal_level))), output)


def _measure(what: str, load: Load, namesrv: str | None, peer: str | None, output: Format) -> None:
    if peer and load.transport == Transport.FRAMES:
        raise ConfigError("--transport is dejamq's own: leave out --peer")
    if peer and namesrv:
        raise ConfigError("--peer starts its own servers: leave out --namesrv")
    if namesrv and load.flush_mode == FlushMode.SYNC:
        raise ConfigError("--flush-mode is of servers that are started here: leave out --namesrv")
    _show(asyncio.run(Bench(load, namesrv, peer).run(what)), output)


def _show(result: BenchResult, output: Format) -> None:
    if output is Format.JSON:
        show_object(result)
    else:
        show_rows([_row(result)], output, empty="")


def _row(result: BenchResult) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(result)
    row |= row.pop("baseline") | row.pop("settings")
    return {name: value for name, value in row.items() if value is not None}
