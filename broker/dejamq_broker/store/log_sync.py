"""How far the log is on disk, and who may bring it there. Source: RocketMQ ``GroupCommitService``."""

import threading
from collections.abc import Callable

from dejamq_broker.store.commit_log import CommitLog
from dejamq_broker.store.errors import out_of_descriptors

QUICK_S = 0.002
"""An event loop may stand still for a sync that takes less."""
REST = 25
"""After one that took more it syncs nothing for so many times as long: a slow disk has it stand still for a 26th at
most."""
WAKING_S = 1.0
"""So long after a start it does not either: many others start then."""


class LogSync:
    """Syncs the log: one party at a time, the flush thread or the appender."""

    def __init__(self, log: CommitLog, note: Callable[[int, int], None]) -> None:
        """``note`` is told each time: everything before a log offset is on disk, and none of it is later than a time
        (ms)."""
        self._log, self._note = log, note
        self.flushed = log.max_offset
        """Everything before this log offset is on disk."""
        self._turn = threading.Lock()
        self._failure: OSError | None = None

    def run(self, *, wait: bool = True) -> bool:
        """Bring what is stored to disk. False, with nothing done: the other party is at it, and may not be waited for.

        Raises OSError. After one that is not for want of descriptors it raises the same for ever: the kernel tells once
        that bytes are lost, and says of the next sync that all is well.
        """
        if not self._turn.acquire(blocking=wait):
            return False
        try:
            self._run()
        finally:
            self._turn.release()
        return True

    def _run(self) -> None:
        if self._failure is not None:
            raise self._failure
        timestamp_ms, end = self._log.last_store_timestamp_ms, self._log.max_offset
        if end > self.flushed:
            try:
                for file in self._log.files.files:
                    if file.end > self.flushed and file.start < end:
                        file.sync()
            except OSError as error:
                self._failure = None if out_of_descriptors(error) else error
                raise
            self._note(end, timestamp_ms)
            self.flushed = end


class Quickness:
    """Whether the disk is so quick that the appender, an event loop, may sync the log itself. For its thread alone.

    Only what the loop sees counts: what another thread measures has its waits for the interpreter in it.
    """

    def __init__(self, now: float) -> None:
        """Times are monotonic (s)."""
        self._rests_until = now + WAKING_S

    def holds(self, now: float) -> bool:
        return now >= self._rests_until

    def note(self, took_s: float, now: float) -> None:
        """A sync by the loop took so long."""
        if took_s >= QUICK_S:
            self._rests_until = now + REST * took_s
