"""How commands answer: a table for people, JSON for programs, and on standard error what is beside the point."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer
from dejamq_proto.standard_output import OutputFailed
from dejamq_proto.texts import printable

from dejamq_cli.terminal.tables import blocks, table

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
DEFAULT_NAMESRV = "127.0.0.1:9876"


class OutputClosed(Exception):
    """The reader of the output closed it, as ``head`` does, or it cannot be written: the command ends.

    ``standard_output.run`` says why, and has the exit status.
    """


def show_rows(rows: Sequence[Mapping[str, Any]], output: Format, *, empty: str, brief: Sequence[str] = ()) -> None:
    """A table with the keys as headings, or one JSON array. ``empty`` says in words that there is nothing.

    A terminal that is too narrow for the table shows only its ``brief`` columns, or each row as a block. Anywhere else
    a row is a line, however long: an id that is cut off cannot be copied.
    """
    if output is Format.JSON:
        show_object(rows)
    elif not rows:
        tell(empty)
    else:
        tell(table(rows, terminal_columns(), brief))


def show_fields(fields: Mapping[str, Any], output: Format) -> None:
    """One thing: a name and a value a line, or one JSON object."""
    if output is Format.JSON:
        show_object(fields)
    else:
        tell(blocks([fields]))


def show_object(value: Any) -> None:
    """One line of JSON, at once: the reader may be a pipe."""
    tell(msgspec.json.encode(value).decode())


def tell(text: str) -> None:
    """A line or more on standard output, at once. Raises OutputClosed."""
    tell_bytes(text.encode(errors="backslashreplace") + b"\n")


def tell_bytes(content: bytes) -> None:
    """On standard output as they are, at once; nowhere in a server that was started without. Raises OutputClosed."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except (BrokenPipeError, OutputFailed):
        # the interpreter flushes once more at its end, and would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputClosed from None


def say(text: str) -> None:
    """One line on standard error: what a person should know, and a program that reads the output should not read."""
    print(f"dejamq: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def terminal_columns() -> int | None:
    """How wide the terminal is; None where the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
