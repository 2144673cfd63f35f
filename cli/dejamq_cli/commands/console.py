"""``dejamq console``: pages about a cluster, and why its messages came twice."""

import asyncio
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer
from dejamq_proto.codes import ConfigError
from dejamq_proto.serving.server import wait_for_signal

from dejamq_cli.console.settings import LISTEN, REFRESH_S, WARNING, ConsoleSettings, check_needs
from dejamq_cli.console.sources import Sources
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.output import DEFAULT_NAMESRV, Namesrv, say, tell

EXAMPLES = examples(
    "dejamq console --journal .dejamq/journal", "dejamq console --no-cluster --journal demo-out/cluster/journal",
    "dejamq console --no-cluster --evidence incident", "dejamq console --allow-changes --listen 127.0.0.1:9000",
)  # fmt: skip
EVIDENCE = "Evidence, as dejamq audit takes it"


def _folders(name: str, what: str) -> Any:
    """An option that names evidence that is there, and may be given again."""
    return typer.Option(name, metavar="DIR", exists=True, help=f"{what}; repeatable.", rich_help_panel=EVIDENCE)


def _texts(name: str, metavar: str, what: str) -> Any:
    return typer.Option(name, metavar=metavar, help=what, rich_help_panel=EVIDENCE)


def console(
    context: typer.Context,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    no_cluster: Annotated[bool, typer.Option("--no-cluster", help="Look at journals and other evidence only.")] = False,
    journal: Annotated[
        list[Path] | None,
        typer.Option(
            "--journal", metavar="DIR", envvar="DEJAMQ_JOURNAL_DIR", file_okay=False,
            help="A journal_dir of brokers and clients, audited while it grows; repeatable.",
            rich_help_panel=EVIDENCE,
        ),
    ] = None,
    store: Annotated[list[Path] | None, _folders("--store", "A broker's store directory")] = None,
    logs: Annotated[list[Path] | None, _folders("--logs", "Logs of RocketMQ's clients and servers")] = None,
    trace: Annotated[list[Path] | None, _folders("--trace", "Exported messages of RocketMQ's trace topic")] = None,
    evidence: Annotated[
        list[Path] | None, _folders("--evidence", "Any of these, offset files, and what dejamq collect wrote")
    ] = None,
    zone: Annotated[list[str] | None, _texts("--zone", "[PART=]+HH:MM", "Time zone of logs; repeatable.")] = None,
    log_pattern: Annotated[
        str | None, _texts("--log-pattern", "PATTERN", "Layout of an application's own log (logback, log4j).")
    ] = None,
    trace_topic: Annotated[
        list[str] | None, _texts("--trace-topic", "TOPIC", "Of clients that have their own; repeatable.")
    ] = None,
    business_key: Annotated[
        str | None, _texts("--business-key", "PROPERTY", "Messages with the same value are the same business.")
    ] = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Port 0 takes a free one.")] = LISTEN,
    host_name: Annotated[
        list[str] | None,
        typer.Option("--host-name", metavar="NAME", help="Another name by which browsers may call it; repeatable."),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let who has the printed token send dead letters again.")
    ] = False,
    refresh: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Least time between two looks, and between two audits.")
    ] = REFRESH_S,
) -> None:  # fmt: skip
    """Pages for a browser: the cluster now, and from journals, logs and stores why messages came twice. Until Ctrl-C.

    Every page is JSON as well: with .json at its end. It reads only, unless --allow-changes.
    """
    check_needs()
    named = {"--zone": zone, "--log-pattern": log_pattern and [log_pattern], "--trace-topic": trace_topic,
             "--business-key": business_key and [business_key]}  # fmt: skip
    reading = [f"{name}={value}" for name, values in named.items() for value in values or ()]
    told_by = context.get_parameter_source("journal")
    if (
        told_by is not None and told_by.name == "ENVIRONMENT" and (logs or trace or evidence)
    ):  # as the audit: what is named is meant alone
        journal = None
    sources = Sources(journal or (), store or (), logs or (), trace or (), evidence or (), reading)
    settings = ConsoleSettings(
        None if no_cluster else namesrv, listen, sources, secrets.token_urlsafe(24) if allow_changes else None,
        names=host_name or (), refresh_s=refresh,
    )  # fmt: skip
    if no_cluster and not sources:
        raise ConfigError("--no-cluster leaves nothing to show without --journal DIR or other evidence")
    asyncio.run(serve(settings))


async def serve(settings: ConsoleSettings) -> None:
    """Until a signal. The line on standard output says where the pages are."""
    from dejamq_cli.console.server import serving

    signalled = asyncio.create_task(wait_for_signal())
    try:
        async with serving(settings) as address:
            announce(settings, address)
            await signalled
    finally:
        signalled.cancel()


def announce(settings: ConsoleSettings, address: str) -> None:
    tell(f"ready console {address}")
    if settings.token is not None:
        tell(f"token {settings.token}")
    if settings.is_open:
        say(WARNING.format(listen=settings.listen))
