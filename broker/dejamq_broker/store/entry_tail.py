"""The newest entries of a queue, in memory: an array that is replaced by a larger one when it is full."""

import numpy as np

from dejamq_broker.store.batch import Single
from dejamq_broker.store.config import QUEUE_ENTRY_SIZE
from dejamq_broker.store.entry_files import ENTRY, ENTRY_FIELDS, PLAIN_ENTRY, Entries

FIRST_ROOM = 64


class EntryTail:
    """Room for entries from the queue offset ``start`` on. Which of them are there, the queue says.

    One party writes, any thread reads what is published: a reader keeps the tail that it took, for nothing is ever
    written over.
    """

    __slots__ = ("_bytes", "entries", "start")

    def __init__(self, start: int, room: int = 0) -> None:
        self.start, self.entries = start, np.empty(room, ENTRY)
        self._bytes = self.entries.view(np.uint8).data  # far quicker to write one entry to

    @property
    def room_end(self) -> int:
        """The first queue offset that has no room here."""
        return self.start + len(self.entries)

    def between(self, first: int, after: int) -> Entries:
        """A view of the entries of these queue offsets."""
        return self.entries[first - self.start : after - self.start]

    def few(self, first: int, after: int) -> list[tuple[int, int, int]]:
        """Log offset, size and tags code of the entries of these queue offsets, in plain numbers."""
        start, end = (first - self.start) * QUEUE_ENTRY_SIZE, (after - self.start) * QUEUE_ENTRY_SIZE
        return list(ENTRY_FIELDS.iter_unpack(self._bytes[start:end]))

    def put(self, queue_offset: int, entries: Entries) -> None:
        """Write entries into room that is there."""
        at = queue_offset - self.start
        self.entries.view(PLAIN_ENTRY)[at : at + len(entries)] = entries.view(PLAIN_ENTRY)

    def put_one(self, record: Single) -> bool:
        """Write the entry of one record; False where there is no room."""
        at = (record.queue_offset - self.start) * QUEUE_ENTRY_SIZE
        if at >= len(self._bytes):
            return False
        ENTRY_FIELDS.pack_into(self._bytes, at, record.log_offset, record.size, record.tags_code)
        return True

    def larger(self, start: int, kept_end: int, end: int) -> "EntryTail":
        """Another tail with room past ``end`` that has the entries from ``start`` to ``kept_end``."""
        tail = EntryTail(start, max(FIRST_ROOM, 2 * (end - start)))
        tail.entries[: kept_end - start] = self.between(start, kept_end)
        return tail
