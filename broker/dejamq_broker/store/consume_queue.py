"""One consume queue: 20 bytes a message, saying where it is in the log. Source: RocketMQ ``ConsumeQueue``.

Derived from the log, so losing the end of it costs only time. Three parties, no lock: reput appends to an
array in memory, the flush thread writes that array to files, and anybody reads. ``max_offset`` is published last.
"""

import errno
import os
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dejamq_broker.store.batch import Ints
from dejamq_broker.store.config import QUEUE_ENTRY_SIZE
from dejamq_broker.store.directories import sync_directory
from dejamq_broker.store.errors import StoreDamaged
from dejamq_broker.store.file_queue import list_files
from dejamq_broker.store.paths import file_name

ENTRY = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
ENTRY_FIELDS = struct.Struct(">qiq")
assert ENTRY.itemsize == ENTRY_FIELDS.size == QUEUE_ENTRY_SIZE
Entries = npt.NDArray[np.void]

FILLER_SIZE = 0x7FFFFFFF
"""Size in an entry that stands for no message, as RocketMQ fills a queue that begins late."""
FILLER = np.array((0, FILLER_SIZE, 0), ENTRY)

PAGE = 4096
FIRST_ROOM = 64
KEPT_IN_MEMORY = 4096
CHUNK = 4096
MAX_GAP = 10_000_000
RECOVERED_FILES = 3


