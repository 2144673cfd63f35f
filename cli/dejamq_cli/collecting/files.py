"""Evidence files in one folder: whole lines, gzipped when full, the oldest removed when all are too large.

The first line of each file says where in the trace topic the reading was when the file began. With the lines behind it
that tells where to go on, whenever the command ended and however.
"""

import asyncio
import fcntl
import gzip
import shutil
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from dejamq_proto.codes import ConfigError
from dejamq_proto.loose_json import BAD_JSON
from dejamq_proto.texts import number_of

from dejamq_cli.collecting.lines import FORMAT, session_line

PIECES = 16
"""Files that together have the size that is allowed."""
LEAST_BYTES = 1 << 20
PATTERN = "evidence-*.jsonl*"
GZIPPED, UNFINISHED = ".gz", ".tmp"
Places = dict[str, dict[str, int]]
"""The next offset to be read of each queue of the trace topic, by broker name and queue id."""


class _EvidenceLine(msgspec.Struct):
    """What of a line says how far the trace topic was read."""

    kind: str
    event: str = ""
    format: int = 0
    trace_topic: str = ""
    trace_next: Places = {}
    broker: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    to_offset: int | None = None


_decoder = msgspec.json.Decoder(_EvidenceLine)


class EvidenceFiles:
    """The files of one folder, and the one that is written. ``places``: how far the trace topic was read.

    A file takes a sixteenth of what is allowed. One more may be there unfinished while it is gzipped.
    """

    def __init__(
        self, folder: Path, most_bytes: int, trace_topic: str, head: Callable[[], dict[str, Any]],
        wrote: Callable[[int], None],
    ) -> None:  # fmt: skip
        """``head``: what the first line of a file says beside its number and the places. ``wrote`` gets the number of
        new lines.

        Raises ConfigError for a folder in which another one collects, or with evidence of another trace topic.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        try:
            _clear_up(folder)
            self.places = _places_of(folder, trace_topic)
        except BaseException:
            self._lock.close()
            raise
        self._folder, self._most, self._piece = folder, most_bytes, max(most_bytes // PIECES, LEAST_BYTES // PIECES)
        self._topic, self._head, self._wrote = trace_topic, head, wrote
        self.removed = 0
        self._packing: asyncio.Task[None] | None = None
        for path in _paths(folder):
            if path.suffix != GZIPPED:
                self._pack(path)
        self._number = max(map(_number, _paths(folder)), default=0)
        self._file: FileIO
        self._size = 0
        self._open_next()

    def write(self, line: bytes) -> None:
        """All of it, at once: who kills this process finds whole lines, but maybe for the last one."""
        if self._size + len(line) > self._piece and self._size > self._head_size:
            self._file.close()
            self._pack(self._path())
            self._open_next()
        self._make_room(len(line))
        self._put(line)
        self._wrote(1)

    def place(self, broker: str, queue_id: int) -> int | None:
        """The next offset to be read of this queue of the trace topic; None before its first reading."""
        return self.places.get(broker, {}).get(str(queue_id))

    def write_trace(self, line: bytes, broker: str, queue_id: int, next_offset: int) -> None:
        """As ``write``; the queue is read on from ``next_offset``."""
        self.write(line)
        self.places.setdefault(broker, {})[str(queue_id)] = next_offset

    def move(self, event: str, broker: str, queue_id: int, before: int | None, to: int) -> None:
        """The reading of a queue of the trace topic begins at ``to``, or goes on there."""
        about = {} if before is None else {"from_offset": before}
        self.note(event, broker=broker, queue_id=queue_id, **about, to_offset=to)
        self.places.setdefault(broker, {})[str(queue_id)] = to

    def note(self, event: str, **about: Any) -> None:
        """A line about the collecting itself."""
        self.write(session_line(event, **about))

    async def close(self) -> None:
        """The newest file stays as it is. Raises OSError for what could not be written or gzipped."""
        with self._lock, self._file:
            if self._packing is not None:
                await self._packing

    def size(self) -> int:
        """Bytes of all evidence in the folder."""
        return sum(map(_size, _paths(self._folder)))

    def _path(self) -> Path:
        return self._folder / f"evidence-{self._number:06}.jsonl"

    def _pack(self, path: Path) -> None:
        """One after the other, beside the collecting."""
        self._packing = asyncio.get_running_loop().create_task(_pack(path, self._packing))

    def _open_next(self) -> None:
        self._number += 1
        self._file = self._path().open("xb", buffering=0)
        self._size = 0
        about = self._head() | {"trace_topic": self._topic, "trace_next": self.places}
        self._put(session_line("file", format=FORMAT, file=self._number, **about))
        self._head_size = self._size

    def _put(self, line: bytes) -> None:
        """Raises OSError with the file's name, which the system does not tell."""
        left = memoryview(line)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path())) from None
        self._size += len(line)

    def _make_room(self, wanted: int) -> None:
        """For the rest of this file, and for the one that is being gzipped."""
        if self._size > self._head_size and wanted < self._piece:
            return
        room = self._most - max(self._piece, wanted) - self._piece
        closed = [path for path in _paths(self._folder) if path != self._path()]
        total = sum(map(_size, closed))
        for path in closed:
            if total <= room:
                break
            total -= _size(path)
            path.unlink(missing_ok=True)
            self.removed += 1


