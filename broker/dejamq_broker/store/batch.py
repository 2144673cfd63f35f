"""Records on their way into queues: one array a field, one element a record; a record alone has plain numbers."""

import msgspec
import numpy as np
import numpy.typing as npt
from dejamq_proto.run import every

Ints = npt.NDArray[np.int64]
QueueKey = tuple[str, int]

NOT_QUEUED = -1

Members = slice | Ints
"""Which records of a run, in the order of the log: what indexes each of its arrays."""
Groups = list[tuple[int, Members]]
"""The records of each queue by its number. Records that no group has get no queue entry."""


def grouped(queue_numbers: Ints) -> Groups:
    """The records of each queue; where the number is NOT_QUEUED, the record is in no group."""
    first = int(queue_numbers[0])
    if every(queue_numbers == first):
        return [(first, slice(0, len(queue_numbers)))] if first >= 0 else []
    # numpy sorts short integers by radix, several times as fast
    short = len(queue_numbers) > 256 and int(queue_numbers.max()) < 1 << 15
    order = (queue_numbers.astype(np.int16) if short else queue_numbers).argsort(kind="stable")
    ordered = queue_numbers[order]
    starts = [0, *[edge + 1 for edge in (ordered[1:] != ordered[:-1]).nonzero()[0].tolist()]]
    groups: Groups = [
        (ordered.item(start), order[start:end]) for start, end in zip(starts, [*starts[1:], len(order)], strict=True)
    ]
    return groups if groups[0][0] >= 0 else groups[1:]


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Records that follow one another in the log."""

    log_offsets: Ints
    sizes: Ints
    tags_codes: Ints
    queue_offsets: Ints
    groups: Groups
    end_log_offset: int
    store_timestamp_ms: int

    @property
    def queue_numbers(self) -> list[int]:
        """The queues that get entries."""
        return [number for number, _ in self.groups]


class Single(msgspec.Struct, frozen=True, gc=False):
    """A batch of one record, in plain numbers: calling numpy would cost many times the work itself."""

    log_offset: int
    size: int
    tags_code: int
    queue_offset: int
    queue_number: int
    end_log_offset: int
    store_timestamp_ms: int

    @property
    def queue_numbers(self) -> list[int]:
        """The queue that gets an entry, if one does."""
        return [self.queue_number] if self.queue_number >= 0 else []


class QueueTable:
    """All queues by number, and the next queue offset of each. Source: RocketMQ's topic-queue table.

    Only the appending thread assigns offsets; numbers are never taken back.
    """

    def __init__(self) -> None:
        self.numbers: dict[QueueKey, int] = {}
        self.keys: list[QueueKey] = []
        self.next: list[int] = []
        """By queue number: the queue offset that the next record gets."""

    def number_of(self, key: QueueKey) -> int:
        """The queue's number; a new queue gets the next one."""
        number = self.numbers.get(key)
        if number is None:
            number = len(self.keys)
            self.next.append(0)
            self.keys.append(key)
            self.numbers[key] = number
        return number

    def set_next(self, key: QueueKey, queue_offset: int) -> None:
        self.next[self.number_of(key)] = queue_offset

    def peek(self, groups: Groups, count: int) -> Ints:
        """The queue offsets that ``count`` records get when they are stored; those in no group get 0."""
        if len(groups) == 1 and isinstance(groups[0][1], slice):
            start = self.next[groups[0][0]]
            return np.arange(start, start + count)
        offsets = np.zeros(count, np.int64)
        for number, members in groups:
            start = self.next[number]
            offsets[members] = np.arange(start, start + _length(members))
        return offsets

    def advance(self, groups: Groups) -> None:
        """The records are in the log: their queue offsets are taken."""
        for number, members in groups:
            self.next[number] += _length(members)


def _length(members: Members) -> int:
    if isinstance(members, slice):
        return int(members.stop) - int(members.start)
    return len(members)
