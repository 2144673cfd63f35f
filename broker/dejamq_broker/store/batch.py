"""Records on their way into queues: one array a field, one element a record."""

import msgspec
import numpy as np
import numpy.typing as npt
from dejamq_proto.run import every

Ints = npt.NDArray[np.int64]
QueueKey = tuple[str, int]

NOT_QUEUED = -1


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Records that follow one another in the log. Where a queue number is NOT_QUEUED, the record gets no entry."""

    log_offsets: Ints
    sizes: Ints
    tags_codes: Ints
    queue_numbers: Ints
    queue_offsets: Ints
    end_log_offset: int
    store_timestamp_ms: int

    @classmethod
    def joined(cls, batches: "list[Batch]") -> "Batch":
        if len(batches) == 1:
            return batches[0]
        return cls(
            np.concatenate([batch.log_offsets for batch in batches]),
            np.concatenate([batch.sizes for batch in batches]),
            np.concatenate([batch.tags_codes for batch in batches]),
            np.concatenate([batch.queue_numbers for batch in batches]),
            np.concatenate([batch.queue_offsets for batch in batches]),
            batches[-1].end_log_offset,
            batches[-1].store_timestamp_ms,
        )


class QueueTable:
    """All queues by number, and the next queue offset of each. Source: RocketMQ's topic-queue table.

    Only the appending thread assigns offsets; numbers are never taken back.
    """

    def __init__(self) -> None:
        self.numbers: dict[QueueKey, int] = {}
        self.keys: list[QueueKey] = []
        self._next = np.zeros(16, np.int64)

    def number_of(self, key: QueueKey) -> int:
        """The queue's number; a new queue gets the next one."""
        number = self.numbers.get(key)
        if number is None:
            number = len(self.keys)
            if number == len(self._next):
                self._next = np.concatenate((self._next, np.zeros(number, np.int64)))
            self.keys.append(key)
            self.numbers[key] = number
        return number

    def set_next(self, key: QueueKey, queue_offset: int) -> None:
        number = self.number_of(key)
        self._next[number] = queue_offset

    def peek(self, queue_numbers: Ints) -> Ints:
        """The queue offsets that these records get when they are stored, in order; NOT_QUEUED ones get 0."""
        first = int(queue_numbers[0])
        if first >= 0 and every(queue_numbers == first):
            return np.arange(len(queue_numbers)) + int(self._next[first])
        order = np.argsort(queue_numbers, kind="stable")
        ordered = queue_numbers[order]
        group_starts = np.searchsorted(ordered, ordered)
        offsets = np.empty(len(ordered), np.int64)
        offsets[order] = self._next[ordered] + np.arange(len(ordered)) - group_starts
        return np.where(queue_numbers < 0, 0, offsets)

    def advance(self, queue_numbers: Ints) -> None:
        """The records are in the log: their queue offsets are taken."""
        first = int(queue_numbers[0])
        if first >= 0 and every(queue_numbers == first):
            self._next[first] += len(queue_numbers)
            return
        counts = np.bincount(queue_numbers[queue_numbers >= 0], minlength=len(self._next))
        self._next += counts
