"""Pages for the log before records come: a write into a page that nobody had before waits for it.

Where memory is only lent, as in virtual machines, such a page costs many times more than one that is there. RocketMQ
has ``warmMapedFileEnable`` for this, which writes zeros. With ASYNC_FLUSH nothing is written here, so nothing more has
to go to disk, and the machine takes pages back that it needs. With SYNC_FLUSH zeros are written while a broker has
nothing else to do. A sync of blocks that were never written takes twice as long, as the file system has to note them.
"""

import logging
from math import inf

from dejamq_broker.store.files.cpu_share import OtherThreads
from dejamq_broker.store.files.file_queue import FileQueue
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.log.next_file import NextFile

logger = logging.getLogger(__name__)

INTERVAL_S = 0.001
"""Between two steps."""
STEP, QUIET_STEP = 64 << 10, 512 << 10
"""Bytes of a step: ahead of a steady stream of appends, which do not feel it; and without appends."""
QUIET_S = 0.02
"""After this time without an append, no append feels it."""
IDLE_CORE = 0.05
"""A broker that uses this part of a core, or less, has nothing to do. Its clients may need the other cores."""
LOOK_S = 0.1
"""Between two looks at the other work of the process."""
FAR = 1 << 30
"""Bytes after the log's end that are enough: two seconds of a bulk send."""
QUIET_ZEROS = 256 << 10
"""Bytes of a step of zeros.

No step is done while the log grows: the disk would lose by it the time that it saves later.
"""
ZEROS_AT_ONCE = 1 << 20
"""Bytes of zeros that are brought to disk together: a caller that needs a sync meanwhile waits for little."""


class PagesAhead:
    """Asks the kernel for them, step by step. Owned by the flush thread."""

    def __init__(self, files: FileQueue, next_file: NextFile) -> None:
        self._files, self._next = files, next_file
        self.reached = 0
        """Everything between the log's end and this log offset was asked for, or is full of zeros."""
        self.busy = OtherThreads(IDLE_CORE).busy
        """Whether the process has better things to do where the log does not grow."""
        self._log_end, self._grown_s = 0, 0.0
        self._looked_s, self._was_busy = 0.0, False

    def step(self, log_end: int, now: float) -> float:
        """Ask for the next ones, at this time (monotonic, s). Answers in how many seconds to ask again; infinite when
        all pages were made for which there is space.
        """
        if log_end != self._log_end:
            self._log_end, self._grown_s = log_end, now
        quiet = now - self._grown_s > QUIET_S
        at = max(self.reached, self._first(log_end))
        file = self._file_at(at) if at - log_end < FAR else None
        if file is None:
            return inf
        size = min(self._size(quiet=quiet), file.end - at)
        if not size or (quiet and self._others_work(now)):
            return LOOK_S
        try:
            self._make(file, at - file.start, size)
        except OSError as error:
            # whether it can be written shows when it is
            logger.warning("log_pages_not_ahead path=%s error=%s", file.path, error)
            size = file.end - at
        self.reached = at + size
        return INTERVAL_S

    def _first(self, log_end: int) -> int:
        """Where the first page is that can be made."""
        return log_end

    def _size(self, *, quiet: bool) -> int:
        """Bytes of a step; 0: not now."""
        return QUIET_STEP if quiet else STEP

    def _make(self, file: MappedFile, at: int, size: int) -> None:
        """Raises OSError."""
        file.expect(at, size)

    def _others_work(self, now: float) -> bool:
        if now - self._looked_s > LOOK_S:
            self._looked_s, self._was_busy = now, self.busy()
        return self._was_busy

    def _file_at(self, log_offset: int) -> MappedFile | None:
        file = self._files.at(log_offset) or self._next.ready
        return file if file is not None and file.start <= log_offset < file.end else None


class ZerosAhead(PagesAhead):
    """Writes zeros into the file that is made ahead, until the log takes it."""

    def __init__(self, files: FileQueue, next_file: NextFile) -> None:
        super().__init__(files, next_file)
        self._file: MappedFile | None = None
        self._unsynced = 0

    def step(self, log_end: int, now: float) -> float:
        """As of pages. A file that was discarded and made again has no zeros."""
        if self._next.ready is not self._file:
            self._file, self._unsynced, self.reached = self._next.ready, 0, 0
        return super().step(log_end, now)

    def _first(self, log_end: int) -> int:
        return max(log_end, self._files.end)

    def _size(self, *, quiet: bool) -> int:
        return QUIET_ZEROS if quiet else 0

    def _make(self, file: MappedFile, at: int, size: int) -> None:
        unsynced = self._unsynced + size
        sync = unsynced >= ZEROS_AT_ONCE or at + size == file.size
        self._unsynced = 0 if sync else unsynced
        self._next.write_zeros(file, at, size, sync=sync)
