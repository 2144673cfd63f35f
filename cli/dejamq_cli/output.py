"""How commands answer: a table for people, JSON for programs; and the options that all of them have."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

OK, NO, BAD_USE, CANNOT_TELL, INTERRUPTED = 0, 1, 2, 3, 130


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


Namesrv = Annotated[
    str,
    typer.Option(
        "--namesrv", envvar="DEJAMQ_NAMESRV", metavar="HOST:PORT;…", help="Name servers, separated by ; or , signs."
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="A table, or JSON for programs.")]
WIDEST = 10_000
DEFAULT_NAMESRV = "127.0.0.1:9876"


def show_rows(rows: Sequence[dict[str, Any]], output: Format, *, empty: str) -> None:
    """A table with the keys as headings, or one JSON array. ``empty`` says in words that there is nothing."""
    if output is Format.JSON:
        show_object(rows)
    elif not rows:
        print(empty)
    else:
        table = Table(*rows[0], box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*(_cell(value) for value in row.values()))
        # as wide as it takes: an id that is cut off cannot be copied
        Console(highlight=False, width=WIDEST).print(table, crop=False)


def show_object(value: Any) -> None:
    """One line of JSON, at once: the reader may be a pipe."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
