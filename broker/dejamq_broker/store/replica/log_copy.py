"""A slave's questions to its master's log, and to its own before it follows: bytes, digests, places between records.

Reads do not use the mapping where they would have to wait for the disk. A page that is not in memory would stop the
whole process, and a slave that is far behind asks only for such pages.
"""

from collections.abc import Sequence

import numpy as np
from isal import isal_zlib

from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_broker.store.log.scan import Damage, FoundRecords, LogFiles, walk
from dejamq_broker.store.queues.deleted import DeletedTopics

RECENT_BYTES = 4 << 20
"""The bytes that were appended last are in memory, and read without asking the disk."""
PIECE = 1 << 20


class LogCopy:
    """Reads of one log. Any thread; bytes below the end of the log never change."""

    def __init__(self, log: CommitLog, damages: Sequence[Damage], deleted: DeletedTopics) -> None:
        self._log, self._damages, self._deleted = log, damages, deleted

    @property
    def file_size(self) -> int:
        return self._log.files.file_size

    @property
    def last_timestamp_ms(self) -> int:
        """Store time of the last record; 0 in an empty log."""
        return self._log.last_store_timestamp_ms

    def is_recent(self, log_offset: int) -> bool:
        """Whether the bytes there need no disk, so that ``recent`` may be asked for them on an event loop."""
        return self._log.max_offset - log_offset <= RECENT_BYTES

    def recent(self, log_offset: int, most: int) -> memoryview:
        """Bytes of one file from this offset on, without a copy; none at the end. Let go of it soon."""
        return self._log.view(log_offset, most)

    def from_disk(self, log_offset: int, most: int) -> bytes:
        """As ``recent``, read from the file while other threads run. Raises OSError."""
        file = self._log.files.at(log_offset)
        most = min(most, self._log.max_offset - log_offset)
        return file.peek(log_offset - file.start, most) if file is not None and most > 0 else b""

    def deletions(self, log_offset: int) -> tuple[list[str], int]:
        """The topics that were deleted when the log ended here, and how many bytes on the next ones were."""
        ends = [(self._deleted.end_of_life(topic), topic) for topic in self._deleted]
        here = [topic for end, topic in ends if end == log_offset]
        return here, min((end - log_offset for end, _ in ends if end > log_offset), default=self.file_size)

    def digest(self, log_offset: int, size: int) -> tuple[int, int]:
        """How many bytes there are from this offset on, at most ``size``, and their CRC-32. Raises OSError."""
        crc, at, end = 0, log_offset, log_offset + size
        while at < end:
            data = self.from_disk(at, min(PIECE, end - at))
            if not data:
                break
            crc = isal_zlib.crc32(data, crc)
            at += len(data)
        return at - log_offset, crc

    def boundary(self, log_offset: int) -> int:
        """The last place at or before this offset where a record ends, or the file begins. Raises OSError."""
        file_size, log = self.file_size, self._log
        start = max(log_offset - log_offset % file_size, log.min_offset)
        extent = LogFiles(start, min(log_offset, log.max_offset), file_size)

        def read(at: int, most: int) -> bytes:
            return self.from_disk(at, min(most, extent.end - at))

        found = start
        for piece in walk(read, extent, start, check_crc=False):
            if isinstance(piece, FoundRecords):
                ends = piece.log_offset + np.cumsum(piece.sizes)
                found = int(ends[-1])
            elif isinstance(piece, Damage):
                found = piece.end
        return found

    def damages_from(self, log_offset: int, suspect: int = 0) -> list[Damage]:
        """The known ranges without records from this offset on; ``suspect`` is looked at now. Raises OSError."""
        found = [damage for damage in self._damages if damage.end > log_offset]
        if suspect > log_offset or (suspect and not any(d.log_offset <= suspect < d.end for d in found)):
            extent = LogFiles(self._log.min_offset, self._log.max_offset, self.file_size)
            first = next(walk(self.from_disk, extent, suspect))
            found += [first] if isinstance(first, Damage) else []
        return found
