"""``consumerOffset.json`` and ``delayOffset.json``, the generation before each (``.bak``), and copies of them."""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto import loose_json

from dejamq_analytics.evidence.mark import MS, Mark, whole
from dejamq_analytics.evidence.text_lines import CUT_OFF, opened

NAME = re.compile(r"(consumerOffset|delayOffset).*\.json(\.bak)?(\.gz)?$")
MOST_BYTES = 1 << 30
NAMED_MS = re.compile(r"(?<!\d)(1[5-9]\d{11}|2\d{12})(?!\d)")


def marks(path: Path, shown: str, host: str) -> Iterator[Mark]:
    """One mark for the whole table: the offset of each queue of each group, or how far each level of delays has come.

    Only of a copy that says in its name when it was made: the file itself does not say when it was written.
    """
    named, table = NAMED_MS.search(path.name), _table_of(path)
    if named is None or table is None:
        return
    if path.name.startswith("consumerOffset"):
        said: dict[str, Any] = {"offsets": offsets_of(table["offsetTable"]), "broker": ""}
        yield Mark(int(named[1]) * MS, 0, shown, host, "offsets", said)
    else:
        progress = {str(level): offset for level, offset in _numbers(table["offsetTable"]).items()}
        said = {"progress": msgspec.json.encode(progress).decode(), "broker": ""}
        yield Mark(int(named[1]) * MS, 0, shown, host, "delays", said)


def told(path: Path) -> str:
    """What it is, in words."""
    what = "consumer offsets" if path.name.startswith("consumerOffset") else "progress of delays"
    before = ", the generation before" if ".bak" in path.name else ""
    table = _table_of(path)
    if table is None:
        return f"{what}{before}, damaged"
    number = f"{len(table['offsetTable'])} entries"
    named = NAMED_MS.search(path.name)
    if named is None:
        return f"{what}{before}, {number}; without a time in its name it proves nothing"
    return f"{what}{before}, {number}, copied at {datetime.fromtimestamp(int(named[1]) / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def offsets_of(table: dict[str, Any]) -> dict[tuple[str, str, int], int]:
    """RocketMQ's ``TOPIC@GROUP`` → queue → offset, by topic, group and queue."""
    return {
        (key.rpartition("@")[0], key.rpartition("@")[2], queue): value
        for key, queues in table.items()
        if isinstance(queues, dict)
        for queue, value in _numbers(queues).items()
    }


def _numbers(table: dict[str, Any]) -> dict[int, int]:
    """The pairs that are numbers: others are damage."""
    found = {}
    for key, value in table.items():
        with suppress(ValueError):
            found[whole(key)] = whole(value)
    return found


def _table_of(path: Path) -> dict[str, Any] | None:
    try:
        with opened(path) as file:
            return _table(file.read(MOST_BYTES))
    except CUT_OFF:
        return None


def _table(text: bytes) -> dict[str, Any] | None:
    try:
        table = loose_json.loads_loose(text.decode())
    except (ValueError, UnicodeDecodeError):
        return None
    return table if isinstance(table, dict) and isinstance(table.get("offsetTable"), dict) else None
