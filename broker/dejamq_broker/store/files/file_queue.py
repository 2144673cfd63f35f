"""A folder of equally long files that form one long run of bytes. Source: RocketMQ ``MappedFileQueue``."""

import threading
from itertools import pairwise
from pathlib import Path

from dejamq_broker.store.files.directories import make_directory, sync_directory
from dejamq_broker.store.files.errors import StoreDamaged
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.files.paths import file_name, file_start

KEPT_OPEN = 16


def list_files(folder: Path, size: int) -> list[int]:
    """The starts of the files in a folder, in order, all checked. Touches nothing.

    A last file of length 0 is left out: a crash came between making it and giving it its length.
    Raises StoreDamaged for a name or a length that is not ours, and for a file missing between two others.
    """
    starts = []
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in paths:
        start = file_start(path.name)
        if start is None or start % size or not path.is_file():
            raise StoreDamaged(
                f"{path} is not a file of this store (names are 20 digits, multiples of {size}): "
                "move it away, or correct the configured file size"
            )
        length = path.stat().st_size
        if length == 0 and path is paths[-1]:
            continue
        if length != size:
            raise StoreDamaged(
                f"{path} has {length} bytes instead of {size}: a store that was made with files of that size is opened "
                f"with {_setting(folder)}={length}; a file that was cut must be brought back whole"
            )
        starts.append(start)
    for earlier, later in pairwise(starts):
        if later != earlier + size:
            raise StoreDamaged(f"{folder / file_name(earlier + size)} is missing between two others: bring it back")
    return starts


def _setting(folder: Path) -> str:
    """The setting for the size of the files in a folder of a store."""
    of = {"commitlog": "mapped_file_size_commit_log", "timerlog": "mapped_file_size_timer_log"}
    return of.get(folder.name, "mapped_file_size_consume_queue")


class FileQueue:
    """Mapped files by offset. Readers take ``files``, a tuple that is replaced under a lock, and never lock.

    The appender adds at its end, retention takes away at its start. At most ``kept_open`` files stay mapped, the last
    one (appends go there) always, of the others those read last: a mapping costs two descriptors.
    """

    def __init__(self, folder: Path, file_size: int, *, kept_open: int = KEPT_OPEN) -> None:
        self.folder, self.file_size = folder, file_size
        self.files: tuple[MappedFile, ...] = ()
        self.scanning = False
        """Recovery sets it while it reads bytes of which nobody knows whether they are records."""
        self._kept_open = kept_open
        self._open: dict[int, MappedFile] = {}
        self._uses = 0
        self._lock = threading.Lock()

    def load(self) -> None:
        """Find the files of the folder, which is made if need be. Raises StoreDamaged."""
        starts = list_files(self.folder, self.file_size)
        make_directory(self.folder)
        self.files = tuple(self._mine(MappedFile(self.path(start), start, self.file_size)) for start in starts)
        for path in self.folder.iterdir():
            if not path.stat().st_size:
                path.unlink()

    def path(self, start: int) -> Path:
        return self.folder / file_name(start)

    @property
    def start(self) -> int:
        files = self.files
        return files[0].start if files else 0

    @property
    def end(self) -> int:
        """Where the last file ends: the space that is there, written or not."""
        files = self.files
        return files[-1].end if files else 0

    def at(self, offset: int) -> MappedFile | None:
        """The file that holds this offset."""
        files = self.files
        if not files or not files[0].start <= offset < files[-1].end:
            return None
        return files[(offset - files[0].start) // self.file_size]

    def add(self, file: MappedFile) -> None:
        """Append a file. Only the appender does."""
        with self._lock:
            self.files = (*self.files, self._mine(file))
        if file.is_open:
            self._opened(file)

    def remove_from(self, offset: int) -> None:
        """Delete the files that begin at ``offset`` or after it. Only recovery does, before any reader is there.

        Durably one by one, the last one first: a crash leaves no gap.
        """
        gone = [file for file in self.files if file.start >= offset]
        self.files = tuple(file for file in self.files if file.start < offset)
        for file in reversed(gone):
            self._delete(file)
            sync_directory(self.folder)

    def remove_first(self) -> None:
        """Delete the first file, durably: a later one must not be gone while an earlier one is there.

        ``start`` moves before the bytes go, so a reader who misses bytes finds out why. Never the last file.
        Raises OSError; a file that cannot be deleted is the first one still.
        """
        with self._lock:
            if len(self.files) < 2:
                return
            first, *rest = self.files
            self.files = tuple(rest)
        try:
            self._delete(first)
        except OSError:
            # or the next look would delete the second one, and the gap would keep the store from being opened
            with self._lock:
                self.files = (first, *self.files)
            raise
        sync_directory(self.folder)

    def read(self, offset: int, size: int) -> bytes:
        """A copy of bytes of one file, b"" without such a file (any more). Shorter where the file ends."""
        file = self.at(offset)
        if file is None:
            return b""
        if self.scanning:
            return file.peek(offset - file.start, size)
        self._uses = file.last_use = self._uses + 1
        return file.read(offset - file.start, size)

    def peek(self, offset: int, size: int) -> bytes:
        """As ``read``, without a mapping, for bytes that nobody vouches for. Raises OSError."""
        file = self.at(offset)
        return file.peek(offset - file.start, size) if file else b""

    def view(self, offset: int, size: int) -> memoryview:
        """As ``read``, without a copy: see ``MappedFile.view``."""
        file = self.at(offset)
        if file is None:
            return memoryview(b"")
        self._uses = file.last_use = self._uses + 1
        return file.view(offset - file.start, size)

    def close(self) -> None:
        for file in self.files:
            file.close()

    def _mine(self, file: MappedFile) -> MappedFile:
        file.on_open.connect(self._opened)
        return file

    def _opened(self, file: MappedFile) -> None:
        """One more is mapped: close the one that was read longest ago if that is too many. Any thread."""
        with self._lock:
            self._open[file.start] = file
            kept = (file, *self.files[-1:])
            closable = [each for each in self._open.values() if each not in kept]
            closable.sort(key=lambda each: each.last_use, reverse=True)
            while len(self._open) > self._kept_open and closable:
                oldest = closable.pop()
                del self._open[oldest.start]
                oldest.close()

    def _delete(self, file: MappedFile) -> None:
        file.delete()
        with self._lock:
            self._open.pop(file.start, None)
