"""``dejamq collect``: evidence from a running cluster, RocketMQ's or ours, for an audit."""

import asyncio
import os
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from dejamq.values.config import parse_addresses
from dejamq_proto.codes import ConfigError
from dejamq_proto.names import check_group, check_topic
from dejamq_proto.remoting import requests
from dejamq_proto.remoting_client import Account
from dejamq_proto.wire.tls import ClientTls

from dejamq_cli.collecting.collector import CollectOptions, Summary
from dejamq_cli.collecting.collector import collect as collected
from dejamq_cli.collecting.files import LEAST_BYTES
from dejamq_cli.collecting.servers import AskedServer
from dejamq_cli.collecting.trace import Begin, offset_of
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.numbers import bytes_of
from dejamq_cli.terminal.output import (
    CANNOT_TELL,
    DEFAULT_NAMESRV,
    INTERRUPTED,
    Format,
    Namesrv,
    Output,
    show_fields,
    show_object,
)
from dejamq_cli.terminal.progress import Progress
from dejamq_cli.terminal.stopping import stop_signals
from dejamq_cli.terminal.times import FORMS, time_ms

SECRET = "DEJAMQ_SECRET_KEY"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
EXAMPLES = examples(
    "dejamq collect --namesrv 10.0.0.1:9876 --out evidence",
    "dejamq collect --namesrv '10.0.0.1:9876;10.0.0.2:9876' --out evidence --once",
    "dejamq collect --out evidence --group billing --interval 5 --max-size 20GB",
)


def collect(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the evidence; made if it is not there.")],
    once: Annotated[bool, typer.Option("--once", help="One snapshot of everything, then end.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="From the beginning of a round of questions to the next.")
    ] = 10,
    rate: Annotated[float, typer.Option(min=0.1, metavar="N", help="At most so many requests a second.")] = 100,
    max_size: Annotated[
        str, typer.Option("--max-size", metavar="SIZE", help="Of all files in DIR; the oldest go first.")
    ] = "2GB",
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="G", help="Ask about this group only. Repeatable.")
    ] = None,
    trace_topic: Annotated[
        str, typer.Option("--trace-topic", metavar="TOPIC", help="Where clients send their traces.")
    ] = TRACE_TOPIC,
    trace_from: Annotated[
        str, typer.Option("--trace-from", metavar="begin|end|TIME", help=f"TIME is {FORMS}.")
    ] = "begin",
    running_info: Annotated[
        bool, typer.Option("--running-info", help="Also ask each client, through its broker, what it is doing.")
    ] = False,
    access_key: Annotated[
        str | None, typer.Option(envvar="DEJAMQ_ACCESS_KEY", metavar="KEY", help=f"With access control; {SECRET} too.")
    ] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """Gather what a cluster can tell about duplicates, until Ctrl-C. Works on RocketMQ 4.9 and 5, and on dejamq.

    It only asks: no group is joined, no offset is committed, no topic is made. Every --interval it asks all brokers for
    offsets and members of groups, and all name servers for routes; beside that it follows the trace topic.

    Servers that are away are named and tried again. Started again with the same --out it goes on where it was.

    With DEJAMQ_TLS_CA and its like it dials with TLS (docs/security.md).

    Exit status 3 when a server did not answer at the end or there is no broker, 130 after Ctrl-C.
    """
    options = CollectOptions(
        namesrvs=parse_addresses(namesrv), folder=out, begin=_begin_of(trace_from), interval_s=interval, rate=rate,
        most_bytes=_size_of(max_size), trace_topic=trace_topic, groups=tuple(dict.fromkeys(group or ())),
        running_info=running_info, account=_account_of(access_key), tls=ClientTls.from_environment(),
    )  # fmt: skip
    check_topic(trace_topic)
    for name in options.groups:
        check_group(name)
    summary, interrupted = asyncio.run(_collect(options, once=once))
    _show(summary, output)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if summary.silent or not summary.brokers:
        raise typer.Exit(CANNOT_TELL)


async def _collect(options: CollectOptions, *, once: bool) -> tuple[Summary, bool]:
    """And whether a signal ended it."""
    progress = Progress("lines of evidence")
    with stop_signals() as asked:
        try:
            summary = await collected(options, asked.stopped, progress.add, once=once)
        finally:
            progress.end()
        return summary, asked.stopped.is_set()


def _show(summary: Summary, output: Format) -> None:
    if output is Format.JSON:
        show_object(summary)
        return
    row = msgspec.to_builtins(summary)
    row["answers"] = ", ".join(f"{count} {kind}" for kind, count in sorted(summary.answers.items())) or "none"
    row["refused"] = ", ".join(f"{count} {kind}" for kind, count in sorted(summary.refused.items())) or "none"
    row["silent"] = ", ".join(summary.silent) or "none"
    show_fields(row, output)


def _size_of(text: str) -> int:
    size = bytes_of(text, option="--max-size")
    if size < LEAST_BYTES:
        raise ConfigError(f"--max-size is 1MB at least, not {text}")
    return size


def _account_of(access_key: str | None) -> Account | None:
    """The secret comes by the environment: everybody on a machine sees the arguments of a command."""
    if access_key is None:
        return None
    if not (secret_key := os.environ.get(SECRET)):
        raise ConfigError(f"--access-key needs its secret key in the environment variable {SECRET}")
    return Account(access_key, secret_key)


def _begin_of(text: str) -> Begin:
    """Where a queue is begun that was never read. Raises ConfigError."""
    if text in ("begin", "end"):
        edge = requests.GET_MIN_OFFSET if text == "begin" else requests.GET_MAX_OFFSET
        return lambda server, queue: offset_of(server, edge, queue)
    since_ms = time_ms(text, round(time.time() * 1000), option="--trace-from")

    async def since(server: AskedServer, queue: requests.QueueQuestion) -> int:
        question = requests.TimeQuestion(topic=queue.topic, queue_id=queue.queue_id, timestamp=since_ms)
        return await offset_of(server, requests.SEARCH_OFFSET, question)

    return since
