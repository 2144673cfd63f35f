"""``--watch``: a look every few seconds until Ctrl-C."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import typer
from dejamq_proto.codes import ConfigError

from dejamq_cli.access.admin_session import Silent, say_silent
from dejamq_cli.terminal.output import Format, say, show_object, tell
from dejamq_cli.terminal.tables import moment

EVERY_S = 2.0
LEAST_S, MOST_S = 0.1, 86_400
CLEAR = "\x1b[H\x1b[2J"

Watch = Annotated[
    float | None,
    typer.Option("--watch", metavar="[SECONDS]", help=f"Look again every {EVERY_S:g} s, or so many, until Ctrl-C."),
]
Look = Callable[[], Awaitable[tuple[Any, Silent]]]
Show = Callable[[Any, Format], None]


def with_seconds(arguments: Sequence[str]) -> list[str]:
    """``--watch`` may stand alone: the command line's library wants a value for every option that can have one."""
    words = list(arguments)
    options = words.index("--") if "--" in words else len(words)
    return [
        f"--watch={EVERY_S:g}" if word == "--watch" and place < options and not _is_number(words[place + 1 :]) else word
        for place, word in enumerate(words)
    ]


def show_or_watch(look: Look, show: Show, output: Format, every_s: float | None) -> Silent:
    """One look, shown; or with ``every_s`` looks for ever. In JSON each of those is one line, with its time.

    While it watches, a cluster that does not answer is a line, not the end: people watch restarts.
    """
    if every_s is None:
        answer, silent = asyncio.run(_once(look))
        show(answer, output)
        return silent
    if not LEAST_S <= every_s <= MOST_S:
        raise ConfigError(f"--watch looks every {LEAST_S} s to every {MOST_S} s, not every {every_s:g} s")
    asyncio.run(_watch(look, show, output, every_s))
    return {}


async def _once(look: Look) -> tuple[Any, Silent]:
    return await look()


async def _watch(look: Look, show: Show, output: Format, every_s: float) -> None:
    while True:
        try:
            answer, silent = await look()
        except (ConnectionError, TimeoutError) as error:
            say(str(error))
        else:
            _frame(answer, show, output, every_s)
            say_silent(silent)
        await asyncio.sleep(every_s)


def _frame(answer: Any, show: Show, output: Format, every_s: float) -> None:
    now_ms = time.time_ns() // 1_000_000
    if output is Format.JSON:
        show_object({"timestamp_ms": now_ms, "answer": answer})
        return
    clear = CLEAR if sys.stdout.isatty() else ""
    tell(f"{clear}{moment(now_ms)}, every {every_s:g} s, Ctrl-C ends")
    show(answer, output)
    tell("")


def _is_number(following: Sequence[str]) -> bool:
    try:
        float(following[0])
    except (IndexError, ValueError):
        return False
    return True
