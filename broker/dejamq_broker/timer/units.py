"""The files of ``timerlog``: a unit of 52 bytes for each waiting message, chained backwards within its slot.

Source: RocketMQ ``TimerLog``, ``TimerMessageStore.doEnqueue``.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dejamq_broker.store.files.directories import make_directory, sync_directory
from dejamq_broker.store.files.file_queue import list_files
from dejamq_broker.store.files.paths import file_name

DEFAULT, ROLL, DELETE = 1, 2, 4
"""Bits of a unit's magic number."""
UNIT = np.dtype([
    ("size", ">i4"), ("previous", ">i8"), ("magic", ">i4"), ("written_ms", ">i8"), ("delay_ms", ">i4"),
    ("log_offset", ">i8"), ("record_size", ">i4"), ("topic_hash", ">i4"), ("reserved", ">i8"),
])  # fmt: skip
_UNIT = struct.Struct(">iqiqiqiiq")
SIZE = _UNIT.size
_BLANK = struct.Struct(">iqi")
BLANK_MAGIC = -875286124
LARGEST_MAGIC = 15
SCAN_UNITS = 1 << 16
BLOCK_UNITS = 1260
KEPT_BLOCKS = 64
"""Blocks that a reader remembers: units of one slot lie apart, and are mostly read in the order of the file."""
Units = npt.NDArray[np.void]


class Unit(NamedTuple):
    """``written_ms`` + ``delay_ms`` is the time of its slot; ``previous``: the slot's unit before it, -1 for none."""

    previous: int
    magic: int
    written_ms: int
    delay_ms: int
    log_offset: int
    record_size: int
    topic_hash: int

    @property
    def recalls(self) -> bool:
        """Whether it is the mark of a recalled message; one that is stored again on its way does not count yet."""
        return self.magic & (DELETE | ROLL) == DELETE

    def encode(self) -> bytes:
        return _UNIT.pack(SIZE, *self, 0)


