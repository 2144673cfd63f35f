"""``dejamq console``: pages about a cluster, and why its messages came twice."""

import asyncio
import secrets
from pathlib import Path
from typing import Annotated

import typer
from dejamq_proto.codes import ConfigError
from dejamq_proto.serving.server import wait_for_signal

from dejamq_cli.console.settings import LISTEN, REFRESH_S, ConsoleSettings, check_needs
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.output import DEFAULT_NAMESRV, Namesrv, say, tell

EXAMPLES = examples(
    "dejamq console --journal .dejamq/journal", "dejamq console --no-cluster --journal demo-out/cluster/journal",
    "dejamq console --allow-changes --listen 127.0.0.1:9000",
)  # fmt: skip


def console(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    no_cluster: Annotated[bool, typer.Option("--no-cluster", help="Look at journals only.")] = False,
    journal: Annotated[
        list[Path] | None,
        typer.Option(
            "--journal", metavar="DIR", envvar="DEJAMQ_JOURNAL_DIR", file_okay=False,
            help="A journal_dir of brokers and clients, audited while it grows; repeatable.",
        ),
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
    """Pages for a browser: the cluster now, and from journals why messages came twice. Until Ctrl-C.

    Every page is JSON as well: with .json at its end. It reads only, unless --allow-changes.
    """
    check_needs()
    settings = ConsoleSettings(
        None if no_cluster else namesrv, listen, journal or (), secrets.token_urlsafe(24) if allow_changes else None,
        host_name or (), refresh,
    )  # fmt: skip
    if no_cluster and not journal:
        raise ConfigError("--no-cluster leaves nothing to show without --journal DIR")
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
        say(f"everybody who reaches {settings.listen} can read all messages: nothing asks who they are")
