"""One index file: where to find messages by key. Source: RocketMQ ``IndexFile``, ``IndexHeader``.

====== ===== ===========================================================================================
offset size  header, slots, entries; all integers are big-endian and signed
====== ===== ===========================================================================================
0      8     store time (ms) of the first entry's record
8      8     store time (ms) of the last entry's record
16     8     log offset of the first entry's record
24     8     log offset of the last entry's record
32     4     slots in use
36     4     number that the next entry gets; entry 0 is never used
40     4 s   slots: the number of the newest entry whose hash modulo ``s`` is the slot's, 0 without one
40+4s  20 e  entries: hash 4, log offset 8, whole seconds since the header's first time 4, number of the
             entry before it in its slot 4
====== ===== ===========================================================================================

The file is a hole until it is written, like RocketMQ's. It is written with ``pwrite``, not mapped: a full disk is an
OSError then, where touching a hole of a mapping would kill the process. No descriptor is held between calls.

Any key may touch any page of the slots, so they stay in memory until ``write_out`` puts them and the header in place.
On disk slots and header are of one moment; entries behind the header's number do not exist for a reader. A crash can
spoil only a file in the middle of ``write_out``.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from dejamq_broker.store.files.directories import sync_directory
from dejamq_broker.store.index.keys import Keys
from dejamq_broker.store.log.batch import Ints

HEADER = struct.Struct(">4q2i")
HEADER_SIZE = HEADER.size
SLOT_SIZE = 4
INDEX_ENTRY = np.dtype([("hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_ENTRY = struct.Struct(">iqii")
assert INDEX_ENTRY.itemsize == _ENTRY.size == 20
PAGE_SLOTS = 1024
MAX_SECONDS = 0x7FFFFFFF


class IndexShape(msgspec.Struct, frozen=True):
    """How many slots and entries each file has; entry 0, which is never used, is counted."""

    slots: int
    entries: int

    @property
    def entries_at(self) -> int:
        return HEADER_SIZE + self.slots * SLOT_SIZE

    @property
    def file_size(self) -> int:
        return self.entries_at + self.entries * _ENTRY.size


class Header(msgspec.Struct, frozen=True, gc=False):
    """The header of a file; the first four fields are of its first and its last entry's record."""

    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_log_offset: int = 0
    end_log_offset: int = 0
    slots_used: int = 0
    next_entry: int = 1

    def is_sane(self, shape: IndexShape) -> bool:
        # a RocketMQ's clock may have gone back, so the times need no order; below 0 they would hide later entries
        timed = self.begin_timestamp_ms >= 0 and self.end_timestamp_ms >= 0
        ordered = 0 <= self.begin_log_offset <= self.end_log_offset and 0 <= self.slots_used <= shape.slots
        return timed and ordered and 1 <= self.next_entry <= shape.entries


class Bounds(msgspec.Struct, frozen=True):
    """Store times (ms), both included."""

    begin_ms: int
    end_ms: int


