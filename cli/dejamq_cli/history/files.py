"""Journal files as a stream of lines, and how complete each process's journal is."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from dejamq_proto.codes import ConfigError
from dejamq_proto.journal.lines import files_in, whole_lines
from dejamq_proto.loose_json import BAD_JSON


class Envelope(msgspec.Struct):
    """Fields of every line."""

    boot_id: str
    seq: int
    role: str = ""
    process: str = ""
    wall_us: int = 0


class Witness(msgspec.Struct):
    """One start of one process, as far as its journal goes. ``level`` is empty where its first line is gone."""

    boot_id: str
    role: str
    process: str
    level: str = ""
    closed: bool = False
    lines: int = 0
    torn: int = 0
    last_seq: int = 0
    last_wall_us: int = 0

    @property
    def missing(self) -> int:
        """Lines that were written, or tried to be, and are not here."""
        return max(self.last_seq - self.lines, 0)


_decode_envelope = msgspec.json.Decoder(Envelope).decode


def journal_files(directories: Iterable[Path]) -> list[Path]:
    """Every journal file in these folders, each once. Raises ConfigError for a folder without any."""
    found: dict[Path, None] = {}
    for directory in directories:
        here = list(files_in(directory)) if directory.is_dir() else []
        if not here:
            why = "has no journal (*.jsonl)" if directory.is_dir() else "is no folder"
            raise ConfigError(f"{directory} {why}; name the journal_dir of the servers and clients")
        found |= dict.fromkeys(path.resolve() for path in here)
    return list(found)


class Attendance:
    """Counts who wrote what, line by line, without decoding more than the first and the last line of a file."""

    def __init__(self) -> None:
        self.by_boot: dict[str, Witness] = {}

    def count(self, path: Path, lines: int, first: bytes, last: bytes) -> None:
        """Note a file that was read: the number of whole lines, the first and the last of them."""
        torn = 0 if _ends_whole(path) else 1
        begin, end = envelope(first) or _readable(path), envelope(last) or _readable(path, from_end=True)
        if begin is None or end is None:
            return
        witness = self.by_boot.setdefault(begin.boot_id, Witness(begin.boot_id, begin.role, begin.process))
        witness.lines += lines
        witness.torn += torn
        if end.seq >= witness.last_seq:
            witness.last_seq, witness.last_wall_us = end.seq, end.wall_us


def envelope(line: bytes) -> Envelope | None:
    """None for what is no line of a journal."""
    try:
        return _decode_envelope(line)
    except BAD_JSON:
        return None


def _readable(path: Path, *, from_end: bool = False) -> Envelope | None:
    """The first or last line that can be read, of a file that begins or ends in damage."""
    found = (one for line in whole_lines(path) if (one := envelope(line)))
    return max(found, key=lambda one: one.seq, default=None) if from_end else next(found, None)


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - 2, 0))
        return not size or file.read() == b"}\n"
