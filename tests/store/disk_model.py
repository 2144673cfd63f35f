"""A disk that forgets: what a power loss could leave of a directory, by the rules that FORMAT.md assumes.

- Bytes are durable once their file was synced, names once their directory was. All else may be there or not, in any
  mixture: sector by sector old, new, zeros or garbage; names old, new, both or neither.
- A sector is written as a whole (power-safe overwrite): one that held something durable is old or new, never garbage.
- A process's death loses nothing of this, a power loss all of it: so killing a process is no test of flushing.
"""

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from dejamq_broker.store.files.mapped_file import MappedFile

SECTORS = (512, 4096)
MIXTURES = ("old", "new", "torn", "mixed", "mixed", "garbage")
BY_DESCRIPTOR = ("pwrite", "ftruncate", "posix_fallocate", "fsync", "fdatasync")
BY_PATH = ("unlink", "replace", "mkdir", "truncate")

OnStep = Callable[[str], None]
"""Told before each operation on the disk what it is, as ``fdatasync commitlog``. May take a ``wreck``."""


class Disk:
    """Watches one directory, which is durable as it is at the beginning. Other directories are not touched.

    One operation at a time: a wreck taken in ``on_step`` is of one moment, whatever threads there are.
    """

    def __init__(self, root: Path, on_step: OnStep = lambda kind: None) -> None:
        self.root = root
        self.on_step = on_step
        self._lock = threading.RLock()
        self._contents: dict[int, bytes] = {}
        """Durable bytes by inode."""
        self._names: dict[Path, dict[str, int]] = {}
        """Durable names of a directory, with their inodes."""
        self._unlinked: dict[int, int] = {}
        """Descriptors of files that have lost their name: they keep the inode from being given to another file."""
        for folder, _, files in os.walk(root):
            self._sync_names(Path(folder))
            for name in files:
                self._sync_bytes(Path(folder) / name)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Operations of this process on the directory are noticed inside. Nothing waits for a real disk."""
        real_write = MappedFile.write

        def write(file: MappedFile, at: int, data: bytes | memoryview) -> None:
            if not file.path.is_relative_to(self.root):
                real_write(file, at, data)
                return
            with self._lock:
                self._step("write", file.path)
                real_write(file, at, data)

        patches = [mock.patch.object(os, name, self._by_descriptor(name)) for name in BY_DESCRIPTOR]
        patches += [mock.patch.object(os, name, self._by_path(name)) for name in BY_PATH]
        patches += [mock.patch.object(os, "open", self._opening()), mock.patch.object(MappedFile, "write", write)]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()
            for descriptor in self._unlinked.values():
                os.close(descriptor)
            self._unlinked.clear()

    def wreck(self, target: Path, rng: random.Random) -> None:
        """Build in ``target`` a directory that a power loss at this moment could leave."""
        with self._lock:
            self._wreck_folder(self.root, target, rng)

    # Watching.

    def _by_descriptor(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(descriptor: int, *arguments: Any) -> Any:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if not path.is_relative_to(self.root):
                return real(descriptor, *arguments)
            with self._lock:
                self._step(name, path)
                if name not in ("fsync", "fdatasync"):
                    return real(descriptor, *arguments)
                if path.is_dir():
                    self._sync_names(path)
                else:
                    self._contents[os.fstat(descriptor).st_ino] = _bytes_of(descriptor)
                return None

        return call

    def _by_path(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(path: Any, *arguments: Any, **more: Any) -> Any:
            if not Path(path).is_relative_to(self.root):
                return real(path, *arguments, **more)
            with self._lock:
                self._step(name, Path(path))
                self._keep_inode(Path(arguments[0] if name == "replace" else path) if name != "mkdir" else None)
                return real(path, *arguments, **more)

        return call

    def _opening(self) -> Callable[..., int]:
        real = os.open

        def call(path: Any, flags: int, *arguments: Any, **more: Any) -> int:
            with self._lock:
                if flags & os.O_CREAT and Path(path).is_relative_to(self.root) and not Path(path).exists():
                    self._step("create", Path(path))
                return real(path, flags, *arguments, **more)

        return call

    def _step(self, name: str, path: Path) -> None:
        inside = path.relative_to(self.root).parts
        self.on_step(f"{name} {inside[1] if len(inside) > 1 else 'directory'}")

    def _keep_inode(self, path: Path | None) -> None:
        if path is not None and path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            inode = os.fstat(descriptor).st_ino
            if inode in self._unlinked:
                os.close(descriptor)
            else:
                self._unlinked[inode] = descriptor

    def _sync_names(self, folder: Path) -> None:
        self._names[folder] = _names_in(folder)

    def _sync_bytes(self, path: Path) -> None:
        self._contents[path.stat().st_ino] = path.read_bytes()

    # Wrecking.

    def _wreck_folder(self, folder: Path, target: Path, rng: random.Random) -> None:
        target.mkdir()
        new, old = _names_in(folder), self._names.get(folder, {})
        for name in sorted({*new, *old}):
            inode = rng.choice([new.get(name), old.get(name)])
            if inode is None:
                continue
            if (folder / name).is_dir():
                self._wreck_folder(folder / name, target / name, rng)
            else:
                now = self._bytes_now(folder / name, inode, new.get(name) == inode)
                (target / name).write_bytes(mixture(self._contents.get(inode, b""), now, rng))

    def _bytes_now(self, path: Path, inode: int, has_name: bool) -> bytes:
        if has_name:
            return path.read_bytes()
        return _bytes_of(self._unlinked[inode]) if inode in self._unlinked else self._contents.get(inode, b"")


def mixture(old: bytes, new: bytes, rng: random.Random) -> bytes:
    """What may be on disk of a file whose bytes were ``old`` when it was synced and are ``new`` now."""
    if old == new:
        return new
    size = rng.choice((len(old), len(new)))
    kind, sector = rng.choice(MIXTURES), rng.choice(SECTORS)
    tear = rng.randrange(0, max(size, 1))
    share = rng.random()
    parts = []
    for at in range(0, size, sector):
        width = min(sector, size - at)
        before, after = old[at : at + width].ljust(width, b"\0"), new[at : at + width].ljust(width, b"\0")
        take_new = {"old": False, "new": True, "torn": at < tear}.get(kind)
        if take_new is None:
            take_new = rng.random() < share
        if kind == "garbage" and before != after and not any(before) and rng.random() < 0.5:
            parts.append(rng.choice((bytes(width), rng.randbytes(width))))
        else:
            parts.append(after if take_new else before)
    return b"".join(parts)


def _names_in(folder: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder)}


def _bytes_of(descriptor: int) -> bytes:
    return Path(f"/proc/self/fd/{descriptor}").read_bytes()  # the descriptor may be for writing only