class TimerLog:
    """Units are kept until ``write``. Positions run on through all files, whose rest of less than a unit is blank."""

    def __init__(self, folder: Path, file_size: int) -> None:
        self._folder, self.file_size = folder, file_size
        self._files: dict[int, int] = {}
        self._starts: list[int] = []
        self.end = 0
        """The position of the next unit."""
        self._pending = bytearray()

    def load(self) -> None:
        """Find the files. ``end`` is unknown until ``scan`` told it. Raises StoreDamaged, OSError."""
        self._starts = list_files(self._folder, self.file_size)

    @property
    def holds_some(self) -> bool:
        return bool(self._starts)

    @property
    def start(self) -> int:
        return self._starts[0] if self._starts else 0

    @property
    def unwritten(self) -> bool:
        """Whether ``write`` has something to do."""
        return bool(self._pending)

    def append(self, unit: Unit) -> int:
        """The position that the unit gets."""
        left = self.file_size - self.end % self.file_size
        if left < SIZE + _BLANK.size:
            self._pending += _BLANK.pack(left, 0, BLANK_MAGIC).ljust(left, b"\0")
            self.end += left
        position = self.end
        self._pending += unit.encode()
        self.end += SIZE
        return position

    def write(self) -> None:
        """Store the units that were appended. Raises OSError; then they are kept for the next time."""
        position, pending = self.end - len(self._pending), bytes(self._pending)
        while pending:
            left = self.file_size - position % self.file_size
            part = pending[:left]
            written = os.pwrite(self._file(position, make=True), part, position % self.file_size)
            position, pending = position + written, pending[written:]
        self._pending.clear()

    def scan(self, position: int) -> Iterator[tuple[int, Units]]:
        """Good units from a position on (whose file's first unit is the first), with the place of each part's first.

        The log ends behind the last one. Raises OSError.
        """
        self.end = self.start
        for start in [start for start in self._starts if start + self.file_size > position]:
            self.end = start
            while self.end < start + self.file_size:
                raw = os.pread(self._file(start), SCAN_UNITS * SIZE, self.end - start)
                units = np.frombuffer(raw[: len(raw) // SIZE * SIZE], UNIT)
                good = (units["size"] == SIZE) & (units["magic"] > 0) & (units["magic"] <= LARGEST_MAGIC)
                count = int(np.argmin(good)) if not good.all() else len(good)
                if count:
                    yield self.end, units[:count]
                self.end += count * SIZE
                if count < len(good) or not len(good):
                    break
            if not self._is_full(start):
                return

    def _is_full(self, start: int) -> bool:
        """Whether the units go on in the next file; the end stands there then."""
        left = start + self.file_size - self.end
        if left >= SIZE + _BLANK.size:
            return False
        self.end = start + self.file_size
        return self.end in self._starts

    def reader(self) -> "UnitReader":
        return UnitReader(self)

    def cut(self) -> None:
        """Let nothing stand behind the end that a scan found. Raises OSError."""
        for start in [start for start in self._starts if start >= self.end and start > self.start]:
            os.close(self._file(start))
            del self._files[start]
            self._starts.remove(start)
            (self._folder / file_name(start)).unlink()
        if self._starts and self.end < self._starts[-1] + self.file_size:
            os.ftruncate(self._file(self.end), self.end % self.file_size)
            os.ftruncate(self._file(self.end), self.file_size)

    def block(self, position: int) -> bytes:
        """Units from a position on, as they are now. Raises OSError, KeyError without such a file (any more)."""
        return os.pread(self._file(position), BLOCK_UNITS * SIZE, position % self.file_size)

    def delete_before(self, log_min: int) -> None:
        """Delete the files of which all units point before this log offset. Raises OSError."""
        last = (self.file_size - _BLANK.size) // SIZE * SIZE - SIZE
        while len(self._starts) > 1:
            start = self._starts[0]
            unit = _UNIT.unpack(os.pread(self._file(start), SIZE, last))
            if unit[0] != SIZE or unit[5] >= log_min:
                return
            os.close(self._files.pop(start))
            (self._folder / file_name(start)).unlink()
            sync_directory(self._folder)
            self._starts.pop(0)

    def sync(self) -> None:
        """Have what was written on disk; may run beside the loop. Raises OSError."""
        for file in tuple(self._files.values()):
            os.fdatasync(file)

    def clear(self) -> None:
        """Begin again with nothing. Raises OSError."""
        self.close()
        if self._folder.is_dir():
            for path in sorted(self._folder.iterdir(), reverse=True):
                path.unlink()
        self._starts, self.end = [], 0

    def close(self) -> None:
        self._pending.clear()
        while self._files:
            os.close(self._files.popitem()[1])

    def _file(self, position: int, *, make: bool = False) -> int:
        start = position - position % self.file_size
        if start in self._files:
            return self._files[start]
        if start not in self._starts and not make:
            raise KeyError(start)
        if start not in self._starts:
            make_directory(self._folder)
        file = os.open(self._folder / file_name(start), os.O_RDWR | os.O_CREAT, 0o644)
        if start not in self._starts:
            os.ftruncate(file, self.file_size)
            self._starts.append(start)
        self._files[start] = file
        return file


class UnitReader:
    """Reads units one by one for a while, in which those that it reads do not change."""

    def __init__(self, log: TimerLog) -> None:
        self._log = log
        self._blocks: dict[int, bytes] = {}

    def read(self, position: int) -> Unit | None:
        """The unit there; None where there is none (any more). Raises OSError."""
        at = position % self._log.file_size % (BLOCK_UNITS * SIZE)
        try:
            raw = self._block(position - at)[at : at + SIZE]
        except KeyError:
            return None
        size, *fields, _ = _UNIT.unpack(raw) if len(raw) == SIZE else (0, 0)
        return Unit(*fields) if size == SIZE else None

    def _block(self, position: int) -> bytes:
        block = self._blocks.get(position)
        if block is None:
            if len(self._blocks) >= KEPT_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            block = self._blocks[position] = self._log.block(position)
        return block
