"""How a slave's log grows: by bytes of its master's, checked as they come. Source: RocketMQ ``DefaultHAClient``.

Only whole records enter the log, so its end is one that recovery would find and that a master can go on from. A record
whose end has not come yet is held in memory: it is lost with the connection, and sent again with the next one.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from dejamq_proto.records.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, OVERHEAD, PAIR, BadRecord, Record, decode

from dejamq_broker.store.log.batch import NO_GROUPS, Batch
from dejamq_broker.store.log.scan import FoundRecords, LogFiles, step

LARGEST = 64 << 20
"""No record is larger. A size that says so is no size, and nobody waits in memory for that number of bytes."""
FEW = 10
"""Fewer records of one size are quicker one by one. Less than ``small_runs.FEW``: one alone is wholly decoded."""
NO_BYTES = memoryview(b"")
NO_NUMBERS = np.empty(0, np.int64)

DamagedRange = tuple[int, int]
"""From which log offset to which the master's log is known to hold no records."""


class BadCopy(ValueError):
    """The bytes that came are neither a record nor the beginning of one. ``log_offset``: where it begins."""

    def __init__(self, log_offset: int, reason: str) -> None:
        super().__init__(f"at log offset {log_offset}: {reason}")
        self.log_offset = log_offset


class Whole(msgspec.Struct, frozen=True):
    """Bytes that may enter the log: records, one record, or a blank or damaged part, which has none (None)."""

    log_offset: int
    data: memoryview
    records: FoundRecords | Record | None = None

    @property
    def end(self) -> int:
        return self.log_offset + len(self.data)

    def no_entries(self, timestamp_ms: int) -> Batch:
        """The dispatchers have to know that they came past this part."""
        return Batch(NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, NO_GROUPS, self.end, timestamp_ms)


class Incoming:
    """Cuts a stream of bytes into what may enter the log. Owned by the appender; pure but for the bytes it holds."""

    def __init__(self, file_size: int) -> None:
        self._file_size = file_size
        self._held: memoryview = NO_BYTES
        self._end = 0
        self.damaged: Sequence[DamagedRange] = ()

    @property
    def held(self) -> int:
        """The number of bytes behind the end of the log that wait for the rest of their record."""
        return len(self._held)

    def begin(self, log_offset: int, damaged: Sequence[DamagedRange] = ()) -> None:
        """A new stream: bytes held of the one before are forgotten. ``damaged`` is what the master vouches for."""
        self._held, self._end, self.damaged = NO_BYTES, log_offset, damaged

    def take(self, log_offset: int, data: bytes | memoryview) -> Iterator[Whole]:
        """The records that became whole with these bytes. Raises BadCopy, after everything good before it was given.

        A caller that stops in the middle has to ``begin`` again.
        """
        expected = self._end + len(self._held)
        if log_offset != expected:
            raise BadCopy(log_offset, f"bytes from {expected} on are wanted")
        view = memoryview(b"".join((self._held, data))) if self._held else memoryview(data)
        base, end = self._end, self._end + len(view)
        extent = LogFiles(base, end, self._file_size)
        at: int | None = base
        while at is not None and at < end:
            part = self._part(view[at - base :], at, extent)
            if part is None:
                break
            yield part
            at = self._end = part.end
            self._held = NO_BYTES
        self._held = view[self._end - base :]

    def _part(self, view: memoryview, at: int, extent: LogFiles) -> Whole | None:
        """The first part of the view; None while it is not all there."""
        for start, end in self.damaged:
            if start <= at < end:
                return Whole(at, view[: min(end, extent.file_end(at)) - at])
        if len(view) < PAIR.size:
            return None
        room = extent.file_end(at) - at
        size, magic = PAIR.unpack_from(view)
        if magic == MAGIC_BLANK:
            return Whole(at, view[:room]) if room <= len(view) else None
        if magic not in (MAGIC_V1, MAGIC_V2) or not OVERHEAD <= size <= min(room, LARGEST):
            raise BadCopy(at, f"no record has {size} bytes and magic {magic & 0xFFFFFFFF:#010x}, {room} are left")
        if size > len(view):
            return None
        if len(view) < FEW * size:
            return Whole(at, view[:size], _one(view[:size], at))
        piece = step(lambda where, most: view[where - at : where - at + most], extent, at)
        if not isinstance(piece, FoundRecords):
            raise BadCopy(at, getattr(piece, "reason", "") or "zeros where a record must be")
        return Whole(at, view[: len(piece.data)], piece)


def _one(data: memoryview, at: int) -> Record:
    try:
        record = decode(data)
    except BadRecord as bad:
        raise BadCopy(at, str(bad)) from None
    if record.log_offset != at:
        raise BadCopy(at, f"it says it belongs at {record.log_offset}")
    return record
