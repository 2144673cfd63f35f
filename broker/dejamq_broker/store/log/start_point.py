"""Where a start begins to read the log: pure rules on what marks and first records say.

Source: RocketMQ ``CommitLog.recoverNormally``, ``recoverAbnormally``, ``isMappedFileMatchedRecover``; the rule by the
mark is ours.
"""

from collections.abc import Callable

import msgspec
from dejamq_proto.records.record import PAIR, decode

from dejamq_broker.store.log.scan import FoundRecords, LogFiles, Read, step

BY_MARK, BY_QUEUES, BY_CHECKPOINT, WHOLE_LOG = "mark", "queues", "checkpoint", "whole log"


class StartPoint(msgspec.Struct, frozen=True):
    """``walk_from`` is the start of a log file. Queues have the entries of all records before ``feed_from``."""

    walk_from: int
    feed_from: int
    rule: str


StoredAt = Callable[[int], int | None]
"""The store time (ms) of the good record that begins at a log offset, None when none does."""


def stored_at(read: Read, extent: LogFiles) -> StoredAt:
    """Looks at one record, not at its file."""

    def stored_ms(log_offset: int) -> int | None:
        head = read(log_offset, PAIR.size)
        size = PAIR.unpack(head)[0] if len(head) == PAIR.size else 0
        if size < PAIR.size:
            return None
        first = step(lambda at, most: read(at, min(most, size)), extent, log_offset)
        return decode(first.data, check_crc=False).store_timestamp_ms if isinstance(first, FoundRecords) else None

    return stored_ms


def whole_log(extent: LogFiles) -> StartPoint:
    """Nothing is known of the queues: they are made again."""
    return StartPoint(extent.start, extent.start, WHOLE_LOG)


def by_mark(extent: LogFiles, stored_ms: StoredAt, mark: int) -> StartPoint:
    """Our mark says how far the queues are complete.

    The file it lies in is read from its beginning, for two reasons. The mark is only as good as the records around it,
    and the store time of the last record is needed.
    """
    mark = min(max(mark, extent.start), extent.end)
    walk_from = _newest(extent, lambda start: start <= mark and stored_ms(start) is not None)
    return StartPoint(walk_from, mark, BY_MARK)


def by_queues(extent: LogFiles, stored_ms: StoredAt, queues_end: int) -> StartPoint:
    """After a clean stop of a RocketMQ: the newest file that the queues reach into.

    ``queues_end`` is where the last record that has an entry ends. A record that begins just there has none, and is in
    a file that is read (RocketMQ passes it over).
    """
    start = _newest(extent, lambda start: start <= queues_end and stored_ms(start) is not None)
    return StartPoint(start, start, BY_QUEUES if start > extent.start else WHOLE_LOG)


def by_checkpoint(extent: LogFiles, stored_ms: StoredAt, safe_ms: int) -> StartPoint:
    """After a crash of a RocketMQ: the newest file whose first record is older than the time that the checkpoint
    vouches for.

    ``safe_ms`` is ``Checkpoint.safe_ms``; 0 vouches for nothing.
    """
    start = _newest(extent, lambda start: 0 < (stored_ms(start) or 0) <= safe_ms)
    return StartPoint(start, start, BY_CHECKPOINT if start > extent.start else WHOLE_LOG)


def _newest(extent: LogFiles, fits: Callable[[int], bool]) -> int:
    """The start of the newest file that fits, else of the first."""
    starts = range(extent.start, extent.end, extent.file_size)
    return next((start for start in reversed(starts) if fits(start)), extent.start)
