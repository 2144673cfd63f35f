"""Flushing: a thread that brings bytes to the disk, and promises for callers that must know. Source: RocketMQ
``FlushManager``.

The log is flushed for waiting callers, or by the intervals of ASYNC_FLUSH. Waiting callers get group commit: all that
came during one ``fdatasync`` share the next. The same thread has the queues brought to disk, the next file made ready
and pages made ahead.

With SYNC_FLUSH and ``sync_flush_in_event_loop`` the appender, an event loop, syncs the log itself while the disk is
quick. That costs less than to wake the thread, which has to take the interpreter's lock from it and to reach it from
outside. The price is that a disk that hangs then holds the loop until it answers; then the thread syncs for a while.
"""

import errno
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from dejamq_broker.store.files.config import StoreConfig
from dejamq_broker.store.files.errors import StoreError, out_of_descriptors
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_broker.store.log.next_file import NextFile
from dejamq_broker.store.log.pages_ahead import PagesAhead, ZerosAhead
from dejamq_broker.store.log.sync import LogSync, Promises, Quickness
from dejamq_broker.store.queues.flush import QueueFlush

logger = logging.getLogger(__name__)

Soon = Callable[[Callable[[], None]], object]
"""Has the calling thread do something after what it does now: ``call_soon`` of its event loop."""
PAGE = 4096
SHORT_PAUSE_S = 0.1
"""Between two tries while no file can be opened."""


