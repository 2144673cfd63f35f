"""Rows as text: a table, or a block for each row where the table does not fit. Pure but for the terminal's colours.

What a column's name ends with says how it is shown: ``_timestamp_ms`` is a moment, ``_bytes`` a size. JSON has the
numbers themselves.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

WIDEST = 10_000
TIME = "_timestamp_ms"
NOTHING = "-"


def table(rows: Sequence[Mapping[str, Any]], columns: int | None) -> str:
    """One line a row under the headings; ``blocks`` when that is wider than so many columns."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        made.add_column(heading(name), justify="right" if _is_number(rows, name) else "left")
    for row in rows:
        made.add_row(*(cell(name, value) for name, value in row.items()))
    console = Console(highlight=False, markup=False, emoji=False, width=WIDEST)
    if columns is not None and console.measure(made).maximum > columns:
        return blocks(rows)
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
    if name.endswith(TIME) and isinstance(value, int):
        return moment(value)
    return str(value)


def moment(timestamp_ms: int) -> str:
    """To the millisecond, in this machine's time zone."""
    return datetime.datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(" ", "milliseconds")


def _is_number(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    found = {type(row[name]) for row in rows} - {type(None)}
    return bool(found) and found <= {int, float} and not name.endswith(TIME)
