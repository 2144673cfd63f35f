"""The log file after the last one, ready before an append needs it. Source: RocketMQ ``AllocateMappedFileService``."""

import errno
import logging
import os
import threading
from collections.abc import Callable

from dejamq_broker.store.files.errors import StoreSlow
from dejamq_broker.store.files.file_queue import FileQueue
from dejamq_broker.store.files.mapped_file import MappedFile

logger = logging.getLogger(__name__)

ENTRIES_SHARE = 4
"""Queue entries take less than this fraction of their log: 20 bytes of a record of 91 or more."""
LOOP_WAITS_S = 0.5
"""An event loop stands still for so long at most, once, when the log needs a file that nobody made in time."""
ROOM_FOR_MARKS = 32 << 10
"""For ``dispatched.json``, ``checkpoint`` and pages of queue files that are hardly begun."""


class NextFile:
    """Makes one file ahead: the flush thread prepares it, with SYNC_FLUSH full of zeros, and the appender takes it."""

    def __init__(self, files: FileQueue, marked: Callable[[], int], *, in_loop: bool = False) -> None:
        """``marked``: the log offset up to which a mark says that the queues are on disk. ``in_loop``: the appender is
        an event loop, which makes no file itself and waits for none that does not come.
        """
        self._files, self._marked, self._in_loop = files, marked, in_loop
        self._maker: threading.Thread | None = None
        self._trouble: OSError | None = None
        self._late = False
        """The last file that was needed did not come in time; nobody waits for it any more."""
        self._lock = threading.Lock()
        self._ready: MappedFile | None = None
        self._end = 0
        self._failed = False

    @property
    def ready(self) -> MappedFile | None:
        """The file that is prepared and not taken."""
        return self._ready

    def take(self, start: int) -> MappedFile:
        """The file that begins at ``start``: the prepared one, or a new one. For the appender. Raises OSError, and
        StoreSlow where an event loop would wait.
        """
        if self._in_loop:
            return self._take_made(start)
        with self._lock:
            ready, self._ready = self._ready, None
            file = ready or self._create(start)
            assert file.start == start, "files follow one another"
            self._end = file.end
            return file

    def _take_made(self, start: int) -> MappedFile:
        """As ``take``; a thread makes the file where none is ready, or waits for the one that does."""
        maker_rests = self._maker is None or not self._maker.is_alive()
        if self._ready is not None or maker_rests:
            self._trouble = None  # of an earlier try: the flush thread may have made the file since
        if self._ready is None and maker_rests:
            self._maker = threading.Thread(target=self._make, args=(start,), name="dejamq-next-file", daemon=True)
            self._maker.start()
        if self._maker is not None:
            self._maker.join(0 if self._late else LOOP_WAITS_S)
        ready = None
        if self._trouble is None and self._lock.acquire(timeout=0 if self._late else LOOP_WAITS_S):
            ready, self._ready = self._ready, None
            self._lock.release()
        if self._trouble is not None:
            raise self._trouble
        self._late = ready is None
        if ready is None:
            raise StoreSlow(f"the disk of {self._files.folder} has not made the log's next file yet; send again")
        assert ready.start == start, "files follow one another"
        self._end = ready.end
        return ready

    def _make(self, start: int) -> None:
        try:
            with self._lock:
                if self._ready is None:
                    self._ready = self._create(start)
        except OSError as error:
            self._trouble = error

    def is_wanted(self, log_end: int) -> bool:
        """Whether ``prepare`` has something to do. Any thread."""
        start = max(self._end, self._files.end)
        return self._ready is None and start - log_end < self._files.file_size * 7 // 8

    def prepare(self, log_end: int) -> None:
        """Make the next file once an eighth of the last one is used, the very first one at once. Raises OSError."""
        with self._lock:
            if self.is_wanted(log_end):
                self._ready = self._create(max(self._end, self._files.end))

    def try_to_prepare(self, log_end: int) -> None:
        """As ``prepare``; that it fails is logged once, until it does not."""
        try:
            self.prepare(log_end)
            self._failed = False
        except OSError as error:
            # an append that needs the file will try again, and refuse if there is still no room
            if not self._failed:
                logger.warning("next_file_not_prepared directory=%s error=%s", self._files.folder, error)
            self._failed = True

    def write_zeros(self, file: MappedFile, at: int, size: int, *, sync: bool) -> None:
        """Into the file that is prepared, and on disk with ``sync``; not if the appender has taken it meanwhile, for
        then records are there. For the flush thread. Raises OSError.

        By a descriptor of its own: the kernel tells each once that bytes are lost, and the log's may not miss it.
        """
        descriptor = os.open(file.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            with self._lock:
                if self._ready is not file:
                    return
                os.pwrite(descriptor, bytes(size), at)
            if sync:
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def discard(self) -> None:
        """Delete a prepared file that nobody took."""
        with self._lock:
            if self._ready is not None:
                self._ready.delete()
            self._ready = None

    def _create(self, start: int) -> MappedFile:
        """The log never takes the last space: its queues must get to disk and be marked, or no file could ever go.

        Retention deletes only what a mark covers, and a fast writer fills a small disk before the first one is made.
        """
        files = self._files
        end = start + files.file_size
        behind = end - max(files.start, self._marked())
        space = os.statvfs(files.folder)
        if space.f_bavail * space.f_frsize < files.file_size + behind // ENTRIES_SHARE + ROOM_FOR_MARKS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return MappedFile.create(files.path(start), start, files.file_size)
