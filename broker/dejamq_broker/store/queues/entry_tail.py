"""The newest entries of a queue, in memory: an array that is replaced by a larger one when it is full."""

import numpy as np

from dejamq_broker.store.files.config import QUEUE_ENTRY_SIZE
from dejamq_broker.store.log.batch import Single
from dejamq_broker.store.queues.entry_files import ENTRY, ENTRY_FIELDS, Entries

FIRST_ROOM = 64
FEW = 128
"""Entries that are read in plain numbers; of more, numpy's price is less than theirs.

It was measured with the whole way from a pull to its answer. Others have the caches meanwhile, and numpy's code is
large: it then has to be fetched.
"""


class EntryTail:
    """Room for entries from the queue offset ``start`` on. The queue says which of them are there.

    One party writes, any thread reads what is published: a reader keeps the tail that it took, for nothing is ever
    written over.
    """

    __slots__ = ("_bytes", "entries", "room_end", "start")

    def __init__(self, start: int, room: int = 0) -> None:
        self.start, self.entries = start, np.empty(room, ENTRY) if room else NOTHING
        self._bytes = rows_of(self.entries) if room else NO_ROWS
        self.room_end = start + room
        """The first queue offset for which there is no space here."""

    def between(self, first: int, after: int) -> Entries:
        """A view of the entries of these queue offsets."""
        return self.entries[first - self.start : after - self.start]

    def few(self, first: int, after: int) -> list[tuple[int, int, int]]:
        """Log offset, size and tags code of the entries of these queue offsets, in plain numbers."""
        start, end = (first - self.start) * QUEUE_ENTRY_SIZE, (after - self.start) * QUEUE_ENTRY_SIZE
        return list(ENTRY_FIELDS.iter_unpack(self._bytes[start:end]))

    def put(self, queue_offset: int, rows: memoryview) -> None:
        """Write entries, as bytes, into space that is there."""
        at = (queue_offset - self.start) * QUEUE_ENTRY_SIZE
        self._bytes[at : at + len(rows)] = rows

    def put_one(self, record: Single) -> bool:
        """Write the entry of one record; False without space."""
        at = (record.queue_offset - self.start) * QUEUE_ENTRY_SIZE
        if at >= len(self._bytes):
            return False
        ENTRY_FIELDS.pack_into(self._bytes, at, record.log_offset, record.size, record.tags_code)
        return True

    def larger(self, start: int, kept_end: int, end: int) -> "EntryTail":
        """Another tail with space past ``end`` that has the entries from ``start`` to ``kept_end``."""
        tail = EntryTail(start, max(FIRST_ROOM, 2 * (end - start)))
        tail.put(start, rows_of(self.between(start, kept_end)))
        return tail


def rows_of(entries: Entries) -> memoryview:
    """Entries as bytes: far quicker to copy than field by field, and to write one entry to."""
    return entries.view(np.uint8).data


NOTHING = np.empty(0, ENTRY)
NO_ROWS = rows_of(NOTHING)
"""Of every queue to which nothing was added since the start: thousands are mostly so."""