class Flusher:
    """Owns the flush thread. ``failure`` is the error that ended it; after a failed flush nothing is promised again.

    ``full``: there is no space for the queues. ``short``: files cannot be opened, as too many are open. Both pass.

    The thread does one ``turn`` after the other; before it starts and after it ended the store's own thread does. The
    appender's thread comes in by ``appended`` and, where it syncs itself, by ``_sync_here``. Both threads touch four
    things. ``LogSync`` and ``Promises`` have locks of their own, ``failure`` is set once, and ``short`` ends with a
    whole round of the thread.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueFlush,
        paths: StorePaths,
        config: StoreConfig,
        next_file: NextFile,
        *,
        dispatched: Callable[[], int],
        on_flushed: Callable[[], None] | None,
        soon: Soon | None,
    ) -> None:
        """``dispatched``: the log offset up to which the queues have their entries. ``on_flushed`` is called after each
        sync of the log; None: nobody waits for those. ``soon``: None where the appender's thread is no event loop.
        """
        self._log, self._queues, self._paths, self._config = log, queues, paths, config
        self._next_file, self._dispatched, self.on_flushed = next_file, dispatched, on_flushed
        ahead = ZerosAhead if config.sync_flush else PagesAhead
        self.pages = ahead(log.files, next_file)
        self._sync = LogSync(log, queues.log_flushed)
        self._promises = Promises(lambda: self.flushed)
        self.failure: StoreError | None = None
        self.full = self.short = False
        self._soon = soon
        """For the appender's thread alone. None where that is no event loop, and when appends have ended."""
        self._due_here = False
        self._wake = threading.Condition()
        self._urgent = self._nudged = self._mark_wanted = self._stopping = False
        now = time.monotonic()
        self._quickness = Quickness(now)
        self._log_turn = self._log_flush = self._queue_turn = now
        self._thread = threading.Thread(target=self._run, name="dejamq-flush")

    @property
    def flushed(self) -> int:
        """Everything before this log offset is on disk."""
        return self._sync.flushed

    @property
    def marked(self) -> int:
        """Everything before this log offset is on disk, with its queue entries, and a mark says so."""
        return self._queues.marked

    def start(self) -> None:
        """Mark what recovery left, so that no older mark outlives the first append; then run."""
        self._queues.log_flushed(self.flushed, self._log.last_store_timestamp_ms)
        self._guarded(lambda: self._with_room(lambda: self._queues.finish(self._reached(), self.flushed)))
        self._thread.start()

    def durable(self, log_offset: int) -> Future[None]:
        """Resolves when everything before ``log_offset`` is on disk; fails with StoreError. Any thread."""
        promise = self._promises.add(log_offset)
        if not promise.done() and not self._due_here:  # a sync that is due covers all records stored before it begins
            self._hasten()
        return promise

    def appended(self) -> None:
        """There is more to flush. With SYNC_FLUSH that is at once, for those too who do not wait for it.

        With ASYNC_FLUSH it is after the interval, or, unless ``flush_commit_log_timed``, as soon as there are pages
        enough. Called by the appender.
        """
        if self._config.sync_flush:
            self._sync_soon()
        elif not self._config.flush_commit_log_timed and not self._nudged and self._worth_it():
            with self._wake:
                self._nudged = True
                self._wake.notify()

    def _sync_soon(self) -> None:
        """By the appender itself, once for all that it appends until then; by the thread where the disk is slow."""
        soon = self._soon
        if self._due_here:
            return
        if soon is None or not self._quickness.holds(time.monotonic()):
            self._hasten()
            return
        soon(self._sync_here)
        self._due_here = True
        if self._next_file.is_wanted(self._log.max_offset):
            self._hasten()

    def _sync_here(self) -> None:
        """For the appender. Waiting callers get their answer first; the queues get their entries after that.

        Where the thread is syncing, that one goes once more.
        """
        self._due_here, soon = False, self._soon
        if soon is None or self.failure:
            return
        began = time.monotonic()
        try:
            if not self._sync.run(wait=False):
                self._hasten()
                return
        except Exception as error:
            self._failed(error)
            return
        now = time.monotonic()
        self._quickness.note(now - began, now)
        self._keep_promises()
        if self.on_flushed is not None:
            soon(self.on_flushed)

    def _hasten(self) -> None:
        """A thread that was notified already looks before it sleeps."""
        with self._wake:
            if not self._urgent:
                self._urgent = True
                self._wake.notify()

    def mark_soon(self) -> None:
        """Bring everything to disk and mark it now: retention may not delete what no mark covers. Any thread."""
        with self._wake:
            self._mark_wanted = self._urgent = True
            self._wake.notify()

    def stop(self) -> None:
        """End the thread and flush the log to its end. The caller has stopped appends."""
        self._soon = None
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._guarded(self._flush_log)

    def finish(self) -> None:
        """Bring the queues to disk and mark it, after ``stop`` and when reput has reached the end."""
        self._guarded(self._finish)
        self._next_file.discard()

    def _finish(self) -> None:
        self._flush_log()  # the flush of ``stop`` may have found no descriptor
        self._with_room(lambda: self._queues.finish(self._reached(), self.flushed))

    def turn(self, now: float) -> None:
        """The work that is due at this time (monotonic, s). For the thread. Raises OSError when the disk fails."""
        with self._wake:
            urgent, self._urgent, self._nudged = self._urgent, False, False
            mark_wanted, self._mark_wanted = self._mark_wanted, False
        if urgent or self._log_is_due(now):
            self._flush_log()
            self._log_flush = now
        self._prepare_next_file()
        if mark_wanted:
            self._with_room(lambda: self._queues.finish(self._reached(), self.flushed))
        elif (now - self._queue_turn) * 1000 >= self._config.flush_interval_consume_queue_ms:
            self._queue_turn = now
            self._with_room(lambda: self._queues.turn(self._reached(), self.flushed, now=now, between=self._hurry))

    def _run(self) -> None:
        self._next_file.try_to_prepare(self._log.max_offset)
        while not self._stopping and not self.failure:
            self._guarded(self._round)

    def _round(self) -> None:
        self._wait()
        self.turn(time.monotonic())

    def _wait(self) -> None:
        pause_s = min(self._pause_s(), self.pages.step(self._log.max_offset, time.monotonic()))
        with self._wake:
            if self.short and not self._stopping:
                self._wake.wait_for(lambda: self._stopping, SHORT_PAUSE_S)
            elif not self._urgent and not self._nudged and not self._stopping:
                self._wake.wait(pause_s)

    def _pause_s(self) -> float:
        shortest = min(self._config.flush_interval_commit_log_ms, self._config.flush_interval_consume_queue_ms)
        return shortest / 1000

    def _log_is_due(self, now: float) -> bool:
        config = self._config
        waited = (now - self._log_turn) * 1000 >= config.flush_interval_commit_log_ms
        if not waited and config.flush_commit_log_timed:
            return False
        if waited:
            self._log_turn = now
        return self._worth_it() or (now - self._log_flush) * 1000 >= config.flush_commit_log_thorough_interval_ms

    def _worth_it(self) -> bool:
        """Pages enough, or a full file: that one is always worth it. Source: ``DefaultMappedFile.isAbleToFlush``."""
        end, flushed, size = self._log.max_offset, self.flushed, self._log.files.file_size
        pages = end // PAGE - flushed // PAGE
        return pages >= self._config.flush_commit_log_least_pages or end // size > flushed // size

    def _reached(self) -> int:
        return min(self._dispatched(), self.flushed)

    def _hurry(self) -> None:
        """Between two queues come the callers that wait for the log, and its next file. With hundreds of queues, the
        log needs a file sooner than all are synced, and the appender would have to make it itself. A log that cannot be
        synced is never just a full disk.
        """
        try:
            if self._urgent:
                self._flush_log()
        except OSError as error:
            raise StoreError(str(error)) from error
        self._prepare_next_file()

    def _prepare_next_file(self) -> None:
        if not self.full:
            self._next_file.try_to_prepare(self._log.max_offset)

    def _flush_log(self) -> None:
        self._sync.run()
        self._keep_promises()
        if self.on_flushed is not None:
            self.on_flushed()

    def _keep_promises(self) -> None:
        if self._promises.keep(self._log.max_offset):
            self._hasten()

    def _with_room(self, keep: Callable[[], None]) -> None:
        """A disk without space for queues is not broken: appends are refused until a later turn finds space.

        The file made ahead gives its space back first: with marks, retention can delete.
        """
        try:
            if self.full:
                self._next_file.discard()
            keep()
            self.full = False
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            logger.warning("disk_full directory=%s", self._paths.root)
            self.full = True

    def _guarded(self, action: Callable[[], None]) -> None:
        """A failure is kept, and raised by the next append; callers that wait for the disk must hear of it too."""
        if self.failure:
            return
        try:
            action()
            if self.short:
                logger.warning("descriptors_back directory=%s", self._paths.root)
            self.short = False
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if out_of_descriptors(error):
            self._try_again(error)
        else:
            self._fail(
                StoreError(f"the disk of {self._paths.root} failed: {error}; restart the broker after mending it")
            )

    def _try_again(self, error: Exception) -> None:
        """A queue that could not be opened was not synced, and is unchanged: the next turn does all of it or reports it
        again.
        """
        if not self.short:
            logger.error("out_of_descriptors directory=%s error=%s", self._paths.root, error)
        with self._wake:
            self.short = self._urgent = self._mark_wanted = True
            self._wake.notify()

    def _fail(self, failure: StoreError) -> None:
        """The first one counts: both parties may meet it."""
        if self.failure is None:
            self.failure = failure
            self._promises.end(failure)
            logger.error("flush_failed directory=%s error=%s", self._paths.root, failure)
