"""A folder of equally long files that form one long run of bytes. Source: RocketMQ ``MappedFileQueue``."""

from itertools import pairwise
from pathlib import Path

from dejamq_broker.store.errors import StoreDamaged
from dejamq_broker.store.mapped_file import MappedFile
from dejamq_broker.store.paths import file_name, file_start


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
                f"{path} has {length} bytes instead of {size}: configure the size that the store was made with, "
                "or move the file away"
            )
        starts.append(start)
    for earlier, later in pairwise(starts):
        if later != earlier + size:
            raise StoreDamaged(f"{folder / file_name(earlier + size)} is missing between two others: bring it back")
    return starts


class FileQueue:
    """Mapped files by offset. Readers take ``files``, a tuple that the one writer replaces, and never lock."""

    def __init__(self, folder: Path, file_size: int) -> None:
        self.folder, self.file_size = folder, file_size
        self.files: tuple[MappedFile, ...] = ()

    def load(self) -> None:
        """Find the files of the folder, which is made if need be. Raises StoreDamaged."""
        starts = list_files(self.folder, self.file_size)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.files = tuple(MappedFile(self.path(start), start, self.file_size) for start in starts)
        for path in self.folder.iterdir():
            if not path.stat().st_size:
                path.unlink()

    def path(self, start: int) -> Path:
        return self.folder / file_name(start)

    @property
    def start(self) -> int:
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """Where the last file ends: room that is there, written or not."""
        return self.files[-1].end if self.files else 0

    def at(self, offset: int) -> MappedFile | None:
        """The file that holds this offset."""
        files = self.files
        if not files or not files[0].start <= offset < files[-1].end:
            return None
        return files[(offset - files[0].start) // self.file_size]

    def add(self, file: MappedFile) -> None:
        self.files = (*self.files, file)

    def remove_from(self, offset: int) -> None:
        """Delete the files that begin at ``offset`` or after it."""
        for file in self.files:
            if file.start >= offset:
                file.delete()
        self.files = tuple(file for file in self.files if file.start < offset)

    def read(self, offset: int, size: int) -> bytes:
        """A copy of bytes of one file, b"" where there is none. Shorter where the file ends."""
        file = self.at(offset)
        return file.read(offset - file.start, size) if file else b""

    def close(self) -> None:
        for file in self.files:
            file.close()
