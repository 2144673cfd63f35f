"""The store as a whole: wiring, and the order of start and stop."""

import errno
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
from dejamq_proto.records.record import Record
from dejamq_proto.signals import Signal

from dejamq_broker.store.files.config import StoreConfig
from dejamq_broker.store.files.directory_lock import DirectoryLock, note_role
from dejamq_broker.store.files.disk import Disk
from dejamq_broker.store.files.errors import StoreError, StoreFull, StoreShort
from dejamq_broker.store.files.file_queue import FileQueue
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.flush import Flusher, Soon
from dejamq_broker.store.index.index import Index, open_index
from dejamq_broker.store.index.query import Query
from dejamq_broker.store.index.trust import KnownLog
from dejamq_broker.store.log.append import Appended, AppendedFew, Appender, AppendFew, AppendRun
from dejamq_broker.store.log.batch import QueueKey, QueueTable
from dejamq_broker.store.log.catch_up import LateReader
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_broker.store.log.next_file import NextFile
from dejamq_broker.store.log.scan import End, LogFiles
from dejamq_broker.store.log.start_point import stored_at
from dejamq_broker.store.questions import StoreReading
from dejamq_broker.store.queues.consume_queues import ConsumeQueues
from dejamq_broker.store.queues.flush import QueueFlush
from dejamq_broker.store.reading import QueueReader
from dejamq_broker.store.recovery import Recovery
from dejamq_broker.store.replica.log_copy import LogCopy
from dejamq_broker.store.reput import Reput
from dejamq_broker.store.retention import Retention, follow_queues

logger = logging.getLogger(__name__)

CLOSE_INDEX_S = 5
"""How long a stop waits for the index to come to the end of the log; the next start does the rest."""


class Surroundings(msgspec.Struct, frozen=True):
    """The facts that a store gets from its opener; see ``MessageStore.open``."""

    clock_ms: Callable[[], int]
    on_arrival: Callable[[list[QueueKey]], None]
    soon: Soon | None
    told_percent: Callable[[], int] | None


@dataclass(frozen=True)
class StoreParts:
    """The parts of an open store, for tests. A store that opens again makes all of them anew, except the lock."""

    lock: DirectoryLock
    disk: Disk
    log: CommitLog
    queues: ConsumeQueues
    index: Index
    reader: QueueReader
    flusher: Flusher
    reput: Reput
    late: LateReader
    retention: Retention


