"""All consume queues of a store, and the dispatcher that feeds them. Source: RocketMQ ``ConsumeQueueStore``."""

from collections.abc import Callable, Iterator

import numpy as np

from dejamq_broker.store.batch import Batch, QueueKey, QueueTable, Single
from dejamq_broker.store.checkpoint import Progress
from dejamq_broker.store.consume_queue import ENTRY, ConsumeQueue
from dejamq_broker.store.paths import StorePaths


class ConsumeQueues:
    """Queues by (topic, queue id). Reput makes and feeds them, the flush thread writes them out."""

    def __init__(self, paths: StorePaths, file_size: int, table: QueueTable) -> None:
        self._paths, self._file_size, self._table = paths, file_size, table
        self._queues: dict[QueueKey, ConsumeQueue] = {}

    def load(self, progress: Progress | None) -> None:
        """Read the folders TOPIC/QUEUE_ID. Raises StoreDamaged for a file in them that is none of ours."""
        folder = self._paths.consume_queues
        topics = sorted(folder.iterdir()) if folder.is_dir() else []
        for topic in topics:
            for queue in sorted(topic.iterdir()) if topic.is_dir() else []:
                if queue.is_dir() and queue.name.isdigit():
                    synced = progress.queues.get(topic.name, {}).get(int(queue.name), 0) if progress else None
                    self._make((topic.name, int(queue.name))).load(synced)

    def get(self, key: QueueKey) -> ConsumeQueue | None:
        return self._queues.get(key)

    def values(self) -> list[ConsumeQueue]:
        return list(self._queues.values())

    def items(self) -> Iterator[tuple[QueueKey, ConsumeQueue]]:
        """A snapshot: other threads may add queues meanwhile."""
        return iter(list(self._queues.items()))

    def dispatch(self, batch: Batch | Single) -> None:
        """Give every queue its entries, one append a queue."""
        if isinstance(batch, Single):
            if batch.queue_number >= 0:
                entry = (batch.log_offset, batch.size, batch.tags_code)
                self._numbered(batch.queue_number).append_one(batch.queue_offset, entry)
            return
        entries = np.empty(len(batch.sizes), ENTRY)
        entries["log_offset"], entries["size"], entries["tags_code"] = batch.log_offsets, batch.sizes, batch.tags_codes
        ends = batch.log_offsets + batch.sizes
        for number, members in batch.groups:
            self._numbered(number).append(batch.queue_offsets[members], entries[members], ends[members])

    def write_out(self) -> None:
        """Bring all files up to date. Raises OSError."""
        for queue in self.values():
            queue.write_out()

    def sync(self, least_pages: int, between: Callable[[], None]) -> None:
        """Put on disk the queues that have so many dirty pages (0: all), calling ``between`` after each.

        Raises OSError.
        """
        for queue in self.values():
            if queue.is_due(least_pages):
                queue.sync()
                between()

    def _numbered(self, number: int) -> ConsumeQueue:
        key = self._table.keys[number]
        return self._queues.get(key) or self._make(key)

    def _make(self, key: QueueKey) -> ConsumeQueue:
        queue = self._queues[key] = ConsumeQueue(self._paths.consume_queue(*key), self._file_size)
        return queue
