"""Queues on disk, and the marks that say how far they go. Source: RocketMQ ``FlushConsumeQueueService``.

A mark may say less than the disk has, never more: a start believes it and reads the rest from the log again.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from dejamq_broker.store.files.checkpoint import Checkpoint, DispatchProgress
from dejamq_broker.store.files.config import StoreConfig
from dejamq_broker.store.files.errors import StoreError
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.log.batch import QueueKey
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from dejamq_broker.store.queues.consume_queues import ConsumeQueues

TIMES_APART_MS = 100
"""Store times nearer to one another than this share one entry: checkpoints leave a margin of 3 s anyway."""


class FlushedTimes:
    """The store times that the log had reached at some flushed offsets; the newest may be older than the truth.

    The thread that syncs the log notes; the flush thread asks.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()

    def note(self, log_offset: int, timestamp_ms: int) -> None:
        """Every record before ``log_offset`` is on disk, and none of them is later than this time."""
        with self._lock:
            if len(self._seen) > 1 and timestamp_ms < self._seen[-2][1] + TIMES_APART_MS:
                self._seen.pop()
            self._seen.append((log_offset, timestamp_ms))

    def before(self, log_offset: int) -> int:
        """A time that all records up to it are before ``log_offset``; 0 when none is known. Forgets earlier ones."""
        with self._lock:
            while len(self._seen) > 1 and self._seen[1][0] <= log_offset:
                self._seen.popleft()
            return self._seen[0][1] if self._seen and self._seen[0][0] <= log_offset else 0


class QueueFlush:
    """Writes queues out, syncs them, keeps ``dispatched.json`` and ``checkpoint``.

    Used by one thread at a time, but for ``log_flushed``: the thread that syncs the log calls it, one at a time too.
    """

    def __init__(
        self, queues: ConsumeQueues, paths: StorePaths, config: StoreConfig, indexed_until_ms: Callable[[], int]
    ) -> None:
        """``indexed_until_ms``: up to this store time, index files are full and on disk."""
        self._queues, self._paths, self._config, self._indexed_until_ms = queues, paths, config, indexed_until_ms
        self.checkpoint = Checkpoint.load(paths.checkpoint)
        self.times = FlushedTimes()
        self._counts: dict[QueueKey, tuple[ConsumeQueue, int]] = {}
        self._marked: tuple[int, int, dict[str, dict[int, int]]] = (-1, -1, {})
        self._saved = DispatchProgress.load(paths.progress), Checkpoint.load(paths.checkpoint)
        self._thorough = time.monotonic()

    @property
    def marked(self) -> int:
        """Log offset of the mark on disk, -1 without one: queues on disk are complete up to there.

        Before this process made a mark, it is the mark of the process before, as recovery left it. On a full disk no
        mark can be made until retention has deleted the records that the old one covers.
        """
        saved = self._saved[0]
        return self._marked[0] if self._marked[0] >= 0 or saved is None else saved.log_offset

    def log_flushed(self, log_offset: int, timestamp_ms: int) -> None:
        """The log is on disk up to here, and its last record is of this time."""
        self.checkpoint.log_timestamp_ms = timestamp_ms
        self.times.note(log_offset, timestamp_ms)

    def turn(self, reached: int, flushed: int, *, now: float, between: Callable[[], None]) -> None:
        """Bring queues to disk as far as the settings ask, then mark. ``between`` is called after each sync.

        ``reached``: everything before it is dispatched and flushed. ``flushed``: the log is on disk up to there. Raises
        OSError when there is no space, StoreError when the disk fails.
        """
        self._queues.write_out()
        thorough = (now - self._thorough) * 1000 >= self._config.flush_consume_queue_thorough_interval_ms
        if thorough:
            self._thorough = now
        self._sync(0 if thorough else self._config.flush_consume_queue_least_pages, between)
        self._mark(reached, flushed)

    def finish(self, reached: int, flushed: int) -> None:
        """Everything, whatever the settings: at start and at the end. Raises as ``turn``."""
        self._queues.write_out()
        self._sync(0, lambda: None)
        self._mark(reached, flushed)

    def _sync(self, least_pages: int, between: Callable[[], None]) -> None:
        """A sync that failed has lost what it was to write: trying again would only seem to help."""
        try:
            self._queues.sync(least_pages, between)
        except OSError as error:
            raise StoreError(f"the queues: {error}") from error

    def _mark(self, reached: int, flushed: int) -> None:
        """Save what is new. A queue with entries that are not on disk holds the mark back to the first of them."""
        for queue in self._queues.values():
            first = queue.first_unsynced()
            if first is not None:
                reached = min(reached, first)
        firsts = self._firsts()
        if (reached, flushed, firsts) == self._marked:
            return
        progress = DispatchProgress(reached, self._counts_before(reached), flushed, firsts)
        self.checkpoint.queue_timestamp_ms = self.times.before(reached)
        self.checkpoint.index_timestamp_ms = self._indexed_until_ms()
        if progress != self._saved[0]:
            progress.save(self._paths.progress)
        checkpoint = msgspec.structs.replace(self.checkpoint)
        if checkpoint != self._saved[1]:
            checkpoint.save(self._paths.checkpoint)
        self._saved = progress, checkpoint
        self._marked = reached, flushed, firsts

    def _firsts(self) -> dict[str, dict[int, int]]:
        firsts: dict[str, dict[int, int]] = {}
        for (topic, queue_id), queue in self._queues.items():
            firsts.setdefault(topic, {})[queue_id] = queue.min_offset
        return firsts

    def _counts_before(self, log_offset: int) -> dict[str, dict[int, int]]:
        counts: dict[str, dict[int, int]] = {}
        for key, queue in self._queues.items():
            known, since = self._counts.get(key, (queue, 0))
            count = min(queue.synced, queue.count_before(log_offset, since=since if known is queue else 0))
            counts.setdefault(key[0], {})[key[1]] = count
            self._counts[key] = queue, count
        return counts
