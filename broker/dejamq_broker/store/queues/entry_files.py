"""The files of one consume queue, 20 bytes a message, by queue offset. Source: RocketMQ ``ConsumeQueue``.

Nothing stays open: two thousand queues hold no descriptor. The files are derived from the log. So a file that is not as
it must be is a reason to make the queue again, never to refuse the store.
"""

import errno
import os
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dejamq_broker.store.files.config import QUEUE_ENTRY_SIZE
from dejamq_broker.store.files.directories import sync_directory
from dejamq_broker.store.files.paths import file_name, file_start

ENTRY = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
ENTRY_FIELDS = struct.Struct(">qiq")
assert ENTRY.itemsize == ENTRY_FIELDS.size == QUEUE_ENTRY_SIZE
PLAIN_ENTRY = np.dtype(f"V{QUEUE_ENTRY_SIZE}")
"""An entry as mere bytes: numpy copies these several times as fast as field by field."""
Entries = npt.NDArray[np.void]

FILLER_SIZE = 0x7FFFFFFF
"""Size in an entry that stands for no message, as RocketMQ fills a queue that begins late."""
FILLER = np.array((0, FILLER_SIZE, 0), ENTRY)

PAGE = 4096


class EntryFiles:
    """Entries on disk, ``per_file`` in each file. One thread writes; any thread reads what was written."""

    __slots__ = ("_prefix", "_size", "_unsynced", "per_file", "unsynced_names")

    def __init__(self, folder: Path, file_size: int) -> None:
        """A store has tens of thousands of these, so they are small: no Path is kept, and no empty set."""
        self.per_file = file_size // QUEUE_ENTRY_SIZE
        self._size = self.per_file * QUEUE_ENTRY_SIZE
        self._prefix = f"{folder}/"
        self._unsynced: dict[int, None] = {}
        self.unsynced_names = False
        """A file or folder is new, and a crash may lose its name."""

    @property
    def folder(self) -> Path:
        return Path(self._prefix)

    def check(self, end: int | None = None) -> tuple[list[int], str]:
        """The first queue offset of each file, in order, and the fault of the files ("": nothing).

        Only files that begin before the queue offset ``end`` count. Names that no data file has are passed over. A
        *last* file that is short is whole as far as it goes: a crash came while it got its length.
        """
        lengths = self._lengths()
        starts = sorted(start for start in lengths if end is None or start < end * QUEUE_ENTRY_SIZE)
        for start in starts:
            length = lengths[start]
            if start % self._size:
                return [], f"{file_name(start)} does not begin at a multiple of {self._size}"
            if length != self._size and (start != starts[-1] or length > self._size):
                return [], f"{file_name(start)} has {length} bytes instead of {self._size}"
            if start != starts[0] and start - self._size not in lengths:
                return [], f"{file_name(start - self._size)} is missing"
        return [start // QUEUE_ENTRY_SIZE for start in starts], ""

    def read(self, queue_offset: int, count: int) -> Entries:
        """Entries of one file; fewer where it ends, nothing without a file."""
        at = queue_offset % self.per_file
        count = min(count, self.per_file - at)
        try:
            descriptor = os.open(self._path(queue_offset - at), os.O_RDONLY)
        except FileNotFoundError:
            return np.empty(0, ENTRY)
        try:
            data = os.pread(descriptor, count * QUEUE_ENTRY_SIZE, at * QUEUE_ENTRY_SIZE)
        finally:
            os.close(descriptor)
        return np.frombuffer(data, ENTRY, len(data) // QUEUE_ENTRY_SIZE)

    def write(self, queue_offset: int, entries: Entries) -> None:
        """Write entries that lie in one file, which is made if need be. Raises OSError."""
        at = queue_offset % self.per_file
        path = self._path(queue_offset - at)
        if at == 0 or not self.folder.is_dir():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.unsynced_names = True
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if os.fstat(descriptor).st_size < self._size:
                os.ftruncate(descriptor, self._size)
                self.unsynced_names = True
            data, position = memoryview(entries.tobytes()), at * QUEUE_ENTRY_SIZE
            while data:
                # a disk that is nearly full takes a part first, and says so only the next time
                taken = os.pwrite(descriptor, data, position)
                data, position = data[taken:], position + taken
        finally:
            os.close(descriptor)
        self._unsynced[queue_offset - at] = None

    def sync(self) -> list[Path]:
        """Put on disk what was written. Gives the folders to sync as well, for names that are new. Raises OSError."""
        for first in sorted(self._unsynced):
            try:
                descriptor = os.open(self._path(first), os.O_RDWR)
            except FileNotFoundError:  # expired since
                self._unsynced.pop(first, None)
                continue
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            self._unsynced.pop(first, None)
        names, self.unsynced_names = self.unsynced_names, False
        return [self.folder, *list(self.folder.parents)[:3]] if names and self.folder.is_dir() else []

    @property
    def unsynced(self) -> bool:
        return bool(self._unsynced) or self.unsynced_names

    # Recovery, before any other thread runs.

    def mark_unsynced(self) -> None:
        """The writer of the files may not have synced them, nor their names."""
        self._unsynced.update(dict.fromkeys(self.check()[0]))
        self.unsynced_names = True

    def clear_from(self, queue_offset: int) -> None:
        """Leave nothing at or after this queue offset. Raises OSError.

        The first file stays, empty if need be: its name says how far the queue had come.
        """
        lengths = self._lengths()
        for start in sorted(lengths):
            first = start // QUEUE_ENTRY_SIZE
            if first >= queue_offset and start > min(lengths):
                os.unlink(self._path(first))
                self.unsynced_names = True
            elif first + self.per_file > queue_offset:
                kept = max(0, queue_offset - first)
                if lengths[start] == self._size and self._is_clear(first, kept):
                    continue
                os.truncate(self._path(first), min(lengths[start], kept * QUEUE_ENTRY_SIZE))
                os.truncate(self._path(first), self._size)
                self._unsynced[first] = None

    def discard(self) -> None:
        """Delete all data files, whatever their length. Raises OSError."""
        for start in self._lengths():
            (self.folder / file_name(start)).unlink(missing_ok=True)
            self.unsynced_names = True
        self._unsynced.clear()

    def remove_folder(self) -> None:
        """Remove the folder and, with the last queue, its topic's. One with something else in it stays."""
        for folder in (self.folder, self.folder.parent):
            try:
                folder.rmdir()
            except OSError:
                return
            sync_directory(folder.parent)

    def _is_clear(self, first: int, count: int) -> bool:
        """Whether this file is known to have nothing behind this number of entries: zeros in the page, and a hole
        after.
        """
        at = count * QUEUE_ENTRY_SIZE
        descriptor = os.open(self._path(first), os.O_RDONLY)
        try:
            page_end = -(-at // PAGE) * PAGE
            return not any(os.pread(descriptor, page_end - at, at)) and not _has_data(descriptor, page_end)
        finally:
            os.close(descriptor)

    def _lengths(self) -> dict[int, int]:
        """Bytes in each file, by the byte offset that it is named for."""
        found = {}
        try:
            with os.scandir(self.folder) as listing:
                for entry in listing:
                    start = file_start(entry.name)
                    if start is not None and entry.is_file():
                        found[start] = entry.stat().st_size
        except FileNotFoundError:
            pass
        return found

    def _path(self, first: int) -> str:
        return f"{self._prefix}{file_name(first * QUEUE_ENTRY_SIZE)}"


def count_good(entries: Entries, log_end: int) -> tuple[int, int]:
    """How many of these can be entries, up to the first that cannot, and where the record of the last one ends.

    An entry has a size, and its record does not begin before the one before it ends; ``log_end`` is where the record
    before the first ends.
    """
    log_offsets, sizes = entries["log_offset"].astype(np.int64), entries["size"].astype(np.int64)
    filler = sizes == FILLER_SIZE
    ends = np.maximum.accumulate(np.concatenate(([log_end], np.where(filler, 0, log_offsets + sizes))))
    good = (sizes > 0) & (filler | (log_offsets >= ends[:-1]))
    count = len(good) if good.all() else int(np.argmin(good))
    return count, int(ends[count])


def _has_data(descriptor: int, at: int) -> bool:
    """Whether anything but a hole follows."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA) >= 0
    except OSError as error:
        if error.errno == errno.ENXIO:
            return False
        raise
