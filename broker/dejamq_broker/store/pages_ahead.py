"""Pages for the log before records come: who writes into a page that nobody had before waits for it.

Where memory is only lent, as in virtual machines, such a page costs many times what it costs to fill one that is
there. RocketMQ has ``warmMapedFileEnable`` for this, which writes zeros; here nothing is written, so nothing more has
to go to disk, and what the machine needs for something else it takes back. With SYNC_FLUSH it is zeros, before the file
is the log's: to sync bytes of which the disk had none takes twice as long.
"""

import logging
from math import inf

from dejamq_broker.store.file_queue import FileQueue
from dejamq_broker.store.mapped_file import MappedFile
from dejamq_broker.store.next_file import NextFile
from dejamq_broker.store.other_threads import OtherThreads

logger = logging.getLogger(__name__)

INTERVAL_S = 0.001
"""Between two steps."""
STEP, QUIET_STEP = 64 << 10, 512 << 10
"""Bytes of a step: ahead of a steady stream of appends without being felt by them; and where there are none."""
QUIET_S = 0.02
"""No append for so long: none is there to feel it."""
IDLE_CORE = 0.05
"""With so much of a core, or less, a broker has nothing to do: whoever is served by it may need the other cores."""
LOOK_S = 0.1
"""Between two looks at what else the process does."""
FAR = 1 << 30
"""Bytes after the log's end that are enough: two seconds of a flood."""
QUIET_ZEROS = 256 << 10
"""Bytes of a step of zeros, where there are no appends: of those, the disk would take zeros for as much as it saves."""
ZEROS_AT_ONCE = 4 << 20
"""Bytes of zeros that are brought to disk together: who waits for a sync meanwhile waits for little."""


class PagesAhead:
    """Asks the kernel for them, step by step. Owned by the flush thread."""

    def __init__(self, files: FileQueue, next_file: NextFile) -> None:
        self._files, self._next = files, next_file
        self._step, self._quiet_step = STEP, QUIET_STEP
        self.reached = 0
        """Everything between the log's end and this log offset was asked for."""
        self.busy = OtherThreads(IDLE_CORE).busy
        """Whether the process has better things to do where the log does not grow."""
        self._log_end, self._grown_s = 0, 0.0
        self._looked_s, self._was_busy = 0.0, False

    def step(self, log_end: int, now: float) -> float:
        """Ask for the next ones, at this time (monotonic, s). Answers in how many seconds to ask again; infinite when
        all that there is room for were.
        """
        if log_end != self._log_end:
            self._log_end, self._grown_s = log_end, now
        quiet = now - self._grown_s > QUIET_S
        at = max(self.reached, self._first(log_end))
        file = self._file_at(at) if at - log_end < FAR else None
        if file is None:
            return inf
        size = min(self._quiet_step if quiet else self._step, file.end - at)
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
        """The first log offset whose page may be missed."""
        return log_end

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
    """Writes them into the file that is made ahead, as long as the log has not taken it and does not grow."""

    def __init__(self, files: FileQueue, next_file: NextFile) -> None:
        super().__init__(files, next_file)
        self._step, self._quiet_step, self._unsynced = 0, QUIET_ZEROS, 0

    def _first(self, log_end: int) -> int:
        return max(log_end, self._files.end)

    def _make(self, file: MappedFile, at: int, size: int) -> None:
        self._next.write_zeros(at, size)
        self._unsynced += size
        if self._unsynced >= ZEROS_AT_ONCE or at + size == file.size:
            self._unsynced = 0
            file.sync()
