"""One data file in memory: the only owner of a mapping. Readers get copies, and the log's walkers views for a while."""

import mmap
import os
from pathlib import Path

from dejamq_proto.signals import Signal

from dejamq_broker.store.files.directories import sync_directory

ZERO_STEP = 64 << 10
_ZEROS = bytes(ZERO_STEP)
_ZERO_MIB = bytes(1 << 20)
"""Comparing with it is many times faster than looking for bytes that are not zero."""


class _Opened:
    """A descriptor and the mapping made from it: two descriptors in all, for Python's mapping keeps one of its own.

    Nobody closes them by hand. They go with the last reference. A thread that reads, syncs or zeroes the file finishes
    on the open one, even while another thread closes or deletes it. So no mapping is closed under a reader, and no
    descriptor's number is given to another file under a sync.
    """

    descriptor = -1

    def __init__(self, path: Path, size: int) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.mapping = mmap.mmap(self.descriptor, size)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class MappedFile:
    """A file of fixed size, mapped on first use. ``start`` is the log offset of its first byte.

    Positions are inside the file. One thread writes; any thread reads what the writer has published, and any thread
    may close or delete the file meanwhile.
    """

    def __init__(self, path: Path, start: int, size: int) -> None:
        self.path, self.start, self.size = path, start, size
        self.last_use = 0
        """When it was read last, as its owner counts."""
        self.on_open = Signal[[MappedFile]]()
        """Told after the file was mapped: its owner bounds how many are."""
        self._open: _Opened | None = None
        self._deleted = False

    @classmethod
    def create(cls, path: Path, start: int, size: int) -> "MappedFile":
        """Make the file with all its blocks, so that a full disk is an OSError here and not a SIGBUS on a write."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(file, size)
            os.posix_fallocate(file, 0, size)
            # the length before the name: of two files that were never flushed a power loss must not empty the first
            os.fsync(file)
            sync_directory(path.parent)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(file)
        return cls(path, start, size)

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def is_open(self) -> bool:
        """Whether it is mapped now."""
        return self._open is not None

    def read(self, at: int, size: int) -> bytes:
        """A copy; shorter at the end of the file, b"" once the file is deleted."""
        try:
            return self._opened().mapping[at : at + size]
        except FileNotFoundError:
            return b""

    def view(self, at: int, size: int) -> memoryview:
        """As ``read``, without a copy, of bytes that are not written any more.

        Its holder keeps the mapping alive, deleted or not; no file is ever shortened under it.
        """
        try:
            return memoryview(self._opened().mapping)[at : at + size].toreadonly()
        except FileNotFoundError:
            return memoryview(b"")

    def peek(self, at: int, size: int) -> bytes:
        """As ``read``, without a mapping, for bytes that nobody vouches for. Raises OSError.

        Without space for them on the disk, a mapping would kill the process. Some file systems look for space as soon
        as a hole is read, and a broken sector has no bytes either.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = [os.pread(descriptor, size, at)]
            while parts[-1] and (got := sum(map(len, parts))) < size:
                parts.append(os.pread(descriptor, size - got, at + got))
        finally:
            os.close(descriptor)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, at: int, data: bytes | bytearray | memoryview) -> None:
        """Put bytes where any reader of the mapping finds them: by a call, which makes only what it writes dirty.

        Through the mapping the kernel finds and fills page after page. That takes 0.5 to 0.9 µs for each KiB of a large
        run, against 0.2 µs by the call. A file system with large pages also counts each of them as wholly changed. A
        sync flush of 80 KiB wrote 2 MiB so, and took twice as long. The mapping takes the bytes that the call does not
        take, within the file's size.
        """
        opened = self._opened()
        if not _written(opened.descriptor, at, data):
            opened.mapping[at : at + len(data)] = data

    def used(self) -> int:
        """Position after the last byte that is not zero."""
        at = self.size
        while at > 0:
            step = min(at, len(_ZERO_MIB))
            data = self.peek(at - step, step)
            if not _ZERO_MIB.startswith(data):
                return at - step + len(data.rstrip(b"\0"))
            at -= step
        return 0

    def expect(self, at: int, size: int) -> None:
        """Have pages made for bytes that will be written, with the file's present bytes. Raises OSError.

        By a call that holds neither the interpreter nor the mapping, and makes nothing dirty. A file system may have no
        use for it.
        """
        opened = self._opened()  # kept: another thread may close the file, and its last holder the descriptor
        os.posix_fadvise(opened.descriptor, at, size, os.POSIX_FADV_WILLNEED)

    def sync(self) -> None:
        """Put all written bytes on disk; of a deleted file nothing. Raises OSError.

        ``fdatasync`` leaves the other threads running, ``mmap.flush`` would not. It writes what any mapping of the
        file has changed, so a file that is not mapped any more need not be mapped for it.
        """
        opened = self._open
        if opened is not None:
            os.fdatasync(opened.descriptor)
            return
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if self._deleted:
                return
            raise
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def reserve(self) -> None:
        """Have all its blocks: a file that a RocketMQ made, or a copy, may have holes. Raises OSError.

        A write to a hole of a mapped file would kill the process when the disk is full.
        """
        opened = self._opened()  # kept, as in ``expect``
        os.posix_fallocate(opened.descriptor, 0, self.size)

    def modified_ms(self) -> int:
        """When it was last written, by the disk's clock. Raises FileNotFoundError."""
        return self.path.stat().st_mtime_ns // 1_000_000

    def clear(self, at: int, end: int) -> None:
        """Turn a range into zeros, durably. Only recovery does this, before any reader is there. Raises OSError.

        The length stays as it is all the time: a crash leaves no file that is too short to be ours.
        """
        opened = self._opened()
        for position in range(at, end, ZERO_STEP):
            os.pwrite(opened.descriptor, _ZEROS[: end - position], position)
        os.fdatasync(opened.descriptor)

    def close(self) -> None:
        """Let go of the mapping; the next use makes another one."""
        self._open = None

    def delete(self) -> None:
        """Remove the file. Its blocks are free when the last reader has let go of it. Raises OSError: it stays then."""
        self._deleted = True
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            self._deleted = False
            raise
        self._open = None

    def _opened(self) -> _Opened:
        opened = self._open
        if opened is None:
            # two threads may come here at once: the later one's stays, the earlier one's goes with its use
            opened = self._open = _Opened(self.path, self.size)
            if self._deleted:
                self._open = None
            else:
                self.on_open.tell(self)
        return opened


def _written(descriptor: int, at: int, data: bytes | bytearray | memoryview) -> bool:
    """False when not all of it was; the mapping has its space and takes it then."""
    try:
        return os.pwrite(descriptor, data, at) == len(data)
    except OSError:
        return False
