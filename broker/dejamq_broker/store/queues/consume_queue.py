"""One consume queue: 20 bytes a message, saying where it is in the log. Source: RocketMQ ``ConsumeQueue``.

Derived from the log, so losing the end of it costs only time. Three parties, no lock: reput appends to an
array in memory, the flush thread writes that array to files, and anybody reads. ``max_offset`` is published last.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from dejamq_broker.store.files.config import QUEUE_ENTRY_SIZE
from dejamq_broker.store.files.errors import StoreDamaged
from dejamq_broker.store.log.batch import Ints, Single
from dejamq_broker.store.queues.entry_files import ENTRY, FILLER, FILLER_SIZE, PAGE, Entries, EntryFiles, count_good
from dejamq_broker.store.queues.entry_tail import FEW, EntryTail, rows_of

CHUNK = 4096
MAX_GAP = 10_000_000
RECOVERED_FILES = 3


class ConsumeQueue:
    """Entries by queue offset, from ``min_offset`` up to but not including ``max_offset``."""

    __slots__ = (
        "_files", "_kept_in_memory", "_tail", "max_log_offset", "max_offset", "min_offset", "synced", "written",
    )  # fmt: skip

    def __init__(self, folder: Path, file_size: int, kept_in_memory: Callable[[], int]) -> None:
        """``kept_in_memory``: how many entries that are in the files stay in memory too, for readers a little late."""
        self._kept_in_memory = kept_in_memory
        self.min_offset = 0
        self.max_offset = 0
        self.max_log_offset = 0
        """Where the record of the newest entry ends."""
        self.written = 0
        """Entries before this queue offset are in the files. Only the flush thread moves it."""
        self.synced = 0
        """Entries before this queue offset are on disk. Only the flush thread moves it."""
        self._files = EntryFiles(folder, file_size)
        self._tail = EntryTail(0)

    @property
    def folder(self) -> Path:
        """Of its files."""
        return self._files.folder

    # Recovery, before any thread runs.

    def load(self, synced: int | None, *, thorough: bool = True) -> str:
        """Find the entries in the files, all up to the first that is not one. Answers what is wrong with the files.

        The files from the third-last on are looked at, or, unless ``thorough``, the last few entries. Entries from the
        queue offset ``synced`` on are not believed. A power loss may have taken them in any order, or brought back
        entries of an earlier life, and the log has them. None: the synced part is not known, and all are believed.
        """
        starts, wrong = self._files.check(synced)
        if not starts:
            return wrong
        self.min_offset = starts[0]
        room = starts[-1] + self._files.per_file
        last = room if synced is None else max(starts[0], min(synced, room))
        end = min(last, starts[max(0, len(starts) - RECOVERED_FILES)])
        if not thorough:
            end = max(end, last - CHUNK)
        log_end = 0
        while end < last:
            entries = self._files.read(end, last - end)
            count, log_end = count_good(entries, log_end)
            end += count
            if count < len(entries) or not count:
                break
        self._settle(end)
        self.synced = min(end, synced or 0)
        if synced is None:
            self._files.mark_unsynced()
        return ""

    def truncate(self, log_end: int) -> None:
        """Drop entries of records that begin at ``log_end`` or after it, and the entries behind. Raises OSError."""
        end = self.max_offset
        while end > self.min_offset:
            start = max(self.min_offset, end - CHUNK)
            kept = np.flatnonzero(self.entries(start, end - start)["log_offset"] < log_end)
            if len(kept):
                end = start + int(kept[-1]) + 1
                break
            end = start
        self._settle(end)
        self.synced = min(end, self.synced)
        self._files.clear_from(end)

    def discard(self) -> None:
        """Begin again with nothing. Raises OSError."""
        self._files.discard()
        self.min_offset = self.synced = 0
        self._settle(0)

    def remove(self) -> None:
        """Delete the files and, where it is empty then, the folder: the topic was deleted. Raises OSError."""
        self._files.discard()
        self._files.remove_folder()

    def reach(self, queue_offset: int) -> None:
        """Queue offsets before this one were given out, though no record is left of the last ones: never again."""
        if self.max_offset == 0 or queue_offset - self.max_offset <= MAX_GAP:
            self._fill_gap(queue_offset)

    def begins_before(self, log_min: int) -> bool:
        """Whether the record of the first entry has expired or begins the log: those before it have expired then."""
        return bool((self.entries(self.min_offset, 1)["log_offset"] <= log_min).all())

    def correct_min(self, log_min: int) -> None:
        """The first entry whose record is still there becomes the minimum; without one the maximum does."""
        start, end = self.min_offset, self.max_offset
        # not the maximum of now: later messages are there to be read
        self.min_offset = max(start, min(end, self._first_from(start, log_min)[0]))

    # Reput: the appender or its thread, one at a time.

    def continues(self, queue_offsets: Ints, log_ends: Ints) -> bool:
        """Whether what is new of these entries follows the last one here without a gap."""
        return _follow(queue_offsets[log_ends > self.max_log_offset], self.max_offset)

    def append(self, queue_offsets: Ints, entries: Entries, log_ends: Ints) -> None:
        """Take entries in log order. Those already here are passed over; a gap is filled with fillers."""
        first = int(queue_offsets[0])
        ends_at = int(log_ends[0]), int(log_ends[-1])
        if _follow(queue_offsets, first) and self.extend(first, rows_of(entries), ends_at):
            return
        reached = np.maximum.accumulate(np.concatenate(([self.max_offset - 1], queue_offsets[:-1])))
        new = (log_ends > self.max_log_offset) & (queue_offsets > reached)
        queue_offsets, entries, log_ends = queue_offsets[new], entries[new], log_ends[new]
        while len(queue_offsets):
            dense = int(np.argmin(queue_offsets - queue_offsets[0] == np.arange(len(queue_offsets))))
            dense = dense or len(queue_offsets)
            self._fill_gap(int(queue_offsets[0]))
            self._push(rows_of(entries[:dense]))
            self.max_log_offset = int(log_ends[dense - 1])
            queue_offsets, entries, log_ends = queue_offsets[dense:], entries[dense:], log_ends[dense:]

    def extend(self, queue_offset: int, rows: memoryview, log_ends: tuple[int, int]) -> bool:
        """As ``append``, of entries as bytes whose queue offsets follow one another from this one on, where they follow
        what is here. ``log_ends``: where the records of the first and of the last one end. False: they do not.
        """
        if queue_offset != self.max_offset or log_ends[0] <= self.max_log_offset:
            return False
        self._push(rows)
        self.max_log_offset = log_ends[1]
        return True

    def append_one(self, record: Single) -> None:
        """As ``append``, of one record."""
        queue_offset, log_end = record.queue_offset, record.end_log_offset
        follows = queue_offset == self.max_offset and log_end > self.max_log_offset
        if follows and self._tail.put_one(record):
            self.max_offset, self.max_log_offset = queue_offset + 1, log_end
            return
        entry = (record.log_offset, record.size, record.tags_code)
        self.append(np.array([queue_offset]), np.array([entry], ENTRY), np.array([log_end]))

    # The flush thread.

    def write_out(self) -> int:
        """Bring the files up to ``max_offset``. Answers how many bytes were written. Raises OSError."""
        end = self.max_offset
        tail = self._tail
        at = first = self.written
        while at < end:
            upto = min(end, self.next_file(at))
            self._files.write(at, tail.between(at, upto))
            at = upto
        if end > first:
            self.written = end
        return (end - first) * QUEUE_ENTRY_SIZE

    def sync(self) -> list[Path]:
        """Put on disk what was written out. Gives the folders to sync before ``count_synced``. Raises OSError."""
        return self._files.sync()

    def count_synced(self) -> None:
        """The entries that were written out are on disk, with the names of their files."""
        self.synced = self.written

    def is_due(self, least_pages: int) -> bool:
        """Whether at least this much is to be synced; 0: anything. A full file is always enough. So is a new one,
        because its folders are synced with it. Else all folders of many queues would be left to the bulk send that
        fills them.

        Source: RocketMQ ``DefaultMappedFile.isAbleToFlush``.
        """
        written, synced = self.written * QUEUE_ENTRY_SIZE, self.synced * QUEUE_ENTRY_SIZE
        if least_pages == 0:
            return synced < written or self._files.unsynced
        return (
            self._files.unsynced_names
            or written // PAGE - synced // PAGE >= least_pages
            or self.written // self._files.per_file > self.synced // self._files.per_file
        )

    def first_unsynced(self) -> int | None:
        """Where the record of the first entry that is not on disk begins; None when all are."""
        return self._first_from(max(self.synced, self.min_offset), 0)[1]

    def count_before(self, log_offset: int, *, since: int) -> int:
        """The queue offset at which entries of records from ``log_offset`` on begin. It is not before ``since``."""
        at, end = max(since, self.min_offset), self.max_offset
        last = self.entries(end - 1, 1) if at < end else np.empty(0, ENTRY)
        if len(last) and last[0]["log_offset"] < log_offset and last[0]["size"] != FILLER_SIZE:
            return end
        return self._first_from(at, log_offset)[0]

    def _first_from(self, at: int, log_offset: int) -> tuple[int, int | None]:
        """The first entry from ``at`` on of a record that begins at ``log_offset`` or after it, and where that begins;
        else where all end, and None.
        """
        while at < self.max_offset:
            entries = self.entries(at, CHUNK)
            later = (entries["log_offset"] >= log_offset) & (entries["size"] != FILLER_SIZE)
            if later.any():
                first = int(np.argmax(later))
                return at + first, int(entries["log_offset"][first])
            at = at + len(entries) if len(entries) else self.next_file(at)
        return at, None

    # Anybody.

    def entries(self, queue_offset: int, count: int) -> Entries:
        """A copy of up to ``count`` entries from ``queue_offset`` on, which is not below ``min_offset``."""
        end = min(queue_offset + count, self.max_offset)
        tail = self._tail
        start = tail.start
        if queue_offset >= start:
            return tail.between(queue_offset, max(end, queue_offset)).copy()
        parts: list[Entries] = []
        at = queue_offset
        while at < min(end, start):
            part = self._files.read(at, min(end, start) - at)
            if not len(part):
                return np.concatenate([*parts, part])
            parts.append(part)
            at += len(part)
        if end > start:
            parts.append(tail.between(start, end))
        return np.concatenate(parts)

    def few(self, queue_offset: int, most: int) -> list[tuple[int, int, int]]:
        """Up to ``most`` entries from there on, as ``EntryTail.few``; none where they are many, or in files."""
        end = min(self.max_offset, queue_offset + most)
        tail = self._tail
        return tail.few(queue_offset, end) if queue_offset >= tail.start and end - queue_offset <= FEW else []

    def next_file(self, queue_offset: int) -> int:
        """The queue offset at which the file after this one begins."""
        per_file = self._files.per_file
        return queue_offset - queue_offset % per_file + per_file

    def _fill_gap(self, queue_offset: int) -> None:
        gap = queue_offset - self.max_offset
        if gap <= 0:
            return
        if self.max_offset == 0 == self.written:
            self._begin_late(queue_offset)
            return
        if gap > MAX_GAP:
            raise StoreDamaged(
                f"{self.folder}: the log has a record for entry {queue_offset}, but the queue ends at "
                f"{self.max_offset}: look at the log with python -m dejamq_broker.store.dump"
            )
        self._push(rows_of(np.full(gap, FILLER)))

    def _begin_late(self, queue_offset: int) -> None:
        """The first file begins late too, and only that file is filled, at once: a thousand queues may begin late."""
        begin = queue_offset - queue_offset % self._files.per_file
        if begin < queue_offset:
            self._files.write(begin, np.full(queue_offset - begin, FILLER))
        self.min_offset = queue_offset
        self._settle(queue_offset)

    def _push(self, rows: memoryview) -> None:
        end = self.max_offset + len(rows) // QUEUE_ENTRY_SIZE
        if end > self._tail.room_end:
            # all that is not in the files yet is kept, and some that late readers may want
            start = max(self._tail.start, min(self.written, self.max_offset - self._kept_in_memory()))
            self._tail = self._tail.larger(start, self.max_offset, end)
        self._tail.put(self.max_offset, rows)
        self.max_offset = end

    def _settle(self, end: int) -> None:
        """Everything before ``end`` is in the files, nothing in memory."""
        self._tail = EntryTail(end)
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


def _follow(queue_offsets: Ints, first: int) -> bool:
    """Whether they are first, first + 1, …"""
    return queue_offsets.tobytes() == np.arange(first, first + len(queue_offsets)).tobytes()
