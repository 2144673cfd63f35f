"""Work that may come late: the log read back behind the appends, for dispatchers that need whole records.

The index is one: made in the append path it would cost as much as the append itself. It is fed when the log has stopped
growing and the process has little else to do. When it is too far behind, it is fed in small doses. A question to it
brings it up to date first (``catch_up``). Another derived file would be another dispatcher. Source: RocketMQ
``ReputMessageService``, which does it at once.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from dejamq_broker.store.files.config import StoreConfig
from dejamq_broker.store.files.cpu_share import OtherThreads
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_broker.store.log.scan import Damage, End, FoundRecords, LogFiles, walk

logger = logging.getLogger(__name__)

LOOK_S = 0.1
"""Pause between looks at the log."""
QUIET_BYTES = 64 << 10
"""A log that grew by no more than this since the last look counts as quiet."""
STEP_BYTES = 4 << 20
"""As much of the log as is handed on at once, or a little more: some ten milliseconds."""
BUSY_SHARE = 0.2
"""Part of the time that a busy log's reader takes, when it is too far behind."""
BUSY_CORE = 0.2
"""A process whose other threads have more than this of a core has better things to do than work that may come late."""
SETTLE_S = 10
"""Pause between two times that everything is put on disk."""
AFTER_FAILURE_S = 5


class LateDispatcher(Protocol):
    """Takes records in log order. Used by one thread at a time, except for the two properties."""

    @property
    def position(self) -> int:
        """Every record before this log offset was taken."""

    @property
    def settled(self) -> bool:
        """Whether everything taken is on disk."""

    def dispatch(self, found: FoundRecords) -> None:
        """Take these records; pass over those taken before. Raises OSError: nothing is lost by calling again."""

    def skip_to(self, log_offset: int) -> None:
        """There are no records before this log offset."""

    def settle(self) -> None:
        """Put everything on disk. Raises OSError."""


class LateReader:
    """Feeds one dispatcher. The reput thread gives it its turns; others may call ``catch_up`` at any time.

    ``limit`` says up to which log offset records may be seen, ``flushed`` up to which they are on disk.
    """

    def __init__(
        self, log: CommitLog, dispatcher: LateDispatcher, limit: Callable[[], int], flushed: Callable[[], int],
        config: StoreConfig,
    ) -> None:  # fmt: skip
        self._log, self._dispatcher = log, dispatcher
        self._enabled, self._lag_max = config.message_index_enable, config.index_lag_max
        self._limit, self._flushed = limit, flushed
        self._lock = threading.Lock()
        self._seen = limit()
        self._next_look = self._next_settle = 0.0
        self._ended = False
        self.busy = OtherThreads(BUSY_CORE).busy

    def step(self, *, wait: bool = True) -> bool:
        """Hand on the next piece of the log, some megabytes; False at its end. Raises OSError. Any thread.

        Without ``wait`` also False when another thread is at it: it may go on for long, and locks are not fair.
        """
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            return self._step_locked()
        finally:
            self._lock.release()

    def _step_locked(self) -> bool:
        limit, log = self._limit(), self._log
        at = max(self._dispatcher.position, log.min_offset)
        if at >= limit or self._ended or not self._enabled:
            return False
        for piece in self._pieces(at, limit):
            if isinstance(piece, FoundRecords):
                self._dispatcher.dispatch(piece)
            elif self._dispatcher.position < log.min_offset:
                self._dispatcher.skip_to(log.min_offset)  # it expired under our eyes
                break
            else:
                # damage is passed over; at an End there is nothing good before the limit
                self._dispatcher.skip_to(limit if isinstance(piece, End) else piece.end)
            if self._dispatcher.position - at >= STEP_BYTES:
                break
        return True

    def rest(self) -> Iterator[FoundRecords]:
        """The records that were not handed on yet, in log order, for a caller that cannot wait until they are.

        Any thread.
        """
        if self._enabled:
            pieces = self._pieces(max(self._dispatcher.position, self._log.min_offset), self._limit())
            yield from (piece for piece in pieces if isinstance(piece, FoundRecords))

    def _pieces(self, at: int, limit: int) -> Iterator[FoundRecords | Damage | End]:
        log = self._log

        def read(log_offset: int, size: int) -> memoryview:
            return log.view(log_offset, min(size, limit - log_offset))

        return walk(read, LogFiles(log.min_offset, limit, log.files.file_size), at, check_crc=False)

    def catch_up(self, deadline: float | None = None) -> bool:
        """Hand on everything up to the limit; False when the deadline (monotonic, s) came first. Raises OSError."""
        while self.step():
            if deadline is not None and time.monotonic() > deadline:
                return False
        return True

    def turn(self, wanted: Callable[[], bool]) -> float:
        """Do what fits now. Answers in how many seconds to look again. ``wanted``: the thread is needed elsewhere."""
        now = time.monotonic()
        if now < self._next_look:
            return self._next_look - now
        self._next_look = now + LOOK_S
        try:
            self._work(now, wanted)
        except Exception as error:
            # the log is whole and queues go on: the next turn, a query or the next start tries again
            logger.warning("late_dispatch_failed position=%d error=%r", self._dispatcher.position, error)
            self._next_look = now + AFTER_FAILURE_S
        return max(0.0, self._next_look - time.monotonic())

    def finish(self, seconds: float) -> bool:
        """Go to the end and put all on disk, when nobody appends any more. True when what is on disk can be trusted.

        The part that is not reached within the time is left to the next start.
        """
        try:
            if not self.catch_up(time.monotonic() + seconds):
                logger.warning("late_dispatch_unfinished position=%d", self._dispatcher.position)
            with self._lock:
                self._ended = True  # a query that still runs must not go on feeding
                self._dispatcher.settle()
        except Exception as error:
            logger.warning("late_dispatch_failed position=%d error=%r", self._dispatcher.position, error)
        return self._dispatcher.settled

    def _work(self, now: float, wanted: Callable[[], bool]) -> None:
        end, before = self._limit(), self._seen
        self._seen = end
        if not self.busy() and end - before <= QUIET_BYTES:
            while self.step(wait=False) and not (wanted() or self.busy() or self._limit() - end > QUIET_BYTES):
                pass
        elif end - self._dispatcher.position > self._lag_max:
            self.step(wait=False)
            self._next_look = now + (time.monotonic() - now) / BUSY_SHARE
        caught_up = end <= self._dispatcher.position <= self._flushed()
        if caught_up and now >= self._next_settle and not self._dispatcher.settled and not wanted():
            with self._lock:
                self._dispatcher.settle()
            self._next_settle = time.monotonic() + SETTLE_S
