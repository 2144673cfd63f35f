"""Journals in parts of some megabytes, which tasks read themselves: as rows of Spark, lines would cost more to carry to
Python than to look at there. Only local files (or such as every worker has at the same path) can be read so.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
from dejamq_proto.journal.lines import files_in

from dejamq_analytics.sources.journal_files import identity
from dejamq_analytics.sources.paths import BadInput, local_path
from dejamq_analytics.survey import wire
from dejamq_analytics.survey.wire import Read

BYTES = 8 << 20
"""Memory of this size is used again for the next part; larger pieces the kernel hands out, and clears, anew."""


class Chunk(msgspec.Struct, frozen=True):
    """The lines of a journal that begin between two positions. ``identity`` as ``journal_files.identity``."""

    path: str
    identity: str
    begin: int
    end: int

    @property
    def file(self) -> str:
        return Path(self.path).name


class LineSpan(NamedTuple):
    """Where a line stands in its file: position and bytes."""

    at: int
    size: int


def cut(journals: Sequence[str]) -> list[Chunk] | None:
    """All journals in parts, None where one of them is not local."""
    folders = [local_path(journal) for journal in journals]
    files = [file.resolve() for folder in folders if folder is not None for file in files_in(folder)]
    if None in folders:
        return None
    return [part for file in dict.fromkeys(files) for part in _parts(file)]


def _parts(file: Path) -> Iterator[Chunk]:
    known, size = identity(file), file.stat().st_size
    for begin in range(0, size, BYTES):
        yield Chunk(str(file), known, begin, min(begin + BYTES, size))


def read(chunk: Chunk) -> Iterator[tuple[LineSpan, Read]]:
    """Its lines with their places; empty lines are left out. Raises BadInput when the file is gone."""
    with open(_found(chunk), "rb") as file:
        file.seek(max(chunk.begin - 1, 0))
        if chunk.begin:
            file.readline()  # the end of a line that belongs to the part before, or the newline alone
        begin = file.tell()
        data = file.read(max(chunk.end - begin, 0))
        if data and not data.endswith(b"\n"):
            data += file.readline()
    starts, ends = _bounds(data)
    for start, one in zip(starts, wire.read(memoryview(data), starts, ends), strict=True):
        yield LineSpan(begin + start, len(one[0])), one


def _bounds(data: bytes) -> tuple[list[int], list[int]]:
    """Where lines that are not empty begin and end."""
    starts, ends, at = [], [], 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        if end > at:
            starts.append(at)
            ends.append(end)
        at = end + 1
    return starts, ends


def read_some(chunk: Chunk, spans: Iterable[LineSpan]) -> Iterator[Read]:
    """The lines at these places alone, which ``read`` told. Raises BadInput when the file is gone."""
    with open(_found(chunk), "rb") as file:
        for span in spans:
            file.seek(span.at)
            yield from wire.read(memoryview(file.read(span.size)), [0], [span.size])


def _found(chunk: Chunk) -> Path:
    """Where the file is now: a process that goes on may have rotated it since."""
    path = Path(chunk.path)
    there = (other for other in chain((path,), files_in(path.parent)) if identity(other) == chunk.identity)
    if (found := next(there, None)) is None:
        raise BadInput(f"the journal {path} was replaced while it was read: audit a copy, or use --follow")
    return found