def _locked(folder: Path) -> BinaryIO:
    lock = (folder / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ConfigError(f"another dejamq collect writes to {folder}; choose another folder") from None
    return lock


def _clear_up(folder: Path) -> None:
    """What a kill left of gzipping."""
    for rest in folder.glob(f"{PATTERN}{UNFINISHED}"):
        rest.unlink()
    for path in _paths(folder):
        if path.suffix != GZIPPED and _gzipped(path).exists():
            path.unlink()


def _paths(folder: Path) -> list[Path]:
    """Evidence of the folder, the oldest first."""
    return sorted((path for path in folder.glob(PATTERN) if path.suffix != UNFINISHED), key=_number)


def _size(path: Path) -> int:
    """0 for one that was gzipped meanwhile, and is there by another name."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _number(path: Path) -> int:
    digits = path.name.removeprefix("evidence-").partition(".")[0]
    return number_of(digits) or 0


def _gzipped(path: Path) -> Path:
    return path.with_name(path.name + GZIPPED)


async def _pack(path: Path, earlier: "asyncio.Task[None] | None") -> None:
    if earlier is not None:
        await earlier
    await asyncio.to_thread(_gzip, path)


def _gzip(path: Path) -> None:
    """In its place as a whole, or not at all. One that was removed meanwhile, for want of room, stays away."""
    unfinished = path.with_name(path.name + GZIPPED + UNFINISHED)
    try:
        with path.open("rb") as plain, gzip.open(unfinished, "wb", compresslevel=6) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)
        if path.exists():
            unfinished.replace(_gzipped(path))
        path.unlink()
    except FileNotFoundError:
        unfinished.unlink(missing_ok=True)


def _places_of(folder: Path, topic: str) -> Places:
    """From the newest file whose first line can be read. Raises ConfigError for evidence of another trace topic."""
    for path in reversed(_paths(folder)):
        lines = _lines_of(path)
        head = next(lines, None)
        if head is None or head.event != "file":
            continue
        if head.format != FORMAT:
            raise ConfigError(f"{path} has format {head.format}, this version writes {FORMAT}; choose another folder")
        if head.trace_topic != topic:
            raise ConfigError(f"{folder} has the trace topic {head.trace_topic}, not {topic}; choose another folder")
        places = head.trace_next
        for line in lines:
            if line.kind == "trace":
                places.setdefault(line.broker, {})[str(line.queue_id)] = line.queue_offset + 1
            elif line.to_offset is not None:
                places.setdefault(line.broker, {})[str(line.queue_id)] = line.to_offset
        return places
    return {}


def _lines_of(path: Path) -> Iterator[_EvidenceLine]:
    """Lines that say something of places, but for a torn one."""
    with gzip.open(path) if path.suffix == GZIPPED else path.open("rb") as file:
        for line in file:
            if line.startswith((b'{"kind":"trace"', b'{"kind":"session"')) and line.endswith(b"\n"):
                try:
                    yield _decoder.decode(line)
                except BAD_JSON as error:
                    raise ConfigError(f"{path} is no evidence of dejamq collect: {error}") from None
