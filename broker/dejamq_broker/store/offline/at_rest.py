"""A store directory as it lies there, opened by nobody: its files, and their readers for dump and verify.

Everything is a look: no lock is taken, no byte changed, and files that are missing, short or foreign are values.
File sizes are written down nowhere, so they are concluded from names and lengths.
"""

import fcntl
import math
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from dejamq_broker.store.files.config import QUEUE_ENTRY_SIZE
from dejamq_broker.store.files.errors import StoreError
from dejamq_broker.store.files.paths import StorePaths, file_name, file_start
from dejamq_broker.store.log.scan import LogFiles
from dejamq_broker.store.queues.entry_files import ENTRY, Entries

_FLOCK = struct.Struct("hhqqi0q")


class NoStore(StoreError):
    """The directory has no store."""


class Trouble(msgspec.Struct, frozen=True):
    """A file that is not as it must be; ``start`` and ``end`` bound the offsets that it spoils."""

    start: int
    end: int
    reason: str


class DataFiles:
    """The data files of one folder: equally long by rule, as they are in fact."""

    def __init__(self, folder: Path, size: int = 0) -> None:
        """``size`` is the size of each file; 0: conclude it."""
        self.folder = folder
        self.lengths: dict[int, int] = {}
        """File length by the offset of the file's first byte, in order."""
        self.foreign: list[str] = []
        # from the newest on: files expire from the oldest on, so one that goes meanwhile leaves no gap behind
        for path in sorted(folder.iterdir(), reverse=True) if folder.is_dir() else []:
            start = file_start(path.name)
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            if start is None or not stat.S_ISREG(found.st_mode):
                self.foreign.insert(0, path.name)
            else:
                self.lengths[start] = found.st_size
        self.lengths = dict(sorted(self.lengths.items()))
        self.size = size or self._concluded()

    def _concluded(self) -> int:
        """The longest file's length, if most names agree with it; else what all names are multiples of."""
        longest = max(self.lengths.values(), default=0)
        if longest and 2 * sum(start % longest == 0 for start in self.lengths) > len(self.lengths):
            return longest
        return math.gcd(*self.lengths) or longest or 1

    def extents(self) -> Iterator[LogFiles]:
        """The runs of files that follow one another without a gap."""
        first = end = None
        for start in self.lengths:
            if start != end:
                if first is not None and end is not None:
                    yield LogFiles(first, end, self.size)
                first = start
            end = start + self.size
        if first is not None and end is not None:
            yield LogFiles(first, end, self.size)

    def troubles(self) -> Iterator[Trouble]:
        """Files that are missing between others, or of a wrong length. A last file of length 0 is an unborn one."""
        expected, last = None, max(self.lengths, default=0)
        for start, length in self.lengths.items():
            if expected is not None and start != expected:
                yield Trouble(expected, start, f"{file_name(expected)} is missing between two others")
            if length != self.size and (length or start != last):
                yield Trouble(
                    start + min(length, self.size),
                    start + self.size,
                    f"{file_name(start)} has {length} bytes instead of {self.size}",
                )
            expected = start + self.size

    def is_gone(self, offset: int) -> bool:
        """Whether the file that held this offset has been deleted since: where a broker runs, files expire."""
        start = offset - offset % self.size
        return start in self.lengths and not (self.folder / file_name(start)).exists()

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of one file. Missing bytes read as zeros, as a prepared file does."""
        start = offset - offset % self.size
        try:
            descriptor = os.open(self.folder / file_name(start), os.O_RDONLY)
        except FileNotFoundError:
            return bytes(size)
        try:
            return os.pread(descriptor, size, offset - start).ljust(size, b"\0")
        finally:
            os.close(descriptor)


class QueueFiles:
    """The entries of one consume queue."""

    def __init__(self, topic: str, queue_id: int, files: DataFiles) -> None:
        self.topic, self.queue_id, self.files = topic, queue_id, files
        self.first = min(files.lengths, default=0) // QUEUE_ENTRY_SIZE
        """Queue offset of the first entry of the first file."""
        self.room = (max(files.lengths, default=-files.size) + files.size) // QUEUE_ENTRY_SIZE

    def read(self, queue_offset: int, count: int) -> Entries:
        """``count`` entries, empty ones (size 0) where the file has no entries."""
        parts = []
        at, end = queue_offset, queue_offset + count
        per_file = max(1, self.files.size // QUEUE_ENTRY_SIZE)
        while at < end:
            upto = min(end, at - at % per_file + per_file)
            data = self.files.read(at * QUEUE_ENTRY_SIZE, (upto - at) * QUEUE_ENTRY_SIZE)
            parts.append(np.frombuffer(data, ENTRY))
            at = upto
        return np.concatenate(parts) if parts else np.empty(0, ENTRY)


def commit_log(paths: StorePaths) -> DataFiles:
    """The log's files. Raises NoStore for a directory without a ``commitlog``."""
    if not paths.commit_log.is_dir():
        raise NoStore(f"{paths.commit_log} is not there: name the directory that holds commitlog/")
    return DataFiles(paths.commit_log)


def queue_files(paths: StorePaths) -> Iterator[QueueFiles]:
    """All consume queues, in order of topic and queue id."""
    found = paths.queue_folders()
    size = max((DataFiles(folder).size for _, _, folder in found), default=0)
    for topic_name, queue_id, folder in found:
        yield QueueFiles(topic_name, queue_id, DataFiles(folder, size))


def owner_lives(paths: StorePaths) -> bool:
    """Whether a running process, ours or a RocketMQ, has the store open."""
    try:
        descriptor = os.open(paths.lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0)
        answer = fcntl.fcntl(descriptor, getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK), asked)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
