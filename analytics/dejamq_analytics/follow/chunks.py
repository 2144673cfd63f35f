"""Cuts growing journals into chunks for Spark to stream: a file source sees new files, never longer ones.

A chunk is a file of whole lines that nobody changes. Its last line, ``STEP``, says how far each journal has been read,
so a chunk and the position behind it appear in one rename: a crash leaves both or neither. At most one chunk is not
yet taken, so that unread lines stay in the journals and not in the spool. When a chunk cannot hold all unread lines,
the oldest lines of all journals come first, and the step says from when on some are missing.

A journal is known by its first line, which names its process start and sequence: a rotated file keeps its position
under its new name, and a new file never inherits one. The last line of a process that was killed may be torn. It is
waited for while anything grows, and reported as ``TORN`` when all is quiet.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import NamedTuple

import msgspec
from dejamq_proto.journal.lines import boot_id
from dejamq_proto.loose_json import BAD_JSON

from dejamq_analytics.sources.journal_files import identity, is_event

CHUNK_BYTES = 64 << 20
PIECE_BYTES = 1 << 20
"""Of one journal at a time: how far they are read apart from each other."""
IDLE_STEP_MS = 1000
"""While nothing grows, this often a step says for how long."""
STEP, TORN = "STEP", "TORN"


class ChunkStep(msgspec.Struct, kw_only=True, frozen=True):
    """Where reading stands after a chunk. ``offsets`` are bytes of each journal; ``quiet``: nothing grew for a while,
    so whatever is known is complete. ``idle_ms``: for how long nothing had grown. ``unread_us``: the time of the oldest
    line there was no room for; None: none."""

    number: int = 0
    offsets: dict[str, int] = {}
    quiet: bool = False
    idle_ms: int = 0
    unread_us: int | None = None


class _Unread(NamedTuple):
    """A journal with whole lines behind its position, the oldest first; at equal times the older file first."""

    begins_us: int
    nth: int
    key: str
    path: Path


class _Time(msgspec.Struct):
    wall_us: int = 0


class _FollowedLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The chunker's own line among lines of journals; without ``seq`` it is no event to the audit."""

    event: str
    boot_id: str = ""
    reason: str = ""


