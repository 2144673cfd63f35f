"""``dejamq bench``: throughput and latency, with the machine's own baseline measured in the same run."""

import asyncio
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer
from dejamq_lab.bench.auditing import measure_audit
from dejamq_lab.bench.measure import Bench
from dejamq_lab.bench.result import BenchResult, Load
from dejamq_proto.codes import ConfigError
from dejamq_proto.journal import Level as JournalLevel

from dejamq_cli.audit import needs_spark
from dejamq_cli.helping import examples
from dejamq_cli.output import Format, Output, show_object, show_rows

app = typer.Typer(
    help="Measure throughput and latency, of a cluster of one broker that is started for it or of --namesrv.",
    no_args_is_help=True,
)

Where = Annotated[str | None, typer.Option("--namesrv", metavar="HOST:PORT;…", help="Measure this cluster instead.")]
Messages = Annotated[int, typer.Option(min=1, help="How many messages.")]
Body = Annotated[int, typer.Option("--body-bytes", min=1, help="Size of each body.")]
Level = Annotated[JournalLevel, typer.Option("--journal-level", help="Of servers and clients.")]


class Mode(StrEnum):
    SUBMIT = "submit"
    AWAIT = "await"
    SINGLE = "single"


@app.command(epilog=examples("dejamq bench send", "dejamq bench send --mode await --concurrency 256 -o json"))
def send(
    messages: Messages = 200_000,
    body_bytes: Body = 1024,
    mode: Annotated[Mode, typer.Option(help="submit, await (many senders) or single (one at a time).")] = Mode.SUBMIT,
    concurrency: Annotated[int, typer.Option(min=1, help="Senders in mode await.")] = 256,
    journal_level: Level = JournalLevel.AUDIT,
    namesrv: Where = None,
    output: Output = Format.TABLE,
) -> None:
    """Acknowledged sends a second; with mode await or single also the time of one."""
    load = Load(messages, body_bytes, mode=mode, concurrency=concurrency, journal_level=journal_level)
    _measure("send", load, namesrv, output)


@app.command()
def consume(
    messages: Messages = 200_000,
    body_bytes: Body = 1024,
    journal_level: Level = JournalLevel.AUDIT,
    namesrv: Where = None,
    output: Output = Format.TABLE,
) -> None:
    """Messages a second through an async handler that reads the body. They are sent first; that is not counted."""
    _measure("consume", Load(messages, body_bytes, journal_level=journal_level), namesrv, output)


@app.command()
def poll(
    messages: Messages = 500_000,
    body_bytes: Body = 1024,
    journal_level: Level = JournalLevel.AUDIT,
    namesrv: Where = None,
    output: Output = Format.TABLE,
) -> None:
    """Messages a second out of polls of 500, body and id of each read. They are sent first; that is not counted."""
    _measure("poll", Load(messages, body_bytes, journal_level=journal_level), namesrv, output)


@app.command()
def latency(
    messages: Messages = 50_000,
    body_bytes: Body = 1024,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 10_000,
    journal_level: Level = JournalLevel.AUDIT,
    namesrv: Where = None,
    output: Output = Format.TABLE,
) -> None:
    """From just before the send to the handler, at a given rate: median and 99th percentile."""
    _measure("latency", Load(messages, body_bytes, rate=rate, journal_level=journal_level), namesrv, output)


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


def _measure(what: str, load: Load, namesrv: str | None, output: Format) -> None:
    _show(asyncio.run(Bench(load, namesrv).run(what)), output)


def _show(result: BenchResult, output: Format) -> None:
    if output is Format.JSON:
        show_object(result)
    else:
        show_rows([_row(result)], output, empty="")


def _row(result: BenchResult) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(result)
    row |= row.pop("baseline") | row.pop("settings")
    return {name: value for name, value in row.items() if value is not None}