class MessageStore(StoreReading):
    """A store directory, open. Made by ``open``. Appends come from one thread, reads from any."""

    copies_only = False
    """A slave's store takes nothing but its master's log."""

    @classmethod
    def open(
        cls,
        directory: str | Path,
        config: StoreConfig,
        *,
        clock_ms: Callable[[], int],
        on_arrival: Callable[[list[QueueKey]], None] = lambda keys: None,
        soon: Soon | None = None,
        told_percent: Callable[[], int] | None = None,
    ) -> Self:
        """Lock, recover and start.

        ``on_arrival`` is called with the queues that got entries, by the appender or from the reput thread. An appender
        that is an event loop gives its ``call_soon``; it may sync the log itself (``sync_flush_in_event_loop``).
        ``told_percent``: see ``Disk``. Raises ConfigError, StoreLocked, StoreDamaged or StoreError, with the files left
        as they were.
        """
        config.validate()
        paths = StorePaths(directory)
        try:
            lock = DirectoryLock(paths)
        except OSError as error:
            raise StoreError(f"{paths.root} cannot be a store: {error.strerror}; choose another directory") from None
        try:
            return cls(paths, config, lock, Surroundings(clock_ms, on_arrival, soon, told_percent))
        except BaseException:
            lock.release()
            raise

    def __init__(
        self,
        paths: StorePaths,
        config: StoreConfig,
        lock: DirectoryLock,
        around: "Surroundings",
    ) -> None:
        self._paths, self._config, self._lock, self._around = paths, config, lock, around
        self.on_append = Signal[[]]()
        """Told after each append, by the appender: there is more to copy."""
        self._closed = True
        self.reopen()
        self.promoted = note_role(paths, slave=self.copies_only)
        """A master's store that was a slave's until now."""

    def _begin(self, keep_to: End | None) -> None:
        """Make all parts anew, of the files in the directory; ``keep_to`` as in ``Recovery``."""
        paths, config, clock_ms = self._paths, self._config, self._around.clock_ms
        files = FileQueue(paths.commit_log, config.mapped_file_size_commit_log)
        next_file = NextFile(files, marked=lambda: self._flusher.marked, in_loop=self._around.soon is not None)
        self._recover(CommitLog(files, next_file.take), keep_to)
        self._reader = QueueReader(self._log, config, self.recovery.damages)
        queue_flush = QueueFlush(self._queues, paths, config, lambda: self._index.synced_timestamp_ms)
        self._flusher = Flusher(
            self._log, queue_flush, paths, config, next_file, dispatched=lambda: self._reput.position,
            on_flushed=(lambda: self._reput.dispatch()) if config.sync_flush else None,
            soon=self._around.soon if config.sync_flush_in_event_loop else None,
        )  # fmt: skip
        limit = (lambda: self._flusher.flushed) if config.sync_flush else (lambda: self._log.max_offset)
        extent = LogFiles(self._log.min_offset, self._log.max_offset, files.file_size)
        origin = KnownLog(extent.start, extent.end, self.recovery.clean_start, stored_at(files.peek, extent))
        self._index = open_index(paths, config, clock_ms, origin)
        self._late = LateReader(self._log, self._index, limit, lambda: self._flusher.flushed, config)
        self._reput = Reput(
            self._log.max_offset, self._table, [self._queues.dispatch], limit, self._around.on_arrival, self._late.turn
        )
        self._query = Query(self._index, self._reader.record_at, self._late, config.max_msgs_num_batch)
        self._appender = Appender(
            self._log, self._table, paths, config, clock_ms,
            hand_over=self._reput.hand_over, refusal=self._refusal, copies_only=self.copies_only,
        )  # fmt: skip
        self.copy = LogCopy(self._log, self.recovery.damages, self._queues.deleted)
        """Reads of the log for a slave, or for the store of one that compares itself with its master's."""
        followers = [follow_queues(self._queues), self._index.delete_before]
        self._retention = Retention(
            self._log, self._disk, config, clock_ms, followers,
            safe_end=lambda: self._flusher.marked, ask_for_mark=self._flusher.mark_soon,
        )  # fmt: skip
        self._flusher.start()
        next_file.try_to_prepare(self._log.max_offset)  # by whoever opens: the first append finds it
        self._reput.start()
        self._retention.start()
        self._closed = False

    def _recover(self, log: CommitLog, keep_to: End | None) -> None:
        """Until it is done, callers that ask how far queues go get the state of the store before."""
        paths, config, table = self._paths, self._config, QueueTable()
        queues = ConsumeQueues(paths, config.mapped_file_size_consume_queue, table)
        disk = Disk(paths, config, self._around.told_percent)
        log.files.scanning = True
        self.recovery = Recovery(log, queues, paths, config, keep_to).run(self._around.clock_ms)
        log.files.scanning = False
        for key, queue in queues.items():
            table.set_next(key, queue.max_offset)
        disk.reserve(log.files)
        self._table, self._log, self._queues, self._disk = table, log, queues, disk

    @property
    def clean_start(self) -> bool:
        """False when the ``abort`` file of an earlier process was found."""
        return self.recovery.clean_start

    # Writing.

    def append_run(self, run: AppendRun) -> Appended:
        """Store all records of the run, or none; see ``Appender``."""
        appended = self._appender.append_run(run)
        self._after()
        return appended

    def append_few(self, run: AppendFew) -> AppendedFew | None:
        """Store all records of the run, or none, and then answer None: ``append_run`` stores it; see ``Appender``."""
        appended = self._appender.append_few(run)
        if appended is not None:
            self._after()
        return appended

    def put(self, record: Record) -> Appended:
        """Store one record as it is, except for the fields that the broker fills in; see ``Appender``."""
        appended = self._appender.put(record)
        self._after()
        return appended

    def durable(self, log_offset: int) -> "Future[None]":
        """Resolves when everything before ``log_offset`` is on disk. Fails with StoreError when that cannot be."""
        return self._flusher.durable(log_offset)

    def _after(self) -> None:
        self._reput.dispatch()
        self._flusher.appended()
        self.on_append.tell()

    def _refusal(self) -> StoreError | None:
        failure = self._flusher.failure or self._reput.failure
        if failure is None and self._flusher.short:
            return StoreShort(f"too many files are open to write to {self._paths.root}: allow more, or wait")
        if failure is None and self._flusher.full:
            return StoreFull(f"no room in {self._paths.root} for the queues: make room, then send again")
        return failure or (self._disk.refusal() if self._disk.refuses else None)

    def hold_back(self, bound: Callable[[], int]) -> None:
        """Let nobody read what is stored behind this log offset from now on: it is in no queue. Any thread calls it.

        ``look_again`` is called when it moved.
        """
        self._reput.hold_back(bound)

    def look_again(self) -> None:
        """Let everybody read what is not held back any more. Called where appends are."""
        self._reput.dispatch()

    def delete_topic(self, topic: str, *, noted: bool = False) -> None:
        """Forget the topic's queues; its queue offsets begin at 0 again. Called where appends are.

        Its records stay in the log until they expire, and are found by id and key. ``noted``: ``note_deletion`` came
        before, and nothing of the topic was stored since. Raises StoreClosed, StoreError.
        """
        self._check_open()
        if not noted:
            self.note_deletion(topic)
        self._reput.between(lambda: self._queues.delete(topic, self._log.max_offset, self._log.min_offset))

    def note_deletion(self, topic: str) -> None:
        """Have it on disk that the topic is deleted, with all records stored so far. Any thread. Raises StoreError."""
        try:
            self._queues.deleted.note(topic, self._log.max_offset, self._log.min_offset)
        except OSError as error:
            raise StoreError(f"{self._paths.deleted} cannot be written: {error.strerror}; make room") from error

    def given_out(self, topic: str) -> list[int]:
        """The queue offsets that the next records of the topic's queues get. Called where appends are."""
        return self._table.following(topic)

    @property
    def refusal(self) -> StoreError | None:
        """Why nothing may be appended now; None: it may."""
        return self._refusal()

    def clean_soon(self) -> None:
        """Delete expired files at the next looks, whatever the hour (RocketMQ: ``executeDeleteFilesManually``)."""
        self._retention.clean_soon()

    def follow_soon(self) -> None:
        """Let queues and index give up what is before the log's beginning, at the next look (RocketMQ:
        ``cleanExpiredConsumerQueue``).
        """
        self._retention.follow_soon()

    def reopen(self, keep_to: End | None = None) -> None:
        """Make all parts anew when they have ended; the log ends at ``keep_to`` then. Raises as ``open``."""
        if self._closed:
            with self._opening():
                self._begin(keep_to)

    @property
    def is_open(self) -> bool:
        return not self._closed

    def inspect(self) -> StoreParts:
        """The parts as they are now. Only tests call this."""
        return StoreParts(
            self._lock, self._disk, self._log, self._queues, self._index, self._reader, self._flusher, self._reput,
            self._late, self._retention,
        )  # fmt: skip

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = "; make room on its disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise StoreError(f"the store in {self._paths.root} cannot be opened: {error}{hint}") from error

    # Ending.

    def close(self) -> None:
        """Flush, dispatch to the end, mark, remove ``abort``, unlock. May be called twice.

        ``abort`` stays when the queues did not reach the end of the log: the next start looks closer then.
        """
        try:
            self._end()
        finally:
            self._lock.release()

    def _end(self) -> None:
        if not self._appender.close():
            return
        self._closed = True
        self._retention.stop()
        self._flusher.stop()
        self._reput.stop()
        indexed = self._late.finish(CLOSE_INDEX_S)
        self._flusher.finish()
        self._log.files.close()
        failed = self._flusher.failure or self._flusher.full or self._flusher.short or self._reput.failure
        if self._reput.position == self._log.max_offset and indexed and not failed:
            self._paths.abort.unlink(missing_ok=True)
