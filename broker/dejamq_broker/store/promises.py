"""Promises that what was stored is on disk, for those who must know. Source: RocketMQ ``GroupCommitRequest``."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from dejamq_broker.store.errors import StoreError


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
        """More is on disk. True: somebody waits still, though for what is before ``stored``, the log's end."""
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
        """The disk failed: nothing is promised from now on, and who waits hears of it."""
        with self._lock:
            self._failure = failure
            waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(failure)
