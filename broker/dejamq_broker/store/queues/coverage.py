"""Whether the queues have an entry for every record: of a store without our mark nobody says so.

The entries of all queues, put in order of the log, must cover it without a gap. Where they do not, the log is looked
at. Blanks, damage and records that get no entry explain a gap; anything else is a lost entry. RocketMQ trusts its
checkpoint here, and shows a queue that was deleted as empty.
"""

import numpy as np
from dejamq_proto.records.record import SYS_TRANSACTION_MASK, decode

from dejamq_broker.store.log.batch import Ints
from dejamq_broker.store.log.entries import UNQUEUED_TYPES
from dejamq_broker.store.log.scan import FoundRecords, LogFiles, Read, find_record, step
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from dejamq_broker.store.queues.entry_files import ENTRY, FILLER_SIZE, Entries

AT_ONCE = 16_384


def first_uncovered(queues: list[ConsumeQueue], read: Read, extent: LogFiles, end: int) -> int | None:
    """The log offset from which the entries before ``end`` are not as the log is; None when all are there.

    One log file after the other, so that memory holds the entries of one.
    """
    cursors = [_Cursor(queue) for queue in queues]
    for file_start in range(extent.start, end, extent.file_size):
        upto = min(file_start + extent.file_size, end)
        starts, ends = _in_order([cursor.until(upto) for cursor in cursors], file_start)
        gaps_from = np.concatenate(([file_start], ends))
        gaps_to = np.concatenate((starts, [upto]))
        wrong = np.flatnonzero(gaps_to < gaps_from)
        if len(wrong):
            return int(gaps_to[wrong[0]])
        for number in np.flatnonzero(gaps_to > gaps_from).tolist():
            lost = _lost_in(
                read, LogFiles(extent.start, int(gaps_to[number]), extent.file_size), int(gaps_from[number])
            )
            if lost is not None:
                return lost
    return None


class _Cursor:
    """Takes the entries of one queue in order of the log."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue, self._at = queue, queue.min_offset

    def until(self, log_end: int) -> Entries:
        """The next entries of records that begin before ``log_end``."""
        parts = [np.empty(0, ENTRY)]
        while self._at < self._queue.max_offset:
            entries = self._queue.entries(self._at, AT_ONCE)
            later = np.flatnonzero((entries["log_offset"] >= log_end) & (entries["size"] != FILLER_SIZE))
            stop = int(later[0]) if len(later) else len(entries)
            parts.append(entries[:stop])
            self._at += stop
            if len(later) or not len(entries):
                break
        return np.concatenate(parts)


def _in_order(taken: list[Entries], log_start: int) -> tuple[Ints, Ints]:
    """Where the records of these entries begin and end. Several queues may point at one record."""
    entries = np.concatenate([np.empty(0, ENTRY), *taken])
    entries = entries[(entries["size"] != FILLER_SIZE) & (entries["log_offset"] >= log_start)]
    starts, which = np.unique(entries["log_offset"].astype(np.int64), return_index=True)
    return starts, starts + entries["size"].astype(np.int64)[which]


def _lost_in(read: Read, gap: LogFiles, log_offset: int) -> int | None:
    """The first record of a gap in the entries that should have one."""
    at: int | None = log_offset
    while at is not None and at < gap.end:
        piece = step(read, gap, at)
        if isinstance(piece, int):
            at = piece
        elif isinstance(piece, FoundRecords):
            lost = _first_queued(piece)
            if lost is not None:
                return lost if lost < gap.end else None
            at = piece.end
        else:
            at = find_record(read, gap, at)
    return None


def _first_queued(found: FoundRecords) -> int | None:
    """The log offset of the first of these records that gets an entry."""
    if found.run is None:
        return None if decode(found.data, check_crc=False).transaction_type in UNQUEUED_TYPES else found.log_offset
    kinds = found.run.headers["sys_flag"] & SYS_TRANSACTION_MASK
    queued = np.flatnonzero(~np.isin(kinds, UNQUEUED_TYPES))
    return found.log_offset + int(found.run.positions[queued[0]]) if len(queued) else None
