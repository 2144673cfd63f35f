"""One data file in memory: the only owner of a mapping. Readers get copies, so no view keeps a mapping from closing."""

import mmap
import os
from pathlib import Path

ZERO_STEP = 64 << 10
_ZEROS = bytes(ZERO_STEP)


class MappedFile:
    """A file of fixed size, mapped on first use. ``start`` is the log offset of its first byte.

    Positions are inside the file. One thread writes; any thread reads what the writer has published.
    """

    def __init__(self, path: Path, start: int, size: int) -> None:
        self.path, self.start, self.size = path, start, size
        self._maps: dict[str, tuple[int, mmap.mmap]] = {}

    @classmethod
    def create(cls, path: Path, start: int, size: int) -> "MappedFile":
        """Make the file with all its blocks, so that a full disk is an OSError here and not a SIGBUS on a write."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.ftruncate(file, size)
            os.posix_fallocate(file, 0, size)
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

    def read(self, at: int, size: int) -> bytes:
        """A copy; shorter at the end of the file."""
        return self._opened()[1][at : at + size]

    def write(self, at: int, data: bytes | memoryview) -> None:
        self._opened()[1][at : at + len(data)] = data

    def find(self, pattern: bytes, at: int) -> int:
        """Position of the pattern from ``at`` on, or -1."""
        return self._opened()[1].find(pattern, at)

    def used(self) -> int:
        """Position after the last byte that is not zero."""
        at = self.size
        while at > 0:
            step = min(at, 1 << 20)
            left = self.read(at - step, step).rstrip(b"\0")
            if left:
                return at - step + len(left)
            at -= step
        return 0

    def zero(self, at: int) -> int:
        """Write one step of zeros, which makes the pages warm. Answers where the next step begins.

        Only before the file has any data.
        """
        file, _ = self._opened()
        return at + os.pwrite(file, _ZEROS[: self.size - at], at)

    def sync(self) -> None:
        """Put all written bytes on disk. ``fdatasync`` leaves the other threads running, ``mmap.flush`` would not."""
        file, _ = self._opened()
        os.fdatasync(file)

    def clear_from(self, at: int) -> None:
        """Turn everything from ``at`` into zeros. Only recovery does this, before any reader is there."""
        self.close()
        with self.path.open("r+b") as file:
            file.truncate(at)
            file.truncate(self.size)
            os.posix_fallocate(file.fileno(), 0, self.size)
            os.fdatasync(file.fileno())

    def close(self) -> None:
        if self._maps:
            file, mapping = self._maps.pop("open")
            mapping.close()
            os.close(file)

    def delete(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def _opened(self) -> tuple[int, mmap.mmap]:
        opened = self._maps.get("open")
        if opened is None:
            file = os.open(self.path, os.O_RDWR)
            mine = (file, mmap.mmap(file, self.size))
            # two threads may come here at once; one step of the interpreter decides whose mapping stays
            opened = self._maps.setdefault("open", mine)
            if opened is not mine:
                mine[1].close()
                os.close(file)
        return opened


def sync_directory(directory: Path) -> None:
    """Make a created, renamed or deleted name durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
