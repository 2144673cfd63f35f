"""Names on disk: a file or folder is there after a power loss only when its directory was synced after it was made."""

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make a created, renamed or deleted name durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Make a directory and the missing ones above it, so that it is there after a power loss too. Raises OSError."""
    missing = [directory, *directory.parents]
    missing = missing[: next(number for number, path in enumerate(missing) if path.is_dir())]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_directory(path.parent)
