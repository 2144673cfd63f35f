"""How far the log is on disk, and which thread may bring it there. Source: RocketMQ ``GroupCommitService``."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from dejamq_broker.store.files.errors import StoreError, out_of_descriptors
from dejamq_broker.store.log.commit_log import CommitLog

# Promises that stored records are on disk, for callers who must know. Source: RocketMQ GroupCommitRequest.


class Promises:
    """Of one log. Any thread."""

    def __init__(self, flushed: Callable[[], int]) -> None:
        """``flushed``: everything before this log offset is on disk. It never goes back."""
        self._flushed = flushed
        self._failure: StoreError | None = None
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, Future[None]]] = []

    def add(self, log_offset: int) -> "Future[None]":
        """Resolves when everything before ``log_offset`` is on disk; fails with StoreError when it may not be."""
        future: Future[None] = Future()
        with self._lock:
            if self._failure:
                future.set_exception(self._failure)
            elif log_offset <= self._flushed():
                future.set_result(None)
            else:
                self._waiting.append((log_offset, future))
        return future

    def keep(self, stored: int) -> bool:
        """More is on disk. True: somebody waits still, though only for bytes before ``stored``, the log's end."""
        with self._lock:
            flushed = self._flushed()
            done = [future for log_offset, future in self._waiting if log_offset <= flushed]
            self._waiting = [waiting for waiting in self._waiting if waiting[0] > flushed]
            more = any(log_offset <= stored for log_offset, _ in self._waiting)
        for future in done:
            if future.set_running_or_notify_cancel():
                future.set_result(None)
        return more

    def end(self, failure: StoreError) -> None:
        """The disk failed: nothing is promised from now on, and all waiting callers hear of it."""
        with self._lock:
            self._failure = failure
            waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(failure)


QUICK_S = 0.002
"""An event loop may stand still for a sync that takes less."""
REST = 25
"""After a sync that took more, it syncs nothing for 25 times as long. So a slow disk stops it for a 26th of the time at
most.
"""
WAKING_S = 1.0
"""For this time after a start it does not sync either: many others start then."""


class LogSync:
    """Syncs the log: one party at a time, the flush thread or the appender."""

    def __init__(self, log: CommitLog, note: Callable[[int, int], None]) -> None:
        """``note`` is called each time: everything before a log offset is on disk, and none of it is later than a time
        (ms).
        """
        self._log, self._note = log, note
        self.flushed = log.max_offset
        """Everything before this log offset is on disk."""
        self._turn = threading.Lock()
        self._failure: OSError | None = None

    def run(self, *, wait: bool = True) -> bool:
        """Bring what is stored to disk. False, with nothing done: the other party is at it, and may not be waited for.

        Raises OSError. After a failure for another reason than want of descriptors it raises the same for ever. The
        kernel reports lost bytes once, and says of the next sync that all is well.
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

    Only the loop's own measurements count: another thread's include its waits for the interpreter.
    """

    def __init__(self, now: float) -> None:
        """Times are monotonic (s)."""
        self._rests_until = now + WAKING_S

    def holds(self, now: float) -> bool:
        return now >= self._rests_until

    def note(self, took_s: float, now: float) -> None:
        """A sync by the loop took this time."""
        if took_s >= QUICK_S:
            self._rests_until = now + REST * took_s