class IndexFile:
    """Entries by number. One thread at a time writes; any thread reads what ``head`` gave it."""

    def __init__(self, path: Path, shape: IndexShape, header: Header | None = None) -> None:
        self.path, self.shape = path, shape
        self.header = header or Header()
        self._slots: Ints | None = None
        self.settled = True
        """Whether the file on disk has all that ``header`` says."""

    @classmethod
    def create(cls, path: Path, shape: IndexShape, previous: Header | None) -> "IndexFile":
        """A new, empty file. Its first times and offsets are the last ones of the file before it, as in RocketMQ:
        the seconds of its first entry count from there. They are written at once, because a RocketMQ that starts
        after a kill takes the last file's offset for how far the whole index has come. Raises OSError.
        """
        before = previous or Header()
        time_ms, log_offset = before.end_timestamp_ms, before.end_log_offset
        header = Header(time_ms, time_ms, log_offset, log_offset)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.ftruncate(descriptor, shape.file_size)
            os.pwrite(descriptor, HEADER.pack(*msgspec.structs.astuple(header)), 0)
            sync_directory(path.parent)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        file = cls(path, shape, header)
        file._slots = np.zeros(shape.slots, np.int32)
        file.settled = False
        return file

    @classmethod
    def load(cls, path: Path, shape: IndexShape) -> "IndexFile | None":
        """The file as it is on disk; None when no index file can have its length or its header."""
        if path.stat().st_size != shape.file_size:
            return None
        with path.open("rb") as file:
            header = Header(*HEADER.unpack(file.read(HEADER_SIZE)))
        # a file that was made and never written: RocketMQ reads it as empty too
        header = header if header.next_entry else msgspec.structs.replace(header, next_entry=1)
        return cls(path, shape, header) if header.is_sane(shape) else None

    @property
    def room(self) -> int:
        return self.shape.entries - self.header.next_entry

    def put(self, keys: Keys) -> int:
        """Take as many keys as there is space for, in order; answers how many.

        Raises OSError; nothing is taken then.
        """
        keys = keys[: self.room]
        if not len(keys):
            return 0
        slots, first = self._loaded_slots(), self.header.next_entry
        slot = keys.hashes % self.shape.slots
        order = np.argsort(slot, kind="stable")
        ordered, numbers = slot[order], first + order
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        before = np.empty(len(keys), np.int64)
        before[1:] = numbers[:-1]
        before[starts] = slots[ordered[starts]]
        entries = np.empty(len(keys), INDEX_ENTRY)
        entries["hash"], entries["log_offset"] = keys.hashes, keys.log_offsets
        entries["seconds"] = self._seconds(keys.store_timestamps_ms)
        entries["previous"][order] = before
        self._write(self.shape.entries_at + first * _ENTRY.size, entries.tobytes())
        self.settled = False
        newest = np.append(starts[1:], len(keys)) - 1
        slots[ordered[newest]] = numbers[newest]
        self._advance(keys, newly_used=int(np.count_nonzero(before[starts] == 0)))
        return len(keys)

    def write_out(self) -> None:
        """Put slots and header in place and everything on disk, the header last. Raises OSError.

        The caller has taken care that nobody trusts the file if this ends half way. A header that says the file is full
        may be believed even then.
        """
        slots = self._loaded_slots()
        for start, end in _used_runs(slots):
            self._write(HEADER_SIZE + start * SLOT_SIZE, slots[start:end].astype(">i4").tobytes())
        self._sync()
        self._write(0, HEADER.pack(*msgspec.structs.astuple(self.header)))
        self._sync()
        self.settled = True
        if not self.room:
            self._slots = None

    def head(self, hash_value: int) -> "SlotChain":
        """Where to begin looking for a hash. Not while another thread writes; its answer stays valid then."""
        slot = hash_value % self.shape.slots
        if self._slots is not None:
            return SlotChain(self.path, self.shape, self.header, int(self._slots[slot]))
        try:
            number = struct.unpack(">i", self.read(HEADER_SIZE + slot * SLOT_SIZE, SLOT_SIZE))[0]
        except FileNotFoundError:
            number = 0
        return SlotChain(self.path, self.shape, self.header, number)

    def entries(self, first: int, end: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """A copy of the entries with these numbers."""
        data = self.read(self.shape.entries_at + first * _ENTRY.size, (end - first) * _ENTRY.size)
        return np.frombuffer(data, INDEX_ENTRY)

    def slots(self) -> Ints:
        """A copy of all slots, as they are on disk."""
        return np.frombuffer(self.read(HEADER_SIZE, self.shape.slots * SLOT_SIZE), ">i4").astype(np.int32)

    def read(self, at: int, size: int) -> bytes:
        with self.path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), size, at)

    def _loaded_slots(self) -> Ints:
        if self._slots is None:
            slots = self.slots()
            # no crash leaves such numbers, but RocketMQ passes over them too
            slots[(slots < 0) | (slots >= self.header.next_entry)] = 0
            self._slots = slots
        return self._slots

    def _seconds(self, times_ms: Ints) -> Ints:
        """Whole seconds since the first record.

        The very first entry's seconds count from the end of the file before it.
        """
        header = self.header
        since = np.full(len(times_ms), header.begin_timestamp_ms if header.next_entry > 1 else int(times_ms[0]))
        since[0] = header.begin_timestamp_ms
        return np.where(since > 0, np.clip((times_ms - since) // 1000, 0, MAX_SECONDS), 0)

    def _advance(self, keys: Keys, *, newly_used: int) -> None:
        header = self.header
        if header.next_entry <= 1:
            header = msgspec.structs.replace(
                header, begin_timestamp_ms=int(keys.store_timestamps_ms[0]), begin_log_offset=int(keys.log_offsets[0])
            )
        self.header = msgspec.structs.replace(
            header, end_timestamp_ms=int(keys.store_timestamps_ms[-1]), end_log_offset=int(keys.log_offsets[-1]),
            slots_used=header.slots_used + newly_used, next_entry=header.next_entry + len(keys),
        )  # fmt: skip

    def _write(self, at: int, data: bytes) -> None:
        with self.path.open("r+b", buffering=0) as file:
            view = memoryview(data)
            while view:
                # a disk that is nearly full takes a part first, and says so only the next time
                taken = os.pwrite(file.fileno(), view, at)
                view, at = view[taken:], at + taken

    def _sync(self) -> None:
        with self.path.open("r+b", buffering=0) as file:
            os.fdatasync(file.fileno())


class SlotChain(msgspec.Struct, frozen=True):
    """The entries of one slot as they were at one moment, newest first. Later writes do not change it."""

    path: Path
    shape: IndexShape
    header: Header
    number: int

    def matches(self, hash_value: int, bounds: Bounds) -> Iterator[int]:
        """Log offsets of records with this hash, newest first.

        Times are kept in whole seconds, so records up to a second outside of the bounds may be among them. No record
        inside is missing. (RocketMQ leaves out those stored in the second before ``begin_ms`` ends.)
        """
        number, header = self.number, self.header
        if not 0 < number < header.next_entry:
            return
        try:
            file = self.path.open("rb", buffering=0)
        except FileNotFoundError:
            return  # expired meanwhile
        with file:
            while number > 0:
                raw = os.pread(file.fileno(), _ENTRY.size, self.shape.entries_at + number * _ENTRY.size)
                found, log_offset, seconds, previous = _ENTRY.unpack(raw)
                # the first entry's seconds count from the end of the file before
                time_ms = header.begin_timestamp_ms + (seconds * 1000 if number > 1 else 0)
                if seconds < 0 or time_ms + 999 < bounds.begin_ms:
                    return
                if found == hash_value and time_ms <= bounds.end_ms:
                    yield log_offset
                # entries point back: one that does not would make a circle
                number = previous if previous < number else 0


def _used_runs(slots: Ints) -> list[tuple[int, int]]:
    """Stretches of slots, in whole pages, that hold all that are not 0: the rest of the file stays a hole."""
    whole = len(slots) - len(slots) % PAGE_SLOTS
    used = slots[:whole].reshape(-1, PAGE_SLOTS).any(axis=1)
    pages = np.flatnonzero(np.append(used, slots[whole:].any()))
    if not len(pages):
        return []
    breaks = np.flatnonzero(np.diff(pages) > 1)
    starts = pages[np.concatenate(([0], breaks + 1))] * PAGE_SLOTS
    ends = (pages[np.concatenate((breaks, [len(pages) - 1]))] + 1) * PAGE_SLOTS
    return list(zip(starts.tolist(), np.minimum(ends, len(slots)).tolist(), strict=True))