class Chunker:
    """Owns the spool directory; ``advance`` is called again and again by the one who waits.

    ``quiet_ms``: so long must nothing grow before what is known is called complete.
    """

    def __init__(self, journals: Sequence[Path], spool: Path, taken: ChunkStep, *, quiet_ms: int) -> None:
        self._journals, self._spool, self._quiet_ms = journals, spool, quiet_ms
        spool.mkdir(parents=True, exist_ok=True)
        left = [_last_step(path) for path in _chunks(spool)]
        self.step = max([taken, *left], key=lambda step: step.number)
        self._grown_ms: int | None = None
        self._told_ms = 0

    def advance(self, taken: int, now_ms: int) -> bool:
        """Make the next chunk if there is something to tell and the one before was taken; whether it did.

        Chunks before ``taken`` are removed: that a later one was taken says that Spark is done with them.
        """
        for path in _chunks(self._spool):
            if _number(path) < taken:
                path.unlink(missing_ok=True)
        if self._grown_ms is None:
            self._grown_ms = self._told_ms = now_ms
        if self.step.number > taken:
            return False
        lines, offsets, unread_us = self._read()
        if lines:
            self._grown_ms = self._told_ms = now_ms
            self._publish(lines, ChunkStep(number=self.step.number + 1, offsets=offsets, unread_us=unread_us))
            return True
        if self.step.quiet or not self.step.number:
            return False
        return self._idle(offsets, now_ms, now_ms - self._grown_ms)

    def _idle(self, offsets: dict[str, int], now_ms: int, idle_ms: int) -> bool:
        """A chunk without new lines: what is known becomes complete while time goes by."""
        if idle_ms >= self._quiet_ms:
            torn, offsets = self._torn(offsets)
            self._publish(torn, ChunkStep(number=self.step.number + 1, offsets=offsets, quiet=True))
            return True
        if now_ms - self._told_ms < IDLE_STEP_MS:
            return False
        self._told_ms = now_ms
        self._publish([], ChunkStep(number=self.step.number + 1, offsets=offsets, idle_ms=idle_ms))
        return True

    def _read(self) -> tuple[list[bytes], dict[str, int], int | None]:
        """Whole lines behind the positions, at most CHUNK_BYTES or so, the positions behind them, and the time of the
        oldest line that is left.
        """
        lines: list[bytes] = []
        files = list(self._files())
        offsets = {key: self.step.offsets.get(key, 0) for key, _ in files}
        unread = [_Unread(begins, nth, key, path) for nth, (key, path) in enumerate(files)
                  if (begins := _begins_us(path, key, offsets[key])) is not None]  # fmt: skip
        heapify(unread)
        gone_us: list[int] = []  # of journals that were rotated just now: found under their new names the next time
        room = CHUNK_BYTES
        while unread and room > 0:
            begins_us, nth, key, path = unread[0]
            block = _block(path, key, offsets[key], min(room, PIECE_BYTES))
            offsets[key] += len(block)
            room -= len(block)
            lines += _readable(block, path)
            begins = _begins_us(path, key, offsets[key])
            if begins is None or not block:
                gone_us += [] if block else [begins_us]
                heappop(unread)
            else:
                heapreplace(unread, _Unread(begins, nth, key, path))
        return lines, offsets, min([*gone_us, *(left.begins_us for left in unread)], default=None)

    def _torn(self, offsets: dict[str, int]) -> tuple[list[bytes], dict[str, int]]:
        """Count the bytes behind the last whole line of each journal as one line that nobody can read."""
        lines, ends = [], dict(offsets)
        for key, path in self._files():
            size = path.stat().st_size
            if size > offsets.get(key, 0):
                lines.append(_torn_line(path))
                ends[key] = size
        return lines, ends

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Journals with at least one whole line, the older file of a rotated one first, as its lines are older."""
        for folder in self._journals:
            rotated_first = sorted(folder.glob("*.jsonl"), key=lambda path: (boot_id(path), ".1." not in path.name))
            for path in rotated_first:
                key = identity(path)
                if key:
                    yield key, path

    def _publish(self, lines: list[bytes], step: ChunkStep) -> None:
        own = msgspec.json.encode(_FollowedLine(event=STEP, reason=msgspec.json.encode(step).decode()))
        name = f"{step.number:012d}.jsonl"
        written = self._spool / f".{name}.tmp"
        written.write_bytes(b"\n".join([*lines, own]) + b"\n")
        written.replace(self._spool / name)
        self.step = step


def _chunks(spool: Path) -> list[Path]:
    return sorted(spool.glob("[0-9]*.jsonl"))


def _number(path: Path) -> int:
    return int(path.stem)


def _last_step(chunk: Path) -> ChunkStep:
    own = msgspec.json.decode(chunk.read_bytes().splitlines()[-1], type=_FollowedLine)
    return msgspec.json.decode(own.reason, type=ChunkStep)


def _begins_us(path: Path, key: str, begin: int) -> int | None:
    """The time of the line at ``begin``, 0 where that cannot be read; None while there is no whole line."""
    try:
        if path.stat().st_size <= begin:  # most files of many, most of the time
            return None
        with path.open("rb") as file:
            file.seek(begin)
            line = file.readline()
    except FileNotFoundError:
        return None
    if not line.endswith(b"\n") or identity(path) != key:
        return None
    try:
        return msgspec.json.decode(line, type=_Time).wall_us
    except BAD_JSON:
        return 0


def _block(path: Path, key: str, begin: int, room: int) -> bytes:
    """Bytes from ``begin`` up to the end of a line; one line may be longer than the room that is left."""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            data = file.read(room)
            if data and b"\n" not in data:
                data += file.readline()
    except FileNotFoundError:
        return b""
    return data[: data.rfind(b"\n") + 1] if identity(path) == key else b""


def _readable(block: bytes, path: Path) -> list[bytes]:
    """Each line, or that there is one which cannot be one."""
    lines = block.split(b"\n")[:-1]
    return [line if is_event(line) else _torn_line(path) for line in lines]


def _torn_line(path: Path) -> bytes:
    return msgspec.json.encode(_FollowedLine(event=TORN, boot_id=boot_id(path)))