class ConsumeQueue:
    """Entries by queue offset, from ``min_offset`` up to but not including ``max_offset``."""

    def __init__(self, folder: Path, file_size: int) -> None:
        self.folder = folder
        self.min_offset = 0
        self.max_offset = 0
        self.max_log_offset = 0
        """Where the record of the newest entry ends."""
        self.written = 0
        """Entries before this queue offset are in the files. Only the flush thread moves it."""
        self.synced = 0
        """Entries before this queue offset are on disk. Only the flush thread moves it."""
        self._per_file = file_size // QUEUE_ENTRY_SIZE
        self._tail = (0, np.empty(0, ENTRY))
        self._unsynced: set[int] = set()
        self._unsynced_names = False

    # Recovery, before any thread runs.

    def load(self, synced: int | None) -> None:
        """Find the entries in the files, all up to the first that is not one.

        The files from the third-last on are looked at. Entries from the queue offset ``synced`` on are not believed: a
        power loss may have taken them in any order, or brought back those of an earlier life, and the log has them.
        None: nothing is known of what was synced, and all are believed.
        """
        starts = [start // QUEUE_ENTRY_SIZE for start in list_files(self.folder, self._per_file * QUEUE_ENTRY_SIZE)]
        if not starts:
            return
        self.min_offset = starts[0]
        last = (
            starts[-1] + self._per_file if synced is None else max(starts[0], min(synced, starts[-1] + self._per_file))
        )
        end = min(last, starts[max(0, len(starts) - RECOVERED_FILES)])
        while end < last:
            entries = self._from_files(end, min(last - end, self._per_file - end % self._per_file))
            good = (entries["size"] > 0) & (entries["log_offset"] >= 0)
            if not good.all():
                end += int(np.argmin(good))
                break
            end += len(entries)
        self._settle(end)
        self.synced = min(end, synced or 0)
        self._unsynced_names = synced is None
        self._unsynced.update(start for start in starts if start + self._per_file > self.synced)

    def truncate(self, log_end: int) -> int:
        """Drop entries of records that are not in the log any more, and what stands behind. Answers how many."""
        before = end = self.max_offset
        while end > self.min_offset:
            start = max(self.min_offset, end - CHUNK)
            kept = np.flatnonzero(self.entries(start, end - start)["log_offset"] < log_end)
            if len(kept):
                end = start + int(kept[-1]) + 1
                break
            end = start
        self._settle(end)
        self.synced = min(end, self.synced)
        self._clear_files()
        return before - end

    def correct_min(self, log_min: int) -> None:
        """The first entry whose record is still there becomes the minimum; without one the maximum does."""
        start, end = self.min_offset, self.max_offset
        while start < end:
            entries = self.entries(start, CHUNK)
            there = (entries["log_offset"] >= log_min) & (entries["size"] != FILLER_SIZE)
            if there.any():
                self.min_offset = start + int(np.argmax(there))
                return
            start = start + len(entries) if len(entries) else self.next_file(start)
        # not the maximum of now: what came meanwhile is there to be read
        self.min_offset = max(self.min_offset, end)

    # Reput: the appender or its thread, one at a time.

    def append(self, queue_offsets: Ints, entries: Entries, log_ends: Ints) -> None:
        """Take entries in log order. Those already here are passed over; a gap is filled with fillers."""
        first = int(queue_offsets[0])
        if first == self.max_offset and int(log_ends[0]) > self.max_log_offset and _follow(queue_offsets, first):
            self._push(entries)
            self.max_log_offset = int(log_ends[-1])
            return
        if int(log_ends[0]) <= self.max_log_offset or int(queue_offsets[0]) < self.max_offset:
            new = (log_ends > self.max_log_offset) & (queue_offsets >= self.max_offset)
            queue_offsets, entries, log_ends = queue_offsets[new], entries[new], log_ends[new]
        while len(queue_offsets):
            dense = int(np.argmin(queue_offsets - queue_offsets[0] == np.arange(len(queue_offsets))))
            dense = dense or len(queue_offsets)
            self._fill_gap(int(queue_offsets[0]))
            self._push(entries[:dense])
            self.max_log_offset = int(log_ends[dense - 1])
            queue_offsets, entries, log_ends = queue_offsets[dense:], entries[dense:], log_ends[dense:]

    def append_one(self, queue_offset: int, entry: tuple[int, int, int]) -> None:
        """As ``append``, of one entry: log offset, size and tags code."""
        start, tail = self._tail
        at, log_end = queue_offset - start, entry[0] + entry[1]
        if queue_offset != self.max_offset or log_end <= self.max_log_offset or at >= len(tail):
            self.append(np.array([queue_offset]), np.array([entry], ENTRY), np.array([log_end]))
            return
        ENTRY_FIELDS.pack_into(tail.data, at * QUEUE_ENTRY_SIZE, *entry)
        self.max_offset, self.max_log_offset = queue_offset + 1, log_end

    # The flush thread.

    def write_out(self) -> int:
        """Bring the files up to ``max_offset``. Answers how many bytes were written. Raises OSError."""
        end = self.max_offset
        start, entries = self._tail
        at = first = self.written
        while at < end:
            file_start = at - at % self._per_file
            upto = min(end, file_start + self._per_file)
            self._write_file(file_start, at - file_start, entries[at - start : upto - start])
            at = upto
        if end > first:
            self.written = end
        return (end - first) * QUEUE_ENTRY_SIZE

    def sync(self) -> None:
        """Put on disk what was written out, and the names of new files and folders. Raises OSError."""
        for file_start in sorted(self._unsynced):
            try:
                descriptor = os.open(self._path(file_start), os.O_RDWR)
            except FileNotFoundError:  # expired since
                self._unsynced.discard(file_start)
                continue
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            self._unsynced.discard(file_start)
        if self._unsynced_names and self.folder.is_dir():
            for directory in (self.folder, *list(self.folder.parents)[:3]):
                sync_directory(directory)
        self._unsynced_names = False
        self.synced = self.written

    def is_due(self, least_pages: int) -> bool:
        """Whether there is so much to sync; 0: anything. A full file is always enough.

        Source: RocketMQ ``DefaultMappedFile.isAbleToFlush``.
        """
        written, synced = self.written * QUEUE_ENTRY_SIZE, self.synced * QUEUE_ENTRY_SIZE
        if least_pages == 0:
            return synced < written or bool(self._unsynced) or self._unsynced_names
        return (
            written // PAGE - synced // PAGE >= least_pages
            or self.written // self._per_file > self.synced // self._per_file
        )

    def first_unsynced(self) -> int | None:
        """Where the record of the first entry that is not on disk begins; None when all are."""
        at = max(self.synced, self.min_offset)
        while at < self.max_offset:
            entries = self.entries(at, CHUNK)
            real = entries["log_offset"][entries["size"] != FILLER_SIZE]
            if len(real):
                return int(real[0])
            at = at + len(entries) if len(entries) else self.next_file(at)
        return None

    def count_before(self, log_offset: int, *, since: int) -> int:
        """The queue offset at which entries of records from ``log_offset`` on begin. It is not before ``since``."""
        at = max(since, self.min_offset)
        while at < self.max_offset:
            entries = self.entries(at, CHUNK)
            later = (entries["log_offset"] >= log_offset) & (entries["size"] != FILLER_SIZE)
            if later.any():
                return at + int(np.argmax(later))
            at = at + len(entries) if len(entries) else self.next_file(at)
        return at

    # Anybody.

    def entries(self, queue_offset: int, count: int) -> Entries:
        """A copy of up to ``count`` entries from ``queue_offset`` on, which is not below ``min_offset``."""
        end = min(queue_offset + count, self.max_offset)
        start, tail = self._tail
        if queue_offset >= start:
            return tail[queue_offset - start : max(end, queue_offset) - start].copy()
        parts: list[Entries] = []
        at = queue_offset
        while at < min(end, start):
            part = self._from_files(at, min(end, start) - at)
            if not len(part):
                return np.concatenate([*parts, part])
            parts.append(part)
            at += len(part)
        if end > start:
            parts.append(tail[: end - start])
        return np.concatenate(parts)

    def next_file(self, queue_offset: int) -> int:
        """The queue offset at which the file after this one begins."""
        return queue_offset - queue_offset % self._per_file + self._per_file

    def _fill_gap(self, queue_offset: int) -> None:
        gap = queue_offset - self.max_offset
        if gap <= 0:
            return
        if self.max_offset == 0 == self.written:
            # the queue begins late: its first file does too, and only that file is filled
            begin = queue_offset - queue_offset % self._per_file
            self._settle(begin)
            self.min_offset = queue_offset
            gap = queue_offset - begin
        if gap > MAX_GAP:
            raise StoreDamaged(
                f"{self.folder}: the log has a record for entry {queue_offset}, but the queue ends at "
                f"{self.max_offset}: look at the log with python -m dejamq_broker.store.dump"
            )
        self._push(np.full(gap, FILLER))

    def _push(self, entries: Entries) -> None:
        start, tail = self._tail
        end = self.max_offset + len(entries)
        if end - start > len(tail):
            start, tail = self._roomier(end)
        tail[self.max_offset - start : end - start] = entries
        self.max_offset = end

    def _roomier(self, end: int) -> tuple[int, Entries]:
        """Move to a new array that keeps all that is not in the files yet, and some that late readers may want."""
        old_start, old = self._tail
        start = max(old_start, min(self.written, self.max_offset - KEPT_IN_MEMORY))
        room = max(FIRST_ROOM, 2 * (end - start))
        tail = np.empty(room, ENTRY)
        kept = self.max_offset - start
        tail[:kept] = old[start - old_start : start - old_start + kept]
        self._tail = (start, tail)
        return self._tail

    def _settle(self, end: int) -> None:
        """Everything before ``end`` is in the files, nothing in memory."""
        self._tail = (end, np.empty(0, ENTRY))
        self.max_offset = self.written = end
        self.min_offset = min(self.min_offset, end)
        self.max_log_offset = 0
        while end > self.min_offset and not self.max_log_offset:
            start = max(self.min_offset, end - CHUNK)
            entries = self.entries(start, end - start)
            real = entries[entries["size"] != FILLER_SIZE]
            if len(real):
                self.max_log_offset = int(real["log_offset"][-1]) + int(real["size"][-1])
            end = start

    def _clear_files(self) -> None:
        size = self._per_file * QUEUE_ENTRY_SIZE
        for start in list_files(self.folder, size):
            first = start // QUEUE_ENTRY_SIZE
            if first >= self.max_offset and first > 0:
                self._path(first).unlink()
                self._unsynced_names = True
            elif first + self._per_file > self.max_offset and not self._clear_from(first):
                os.truncate(self._path(first), (self.max_offset - first) * QUEUE_ENTRY_SIZE)
                os.truncate(self._path(first), size)
                self._unsynced.add(first)

    def _clear_from(self, file_start: int) -> bool:
        """Whether this file is known to have nothing behind the last entry: zeros in its page, and a hole after."""
        at = (self.max_offset - file_start) * QUEUE_ENTRY_SIZE
        descriptor = os.open(self._path(file_start), os.O_RDONLY)
        try:
            page_end = -(-at // PAGE) * PAGE
            return not any(os.pread(descriptor, page_end - at, at)) and not _has_data(descriptor, page_end)
        finally:
            os.close(descriptor)

    def _write_file(self, file_start: int, at: int, entries: Entries) -> None:
        path = self._path(file_start)
        if at == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._unsynced_names = True
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if os.fstat(descriptor).st_size == 0:
                os.ftruncate(descriptor, self._per_file * QUEUE_ENTRY_SIZE)
            data, position = memoryview(entries.tobytes()), at * QUEUE_ENTRY_SIZE
            while data:
                # a disk that is nearly full takes a part first, and says so only the next time
                taken = os.pwrite(descriptor, data, position)
                data, position = data[taken:], position + taken
        finally:
            os.close(descriptor)
        self._unsynced.add(file_start)

    def _from_files(self, queue_offset: int, count: int) -> Entries:
        """Entries of one file; none where there is no file."""
        at = queue_offset % self._per_file
        count = min(count, self._per_file - at)
        try:
            descriptor = os.open(self._path(queue_offset - at), os.O_RDONLY)
        except FileNotFoundError:
            return np.empty(0, ENTRY)
        try:
            data = os.pread(descriptor, count * QUEUE_ENTRY_SIZE, at * QUEUE_ENTRY_SIZE)
        finally:
            os.close(descriptor)
        return np.frombuffer(data, ENTRY)

    def _path(self, file_start: int) -> Path:
        return self.folder / file_name(file_start * QUEUE_ENTRY_SIZE)


def _follow(queue_offsets: Ints, first: int) -> bool:
    """Whether they are first, first + 1, …"""
    return queue_offsets.tobytes() == np.arange(first, first + len(queue_offsets)).tobytes()


def _has_data(descriptor: int, at: int) -> bool:
    """Whether anything but a hole follows."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA) >= 0
    except OSError as error:
        if error.errno == errno.ENXIO:
            return False
        raise
