"""Records on their way into queues: one array a field, one element a record; a record alone has plain numbers."""

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt
from dejamq_proto.records.run import every

Ints = npt.NDArray[np.int64]
QueueKey = tuple[str, int]

NOT_QUEUED = -1

Members = slice | Ints
"""Which records of a run, in the order of the log: what indexes each of its arrays."""


class Groups(msgspec.Struct, frozen=True, gc=False):
    """The records of each queue; those that no group has get no queue entry.

    ``order`` puts the records of a run group by group (None: they are so), in log order within each. ``numbers`` are
    the numbers of the queues. ``edges`` are the places where the records of each begin in that order, and at last the
    end of all.
    """

    order: Ints | None
    numbers: list[int]
    edges: list[int]

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[tuple[int, Members]]:
        """The number of each queue, and its records."""
        for number, first, after in self.spans():
            yield number, slice(first, after) if self.order is None else self.order[first:after]

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """The number of each queue, and where its records begin and end in the order."""
        return zip(self.numbers, self.edges, self.edges[1:], strict=False)


NO_GROUPS = Groups(None, [], [0])


def one_group(number: int, count: int) -> Groups:
    """All records are of one queue."""
    return Groups(None, [number], [0, count])


def grouped(queue_numbers: Ints) -> Groups:
    """The records of each queue; where the number is NOT_QUEUED, the record is in no group."""
    count = len(queue_numbers)
    first = queue_numbers.item(0)
    if every(queue_numbers == first):
        return one_group(first, count) if first >= 0 else NO_GROUPS
    # numpy sorts short integers by radix, several times as fast
    short = count > 256 and int(queue_numbers.max()) < 1 << 15
    order = (queue_numbers.astype(np.int16) if short else queue_numbers).argsort(kind="stable")
    ordered = queue_numbers[order]
    edges = [0, *((ordered[1:] != ordered[:-1]).nonzero()[0] + 1).tolist(), count]
    numbers = ordered[edges[:-1]].tolist()
    return Groups(order, numbers, edges) if numbers[0] >= 0 else Groups(order, numbers[1:], edges[1:])


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
        return self.groups.numbers


class Single(msgspec.Struct, frozen=True, gc=False):
    """A batch of one record, in plain numbers: a call of numpy would cost many times the work itself."""

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

    def begin_again(self, topic: str) -> list[int]:
        """Queue offsets of the topic begin at 0 again, for it was deleted; the numbers of its queues."""
        numbers = [number for (name, _), number in self.numbers.items() if name == topic]
        for number in numbers:
            self.next[number] = 0
        return numbers

    def following(self, topic: str) -> list[int]:
        """The queue offsets that the next records of the topic's queues get."""
        return [self.next[number] for (name, _), number in self.numbers.items() if name == topic]

    def peek(self, groups: Groups, count: int) -> Ints:
        """The queue offsets that ``count`` records get when they are stored; those in no group get 0."""
        following = self.next
        if len(groups) == 1 and groups.order is None:
            start = following[groups.numbers[0]]
            return np.arange(start, start + count)
        offsets = np.zeros(count, np.int64)
        if len(groups):
            # of all queues at once: a run over hundreds of topics has a record or two of each
            edges = np.array(groups.edges)
            moved = np.array([following[number] for number in groups.numbers]) - edges[:-1]
            ordered = np.arange(edges[0], edges[-1]) + np.repeat(moved, edges[1:] - edges[:-1])
            offsets[slice(None) if groups.order is None else groups.order[edges[0] :]] = ordered
        return offsets

    def advance(self, groups: Groups) -> None:
        """The records are in the log: their queue offsets are taken."""
        following = self.next
        for number, first, after in groups.spans():
            following[number] += after - first
