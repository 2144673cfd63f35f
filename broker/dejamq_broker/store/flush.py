"""What is on disk: one thread, and a promise for those who must know. Source: RocketMQ ``FlushManager``.

The log is flushed for whoever waits (group commit: all who came during one ``fdatasync`` share the next) or by the
intervals of ASYNC_FLUSH. The same thread writes out the consume queues, keeps the marks, and gets the next file ready.
"""

import errno
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from dejamq_broker.store.checkpoint import Checkpoint, Progress
from dejamq_broker.store.commit_log import CommitLog
from dejamq_broker.store.config import StoreConfig
from dejamq_broker.store.consume_queues import ConsumeQueues
from dejamq_broker.store.errors import StoreError
from dejamq_broker.store.next_file import WARM_INTERVAL_S, NextFile
from dejamq_broker.store.paths import StorePaths

logger = logging.getLogger(__name__)

PAGE = 4096


class Flusher:
    """Owns the flush thread. ``failure`` is the error that ended it; after a failed flush nothing is promised again."""

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, paths: StorePaths, config: StoreConfig, next_file: NextFile
    ) -> None:
        self._log, self._queues, self._paths, self._config = log, queues, paths, config
        self._next_file = next_file
        self.flushed = log.max_offset
        self.failure: StoreError | None = None
        self.full = False
        self.dispatched: Callable[[], int] = lambda: 0
        self.on_flushed: Callable[[], None] = lambda: None
        self._checkpoint = Checkpoint.load(paths.checkpoint)
        self._marked = -1
        self._wake = threading.Condition()
        self._waiting: list[tuple[int, Future[None]]] = []
        self._urgent = self._stopping = False
        now = time.monotonic()
        self._log_turn = self._log_flush = self._queue_turn = now
        self._thread = threading.Thread(target=self._run, name="dejamq-flush")

    def start(self) -> None:
        self._thread.start()

    def durable(self, log_offset: int) -> Future[None]:
        """Resolves when everything before ``log_offset`` is on disk; fails with StoreError. Any thread."""
        future: Future[None] = Future()
        with self._wake:
            if self.failure:
                future.set_exception(self.failure)
            elif log_offset <= self.flushed:
                future.set_result(None)
            else:
                self._waiting.append((log_offset, future))
                self._urgent = True
                self._wake.notify()
        return future

    def hurry(self) -> None:
        """Flush the log now, without a promise: what SYNC_FLUSH does for those who do not wait."""
        with self._wake:
            self._urgent = True
            self._wake.notify()

    def stop(self) -> None:
        """Flush log and queues to the end, mark it, and end the thread. The caller has stopped appends and reput."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._next_file.discard()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wait()
                self._turn(time.monotonic())
            self._flush_log()
            self._keep_queues()
        except Exception as error:
            # kept, and raised by the next append; whoever waits for the disk must hear of it too
            self._fail(
                StoreError(f"the disk of {self._paths.root} failed: {error}; restart the broker after mending it")
            )

    def _wait(self) -> None:
        warming = self._next_file.warm_step()
        with self._wake:
            if not self._urgent and not self._stopping:
                self._wake.wait(WARM_INTERVAL_S if warming else self._pause_s())

    def _pause_s(self) -> float:
        shortest = min(self._config.flush_interval_commit_log_ms, self._config.flush_interval_consume_queue_ms)
        return shortest / 1000

    def _turn(self, now: float) -> None:
        with self._wake:
            urgent, self._urgent = self._urgent, False
        if urgent or self._log_is_due(now):
            self._flush_log()
            self._log_flush = now
        self._prepare_next()
        if (now - self._queue_turn) * 1000 >= self._config.flush_interval_consume_queue_ms:
            self._queue_turn = now
            self._keep_queues()

    def _log_is_due(self, now: float) -> bool:
        config = self._config
        if (now - self._log_turn) * 1000 < config.flush_interval_commit_log_ms:
            return False
        self._log_turn = now
        pages = self._log.max_offset // PAGE - self.flushed // PAGE
        thorough = (now - self._log_flush) * 1000 >= config.flush_commit_log_thorough_interval_ms
        return pages >= config.flush_commit_log_least_pages or thorough

    def _prepare_next(self) -> None:
        try:
            self._next_file.prepare(self._log.max_offset)
        except OSError as error:
            # an append that needs the file will try again, and refuse if there is still no room
            logger.warning("next_file_not_prepared directory=%s error=%s", self._paths.commit_log, error)

    def _flush_log(self) -> None:
        end, timestamp_ms = self._log.max_offset, self._log.last_store_timestamp_ms
        if end > self.flushed:
            for file in self._log.files.files:
                if file.end > self.flushed and file.start < end:
                    file.sync()
            self._checkpoint.log_timestamp_ms = timestamp_ms
            self.flushed = end
            self.on_flushed()
        self._resolve()

    def _resolve(self) -> None:
        with self._wake:
            done = [future for log_offset, future in self._waiting if log_offset <= self.flushed]
            self._waiting = [waiting for waiting in self._waiting if waiting[0] > self.flushed]
            self._urgent = self._urgent or any(log_offset <= self._log.max_offset for log_offset, _ in self._waiting)
        for future in done:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def _keep_queues(self) -> None:
        """A disk without room for queues is not broken: appends are refused until a later turn finds room."""
        try:
            self._flush_queues()
            self.full = False
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            logger.warning("disk_full directory=%s", self._paths.root)
            self.full = True

    def _flush_queues(self) -> None:
        """Write the queues out, sync them, and mark how far they are complete; who waits for the log goes between."""
        reached = min(self.dispatched(), self.flushed)
        self._queues.write_out()
        self._queues.sync(lambda: self._flush_log() if self._urgent else None)
        if reached == self._marked:
            return
        progress = Progress(reached, {})
        for (topic, queue_id), queue in self._queues.items():
            progress.queues.setdefault(topic, {})[queue_id] = queue.written
        progress.save(self._paths.progress)
        self._checkpoint.queue_timestamp_ms = self._checkpoint.log_timestamp_ms
        self._checkpoint.save(self._paths.checkpoint)
        self._marked = reached

    def _fail(self, failure: StoreError) -> None:
        logger.error("flush_failed directory=%s error=%s", self._paths.root, failure)
        with self._wake:
            self.failure = failure
            waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(failure)
