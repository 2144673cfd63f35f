"""``dejamq dev --console``: the pages in this process, the server in another one, which keeps a journal for them.

Programs that journal into the same folder (``DEJAMQ_JOURNAL_DIR``) are audited too.
"""

import argparse
import asyncio
import os
import re
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from dejamq_proto.codes import DejamqError
from dejamq_proto.serving.server import wait_for_signal
from dejamq_proto.standard_output import run

from dejamq_cli.console.settings import WARNING, ConsoleSettings, check_needs
from dejamq_cli.console.sources import Sources
from dejamq_cli.terminal.output import BAD_USE, NO, OutputClosed, say, tell

READY = re.compile(rb"ready dev ([^;\s]+);")
JOURNAL_DIR = ("journal_dir", "journalDir")
LONGEST_LINE = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status is the server's."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--console", required=True)
    parser.add_argument("--set", action="append", default=[])
    given = sys.argv[1:] if arguments is None else list(arguments)
    known, rest = parser.parse_known_args(given)
    settings = [argument for pair in known.set for argument in ("--set", pair)]
    with ExitStack() as kept:
        journal = _journal_of(known.set) or os.environ.get("DEJAMQ_JOURNAL_DIR")
        if not journal:
            journal = kept.enter_context(
                tempfile.TemporaryDirectory(prefix="dejamq-journal-", ignore_cleanup_errors=True)
            )
            settings += ["--set", f"journal_dir={journal}"]
        command = [sys.executable, "-m", "dejamq_lab.dev", *rest, *settings]
        try:
            check_needs()
            check = ConsoleSettings(None, known.console, Sources([Path(journal)]))
            check.address  # noqa: B018  # raises before a server is started
            return asyncio.run(_run(command, known.console, Path(journal)))
        except OutputClosed:
            return NO
        except DejamqError as error:
            say(str(error))
            return BAD_USE


def _journal_of(pairs: Sequence[str]) -> str | None:
    """The one that the caller has set."""
    named = [value for name, _, value in (pair.partition("=") for pair in pairs) if name.strip() in JOURNAL_DIR]
    return named[-1].strip() if named else None


async def _run(command: Sequence[str], listen: str, journal: Path) -> int:
    server = await asyncio.create_subprocess_exec(*command, stdout=PIPE, limit=LONGEST_LINE)
    signalled = asyncio.create_task(wait_for_signal())
    ended = asyncio.create_task(server.wait())
    pages = asyncio.create_task(_pages(server, listen, journal))
    try:
        await asyncio.wait([signalled, ended, pages], return_when=asyncio.FIRST_COMPLETED)
        if pages.done() and not pages.cancelled():
            pages.result()
        return await _stopped(server)
    finally:
        await _stopped(server)
        for task in (pages, signalled, ended):
            task.cancel()
        await asyncio.gather(pages, signalled, ended, return_exceptions=True)


async def _pages(server: Process, listen: str, journal: Path) -> None:
    """Pass on what the server says. When it is ready, the pages are too, until this is cancelled."""
    from dejamq_cli.console.server import serving

    assert server.stdout is not None
    while line := await server.stdout.readline():
        tell(line.decode(errors="replace").rstrip("\n"))
        if found := READY.match(line):
            settings = ConsoleSettings(found[1].decode(), listen, Sources([journal]))
            async with serving(settings) as address:
                tell(f"ready console {address}; export DEJAMQ_JOURNAL_DIR={journal}")
                if settings.is_open:
                    say(WARNING.format(listen=listen))
                while line := await server.stdout.readline():
                    tell(line.decode(errors="replace").rstrip("\n"))
                await asyncio.Event().wait()


async def _stopped(server: Process) -> int:
    if server.returncode is None:
        with suppress(ProcessLookupError):
            server.send_signal(signal.SIGTERM)
    return await server.wait()


if __name__ == "__main__":
    sys.exit(run("dejamq", main, server=True))
