"""Questions to an open store, by any thread: its messages, its queues, how far each part of it is."""

from collections.abc import Iterator

import numpy as np

from dejamq_broker.store.files.disk import Disk, DiskUse
from dejamq_broker.store.files.errors import StoreClosed, readable
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.flush import Flusher
from dejamq_broker.store.index.index import Index
from dejamq_broker.store.index.query import KeyQuery, Query, QueryResult
from dejamq_broker.store.log.batch import QueueKey
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_broker.store.log.scan import FoundRecords, LogFiles, walk
from dejamq_broker.store.log.start_point import stored_at
from dejamq_broker.store.queues.consume_queues import ConsumeQueues
from dejamq_broker.store.reading import QueueReader, ReadLimits, ReadResult
from dejamq_broker.store.reput import Reput


class StoreReading:
    """The reading half of ``MessageStore``, which makes the parts."""

    _paths: StorePaths
    _closed: bool
    _log: CommitLog
    _queues: ConsumeQueues
    _disk: Disk
    _reader: QueueReader
    _query: Query
    _index: Index
    _flusher: Flusher
    _reput: Reput

    @readable
    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 262_144,
        tags: frozenset[int] | None = None,
    ) -> ReadResult:
        """Messages of one queue from ``queue_offset`` on; ``tags`` are hash codes. Raises StoreClosed."""
        self._check_open()
        return self._reader.read(
            self._queues.get((topic, queue_id)), queue_offset, ReadLimits(max_messages, max_bytes, tags)
        )

    @readable
    def record_at(self, log_offset: int) -> bytes | None:
        """The record that begins at this log offset, None when none does."""
        self._check_open()
        return self._reader.record_at(log_offset)

    def query(self, wanted: KeyQuery) -> QueryResult:
        """Messages by key or unique key; brings the index up to date first, so it may take long. See ``Query``."""
        self._check_open()
        return self._query.by_key(wanted)

    @readable
    def record_by_id(self, message_id: str) -> bytes | None:
        """The record that an offset message id names; see ``Query``."""
        self._check_open()
        return self._query.by_id(message_id)

    @property
    def indexed(self) -> int:
        """Every record before this log offset is found by its keys without more ado."""
        return self._index.position

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.get((topic, queue_id))
        return queue.min_offset if queue else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that the next dispatched message gets; 0 for an unknown queue."""
        queue = self._queues.get((topic, queue_id))
        return queue.max_offset if queue else 0

    def queues(self) -> list[QueueKey]:
        return [key for key, _ in self._queues.items()]

    def tags_code_at(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """The tags code of a queue entry (the delivery time in the schedule topic); None when there is no entry."""
        entry = self._entry(topic, queue_id, queue_offset)
        return int(entry["tags_code"]) if entry is not None else None

    @readable
    def queue_entries(self, topic: str, queue_id: int, queue_offset: int, most: int) -> list[tuple[int, int, int]]:
        """Of a queue from ``queue_offset`` on: log offset, size and tags code of each entry; none outside the queue."""
        self._check_open()
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return []
        entries = queue.entries(queue_offset, min(max(most, 0), queue.max_offset - queue_offset))
        return [(int(one["log_offset"]), int(one["size"]), int(one["tags_code"])) for one in entries]

    @readable
    def stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a queue's message; 0 without such a message (any more)."""
        entry = self._entry(topic, queue_id, queue_offset)
        return 0 if entry is None else self._reader.store_timestamp_ms(int(entry["log_offset"]), int(entry["size"]))

    @readable
    def search_offset(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first queue offset stored at or after the time; ``upper``: the last one at or before it."""
        self._check_open()
        queue = self._queues.get((topic, queue_id))
        return self._reader.search(queue, timestamp_ms, upper=upper) if queue else 0

    def entry_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether the message is within 40 % of RAM of the log end (RocketMQ: ``checkInMemByConsumeOffset``)."""
        entry = self._entry(topic, queue_id, queue_offset)
        return entry is not None and self._reader.in_memory(int(entry["log_offset"]))

    def in_memory(self, log_offset: int) -> bool:
        """Whether what lies there is within ``access_message_in_memory_max_ratio`` of RAM of the log's end."""
        return self._reader.in_memory(log_offset)

    def records_since(self, stored_ms: int, log_offset: int) -> Iterator[FoundRecords]:
        """The log's records from this log offset on, without the files before the one where this time (ms) is.

        Bodies are not checked. Raises StoreClosed.
        """
        self._check_open()
        read = self._log.files.read
        extent = LogFiles(self._log.min_offset, self._log.max_offset, self._log.files.file_size)
        begin = max(log_offset, extent.start)
        first_ms = stored_at(read, extent)
        for start in reversed(range(extent.start, extent.end, extent.file_size)):
            if start <= begin or (first_ms(start) or stored_ms) < stored_ms:
                begin = max(start, begin)
                break
        for piece in walk(read, extent, begin, check_crc=False):
            if isinstance(piece, FoundRecords):
                yield piece

    def is_alive(self, topic: str, log_offset: int) -> bool:
        """Whether a record of the topic at this log offset is of the topic's present life."""
        return log_offset >= self._queues.deleted.end_of_life(topic)

    @property
    def disk_use(self) -> DiskUse:
        """How full the disks of log and queues were at the last look, in %; zeros before the first."""
        return self._disk.use

    @property
    def log_min(self) -> int:
        return self._log.min_offset

    @property
    def log_max(self) -> int:
        return self._log.max_offset

    @property
    def flushed(self) -> int:
        """Everything before this log offset is on disk."""
        return self._flusher.flushed

    @property
    def dispatched(self) -> int:
        """Everything before this log offset is in its queue."""
        return self._reput.position

    @readable
    def _entry(self, topic: str, queue_id: int, queue_offset: int) -> np.void | None:
        self._check_open()
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return None
        entries = queue.entries(queue_offset, 1)
        return entries[0] if len(entries) else None

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store in {self._paths.root} is closed")
