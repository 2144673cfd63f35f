"""The file ``timerwheel``: where in the timer log each slot of time has its last unit. Source: RocketMQ ``TimerWheel``.

It is read and written by slots, so that it takes no memory. A slot whose time is another one's is empty: the wheel has
turned since.
"""

import os
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from dejamq_broker.store.files.errors import StoreDamaged
from dejamq_broker.timer.rules import WHEEL_SLOTS

SLOTS = 2 * WHEEL_SLOTS
SLOT = np.dtype([("time", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("magic", ">i4")])
FILE_SIZE = SLOTS * SLOT.itemsize
READ_SLOTS = 4096
NO_POSITION = -1


class Slot(msgspec.Struct, gc=False):
    """Positions in the timer log of a slot's first and last unit, and how many there are, marks counted as minus 1."""

    first: int
    last: int
    count: int


class TimerWheel:
    """Changes are kept until ``write``, which stores them behind the units that they point to."""

    def __init__(self, path: Path, precision_ms: int) -> None:
        self._path, self._precision_ms = path, precision_ms
        self._changed: dict[int, Slot] = {}
        self._file = -1

    def load(self) -> None:
        """Open the file if there is one; else the first ``write`` makes it. Raises StoreDamaged, OSError."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size not in (0, FILE_SIZE):
            raise StoreDamaged(f"{self._path} has {size} bytes, a wheel has {FILE_SIZE}")
        if size:
            self._file = os.open(self._path, os.O_RDWR)

    @property
    def exists(self) -> bool:
        return self._file >= 0

    @property
    def unwritten(self) -> bool:
        """Whether ``write`` has something to do."""
        return bool(self._changed)

    def get(self, slot_ms: int) -> Slot:
        """An empty one has no positions. Raises OSError."""
        number = slot_ms // self._precision_ms
        changed = self._changed.get(number)
        if changed is not None:
            return changed
        if self._file < 0:
            return Slot(NO_POSITION, NO_POSITION, 0)
        raw = os.pread(self._file, SLOT.itemsize, number % SLOTS * SLOT.itemsize)
        time, first, last, count, _ = np.frombuffer(raw, SLOT)[0].item()
        return Slot(first, last, count) if time == number and last >= 0 else Slot(NO_POSITION, NO_POSITION, 0)

    def put(self, slot_ms: int, slot: Slot) -> None:
        self._changed[slot_ms // self._precision_ms] = slot

    def write(self) -> None:
        """Store the changes. Raises OSError; then they are kept for the next time."""
        if not self._changed:
            return
        if self._file < 0:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            os.ftruncate(self._file, FILE_SIZE)
        numbers = np.array(sorted(self._changed), np.int64)
        slots = np.zeros(len(numbers), SLOT)
        slots["time"] = numbers
        for column in ("first", "last", "count"):
            slots[column] = [getattr(self._changed[number], column) for number in numbers.tolist()]
        breaks = np.flatnonzero(np.diff(numbers % SLOTS) != 1) + 1
        for part in np.split(np.arange(len(numbers)), breaks):
            os.pwrite(self._file, slots[part].tobytes(), int(numbers[part[0]]) % SLOTS * SLOT.itemsize)
        self._changed.clear()

    def next_used(self, from_ms: int, end_ms: int) -> int | None:
        """The first slot that holds something, from one time to before another; None: there is none."""
        number = from_ms // self._precision_ms
        end = min(end_ms // self._precision_ms, number + SLOTS)  # a clock may jump by years
        found = [each for each in self._changed if number <= each < end]
        if self._file >= 0:
            while number < end:
                count = min(READ_SLOTS, end - number, SLOTS - number % SLOTS)
                used = self._used(number, count)
                if len(used):
                    found.append(number + int(used[0]))
                    break
                number += count
        return min(found) * self._precision_ms if found else None

    def highest_position(self, from_ms: int) -> int:
        """Of all last units of slots from this time on; -1 for an empty wheel."""
        highest, number = NO_POSITION, from_ms // self._precision_ms
        end = number + SLOTS
        while self._file >= 0 and number < end:
            count = min(SLOTS - number % SLOTS, end - number)
            slots = self._read(number, count)
            last = slots["last"][slots["time"] == np.arange(number, number + count)]
            highest = max(highest, int(last.max()) if len(last) else NO_POSITION)
            number += count
        return highest

    def waiting(self, from_ms: int) -> int:
        """How many messages wait from this time on, about: marks take themselves away whether or not they meet one."""
        total, number = 0, from_ms // self._precision_ms
        end = number + SLOTS
        while self._file >= 0 and number < end:
            count = min(SLOTS - number % SLOTS, end - number)
            slots = self._read(number, count)
            total += int(slots["count"][slots["time"] == np.arange(number, number + count)].sum())
            number += count
        return max(0, total)

    def sync(self) -> None:
        """Have what was written on disk; may run beside the loop. Raises OSError."""
        if self._file >= 0:
            os.fdatasync(self._file)

    def clear(self) -> None:
        """Begin again with nothing. Raises OSError."""
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        self._changed.clear()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read(self, number: int, count: int) -> npt.NDArray[np.void]:
        return np.frombuffer(os.pread(self._file, count * SLOT.itemsize, number % SLOTS * SLOT.itemsize), SLOT)

    def _used(self, number: int, count: int) -> npt.NDArray[np.intp]:
        slots = self._read(number, count)
        return np.flatnonzero((slots["time"] == np.arange(number, number + len(slots))) & (slots["last"] >= 0))
