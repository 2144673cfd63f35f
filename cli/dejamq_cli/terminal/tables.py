"""Rows as text: a table, or a block for each row where the table does not fit. Pure but for the terminal's colours.

A moment is a column whose name ends with ``_timestamp_ms``, and ``perm`` is shown in letters; JSON has the numbers.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from dejamq_proto.names import PERM_INHERIT, PERM_READ, PERM_WRITE
from dejamq_proto.texts import printable
from rich.console import Console
from rich.table import Table

WIDEST = 10_000
TIME = "_timestamp_ms"
NOTHING = "-"
PERM_LETTERS = (("r", PERM_READ), ("w", PERM_WRITE), ("i", PERM_INHERIT))


def table(rows: Sequence[Mapping[str, Any]], columns: int | None, brief: Sequence[str] = ()) -> str:
    """One line a row under the headings. A table wider than ``columns`` keeps only its ``brief`` fields.

    If that is still too wide, the rows become ``blocks``.
    """
    for names in filter(None, (list(rows[0]), list(brief))):
        text = _table([{name: row[name] for name in names} for row in rows], columns)
        if text is not None:
            return text
    return blocks(rows)


def _table(rows: Sequence[Mapping[str, Any]], columns: int | None) -> str | None:
    """None when it does not fit."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        made.add_column(heading(name), justify="right" if _is_number(rows, name) else "left")
    for row in rows:
        made.add_row(*(cell(name, value) for name, value in row.items()))
    console = Console(highlight=False, markup=False, emoji=False, width=WIDEST)
    if columns is not None and console.measure(made).maximum > columns:
        return None
    with console.capture() as captured:
        console.print(made, crop=False)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def blocks(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each value, an empty one between rows. Each value begins in the same column."""
    width = max(len(heading(name)) for row in rows for name in row) if any(rows) else 0
    texts = ("\n".join(f"{heading(name):{width}}  {cell(name, row[name])}".rstrip() for name in row) for row in rows)
    return "\n\n".join(texts)


def heading(name: str) -> str:
    """The key of the JSON, less what its value shows anyway."""
    return name.removesuffix(TIME)


def cell(name: str, value: Any) -> str:
    """A value as people read it."""
    if value is None or value == [] or value == ():
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(cell("", one) for one in value)
    if name == "perm":
        return "".join(letter for letter, bit in PERM_LETTERS if value & bit) or NOTHING
    if name.endswith(TIME) and isinstance(value, int):
        return moment(value)
    return printable(str(value))


def moment(timestamp_ms: int) -> str:
    """To the second, in this machine's time zone; JSON has the milliseconds. As the number where no year has it."""
    try:
        return datetime.datetime.fromtimestamp(timestamp_ms / 1000).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def _is_number(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    found = {type(row[name]) for row in rows} - {type(None)}
    return bool(found) and found <= {int, float} and name != "perm" and not name.endswith(TIME)
