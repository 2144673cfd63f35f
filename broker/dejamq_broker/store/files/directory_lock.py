"""One owner for a store directory. Source: RocketMQ locks byte 0 of the file ``lock``, and so do we.

The lock is an open file description lock where the system has them. It keeps a RocketMQ out, and is kept out by one.
Unlike an ordinary record lock, it also keeps out a second store in this very process.
"""

import errno
import fcntl
import os
import struct
from contextlib import suppress

from dejamq_broker.store.files.directories import make_directory, sync_directory
from dejamq_broker.store.files.errors import StoreLocked
from dejamq_broker.store.files.paths import StorePaths

_FLOCK = struct.Struct("hhqqi0q")


class DirectoryLock:
    """Held from construction to ``release``. Raises StoreLocked, and OSError where nothing can be locked."""

    def __init__(self, paths: StorePaths) -> None:
        make_directory(paths.root)
        self._file = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take()
        except OSError as error:
            os.close(self._file)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise  # a file system without locks, say
            raise StoreLocked(f"{paths.root} is in use by {_owner(paths)}: stop it, or use another directory") from None
        with suppress(OSError):
            os.pwrite(self._file, b"lock", 0)  # as RocketMQ does; nobody reads it, so a full disk is no matter

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _take(self) -> None:
        if hasattr(fcntl, "F_OFD_SETLK"):
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        else:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def mark_open(paths: StorePaths) -> None:
    """Make ``abort``, which tells the next start that this one did not end well. Raises OSError.

    Its name says all; the process's number in it is for people. So a full disk keeps no store from being opened: its
    messages can be read, and retention makes space.
    """
    descriptor = os.open(paths.abort, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        number = str(os.getpid()).encode()
        os.ftruncate(descriptor, os.pwrite(descriptor, number, 0))
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
    finally:
        os.close(descriptor)
    sync_directory(paths.root)


def note_role(paths: StorePaths, *, slave: bool) -> bool:
    """Remember that the directory is a slave's, or that it is a slave's no more. Answers whether it was one until now.

    Only for people and journals: a full disk, where nothing can be remembered, is no matter.
    """
    was = paths.slave.exists()
    with suppress(OSError):
        if slave:
            paths.slave.touch()
        else:
            paths.slave.unlink(missing_ok=True)
    return was and not slave


def _owner(paths: StorePaths) -> str:
    try:
        return f"process {int(paths.abort.read_text())}"
    except (OSError, ValueError):
        return "another process"
