"""Cuts growing journals into chunks, which is what Spark can stream: a file source sees new files, never longer ones.

A chunk is a file of whole lines that nobody changes. Its last line, ``STEP``, says how far each journal has been read,
so a chunk and the position behind it appear in one rename: a crash leaves both or neither. There is never more than one
chunk that was not yet taken, so that what is not read stays in the journals and not in the spool.

A journal is known by its first line, which names its process start and sequence: a rotated file keeps its position
under its new name, and a new file never inherits one. The last line of a process that was killed may be torn. It is
waited for while anything grows, and told as ``TORN`` when all is quiet.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dejamq_analytics.journal_files import boot_id, identity

CHUNK_BYTES = 64 << 20
STEP, TORN = "STEP", "TORN"


class Step(msgspec.Struct, kw_only=True, frozen=True):
    """Where reading stands after a chunk. ``offsets`` are bytes of each journal; ``quiet``: nothing grew for a while,
    so whatever is known is complete."""

    number: int = 0
    offsets: dict[str, int] = {}
    quiet: bool = False


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line of the chunker's own among those of journals; without ``seq`` it is no event to the audit."""

    event: str
    boot_id: str = ""
    reason: str = ""


class Chunker:
    """Owns the spool directory; ``advance`` is called again and again by the one who waits.

    ``quiet_ms``: so long must nothing grow before what is known is called complete.
    """

    def __init__(self, journals: Sequence[Path], spool: Path, taken: Step, *, quiet_ms: int) -> None:
        self._journals, self._spool, self._quiet_ms = journals, spool, quiet_ms
        spool.mkdir(parents=True, exist_ok=True)
        left = [_last_step(path) for path in _chunks(spool)]
        self.step = max([taken, *left], key=lambda step: step.number)
        self._grown_ms: int | None = None

    def advance(self, taken: int, now_ms: int) -> bool:
        """Make the next chunk if there is something to tell and the one before was taken; whether it did.

        Chunks before ``taken`` are removed: that a later one was taken says that Spark is done with them.
        """
        for path in _chunks(self._spool):
            if _number(path) < taken:
                path.unlink(missing_ok=True)
        if self._grown_ms is None:
            self._grown_ms = now_ms
        if self.step.number > taken:
            return False
        lines, offsets = self._read()
        if lines:
            self._grown_ms = now_ms
            self._publish(lines, Step(number=self.step.number + 1, offsets=offsets))
            return True
        if self.step.quiet or now_ms - self._grown_ms < self._quiet_ms or not self.step.number:
            return False
        torn, offsets = self._torn(offsets)
        self._publish(torn, Step(number=self.step.number + 1, offsets=offsets, quiet=True))
        return True

    def _read(self) -> tuple[list[bytes], dict[str, int]]:
        """Whole lines behind the positions, at most CHUNK_BYTES or so, and the positions behind them."""
        lines: list[bytes] = []
        offsets: dict[str, int] = {}
        room = CHUNK_BYTES
        for key, path in self._files():
            begin = self.step.offsets.get(key, 0)
            block = _block(path, begin, room)
            offsets[key] = begin + len(block)
            room -= len(block)
            lines += _readable(block, path)
        return lines, offsets

    def _torn(self, offsets: dict[str, int]) -> tuple[list[bytes], dict[str, int]]:
        """What stands behind the last whole line of each journal counts as one line that nobody can read."""
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

    def _publish(self, lines: list[bytes], step: Step) -> None:
        own = msgspec.json.encode(_Line(event=STEP, reason=msgspec.json.encode(step).decode()))
        name = f"{step.number:012d}.jsonl"
        written = self._spool / f".{name}.tmp"
        written.write_bytes(b"\n".join([*lines, own]) + b"\n")
        written.replace(self._spool / name)
        self.step = step


def _chunks(spool: Path) -> list[Path]:
    return sorted(spool.glob("[0-9]*.jsonl"))


def _number(path: Path) -> int:
    return int(path.stem)


def _last_step(chunk: Path) -> Step:
    own = msgspec.json.decode(chunk.read_bytes().splitlines()[-1], type=_Line)
    return msgspec.json.decode(own.reason, type=Step)


def _block(path: Path, begin: int, room: int) -> bytes:
    """Bytes from ``begin`` up to the end of a line; one line may be longer than the room that is left."""
    if room <= 0:
        return b""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            data = file.read(room)
            if data and b"\n" not in data:
                data += file.readline()
    except FileNotFoundError:
        return b""
    return data[: data.rfind(b"\n") + 1]


def _readable(block: bytes, path: Path) -> list[bytes]:
    """Each line, or that there is one which cannot be one."""
    lines = block.split(b"\n")[:-1]
    return [line if line.startswith(b"{") and line.endswith(b"}") else _torn_line(path) for line in lines]


def _torn_line(path: Path) -> bytes:
    return msgspec.json.encode(_Line(event=TORN, boot_id=boot_id(path)))
