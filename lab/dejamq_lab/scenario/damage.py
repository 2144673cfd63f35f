"""Harm done to a file of a server that does not run."""

import mmap
from pathlib import Path

from dejamq_proto.codes import ConfigError

WAYS = ("truncate", "empty", "delete", "garbage", "flip", "tear")
TORN_BYTES = 64


def harm(store: Path, name: str, how: str) -> None:
    """Harm every file of the store that ``name`` (a pattern) fits. Raises ConfigError where none does."""
    found = sorted(store.glob(name))
    if not found:
        raise ConfigError(f"there is no file {name} in {store}")
    for path in found:
        size = path.stat().st_size
        if how == "delete":
            path.unlink()
        elif how == "empty":
            path.write_bytes(b"")
        elif how == "truncate":
            path.write_bytes(path.read_bytes()[: size // 2])
        elif how == "garbage":
            path.write_bytes(b"\xff" * size)
        elif how in ("flip", "tear"):
            _harm_written(path, flip=how == "flip")
        else:
            raise ConfigError(f"a file is harmed by {', '.join(WAYS)}, not {how!r}")


def _harm_written(path: Path, *, flip: bool) -> None:
    """Files are made longer than what is in them: what is written ends at the last byte that is not 0."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        end = len(data[:].rstrip(b"\0"))
        if flip:
            data[end // 2] ^= 1
        else:
            data[max(0, end - TORN_BYTES) : end] = bytes(min(end, TORN_BYTES))
