"""Verify's walk through the commit log: every byte of it, and with each record its queue entry and its keys."""

from collections.abc import Callable

import numpy as np
from dejamq_proto.records.record import BLANK_SIZE, MAGIC_BLANK, PAIR, decode

from dejamq_broker.store.files.paths import file_name, may_be_queue
from dejamq_broker.store.log.batch import Ints, QueueKey, QueueTable
from dejamq_broker.store.log.entries import batch_of
from dejamq_broker.store.log.scan import Damage, End, FoundRecords, walk
from dejamq_broker.store.offline.at_rest import DataFiles, QueueFiles
from dejamq_broker.store.offline.findings import DamageTally, Severity, StoreFinding
from dejamq_broker.store.offline.verify_queues import ExpectedEntries, LogBounds, QueueCheck
from dejamq_broker.store.queues.deleted import DeletedTopics
from dejamq_broker.store.queues.entry_files import ENTRY

BRING_BACK = "bring the file back from a copy; what it held is lost otherwise"
STAYS = "the records in it are lost, the others are served"
CUTS = "the next start cuts it off and keeps it in cut/"
ZEROS_AT_ONCE = 1 << 20

Progress = Callable[[int, int], None]
"""Bytes done, bytes in all."""


class LogCheck:
    """Walks the log once and tells each queue, and the checks in ``others``, what it must hold."""

    def __init__(
        self, files: DataFiles, queue_files: list[QueueFiles], make_queue: Callable[[str, int], QueueFiles | None],
        deleted: DeletedTopics, delay_levels_ms: tuple[int, ...], progress: Progress,
    ) -> None:  # fmt: skip
        """``make_queue`` makes the files of a queue without a folder; None for one that was deleted with its topic."""
        self.tally = DamageTally()
        self.others: list[Callable[[FoundRecords], None]] = []
        self.records = 0
        self.start = self.end = min(files.lengths, default=0)
        self.last_store_timestamp_ms = 0
        self._files, self._make_queue, self._deleted = files, make_queue, deleted
        self._delay_levels_ms, self._progress = delay_levels_ms, progress
        self._table = QueueTable()
        self._queues: dict[QueueKey, QueueCheck | None] = {
            (each.topic, each.queue_id): self._check_of(each) for each in queue_files
        }
        self._lost: list[tuple[int, int]] = []
        self._killed = False

    def run(self, *, killed: bool) -> None:
        """``killed``: the store was not closed, so a torn end is what a start repairs. Raises OSError."""
        self._killed = killed
        self._check_names()
        extents = list(self._files.extents())
        for extent in extents:
            at = extent.start
            for piece in walk(self._files.read, extent, extent.start):
                self._blanks(at, piece.log_offset)
                at = self._take(piece, last=extent is extents[-1])
                self._progress(at - self.start, extents[-1].end - self.start)
        bounds = LogBounds(self.start, self.end, self._lost, killed)
        for queue in self._queues.values():
            if queue is not None:
                queue.finish(bounds)

    def queues(self) -> int:
        return len(self._queues)

    def _check_names(self) -> None:
        for trouble in self._files.troubles():
            self._lost.append((trouble.start, trouble.end))
            self._add(StoreFinding("log-file", "commitlog", trouble.reason, BRING_BACK))
        for name in self._files.foreign:
            self._add(
                StoreFinding(
                    "foreign", "commitlog", f"{name} is no file of a log", "move it away: it stops the next start"
                )
            )
        for start in self._files.lengths:
            if start % self._files.size:
                what = f"{file_name(start)} does not begin at a multiple of the file size {self._files.size}"
                self._add(StoreFinding("log-file", "commitlog", what, BRING_BACK))

    def _take(self, piece: FoundRecords | Damage | End, *, last: bool) -> int:
        """Judge one piece of the walk; answers where it ends."""
        if isinstance(piece, FoundRecords):
            self._records(piece)
            return piece.end
        if isinstance(piece, Damage):
            self._lost.append((piece.log_offset, piece.end))
            self._add(StoreFinding("log-record", f"log {piece.log_offset}..{piece.end}", piece.reason, STAYS))
            return piece.end
        if last:
            self._end(piece)
        elif piece.log_offset < self.end_of_files_from(piece.log_offset):
            self._lost.append((piece.log_offset, self.end_of_files_from(piece.log_offset)))
            reason = piece.reason or "zeros where a record must be"
            self._add(StoreFinding("log-record", f"log {piece.log_offset}..", reason, STAYS))
        return piece.log_offset

    def end_of_files_from(self, log_offset: int) -> int:
        """Where the run of files ends that this offset lies in."""
        return next((each.end for each in self._files.extents() if each.start <= log_offset <= each.end), log_offset)

    def _end(self, piece: End) -> None:
        self.end = piece.log_offset
        severity = Severity.RECOVERS if self._killed else Severity.DAMAGE
        if piece.reason:
            self._lost.append((piece.log_offset, self.end_of_files_from(piece.log_offset)))
            what = f"the log's end is torn: {piece.reason}"
            self._add(StoreFinding("log-end", f"log {piece.log_offset}", what, CUTS, severity=severity))
            return
        stray = self._not_zero_from(piece.log_offset)
        if stray is not None:
            what = f"the log ends at {piece.log_offset}, but not only zeros follow"
            self._add(StoreFinding("log-behind", f"log {stray}", what, CUTS, severity=severity))

    def _not_zero_from(self, log_offset: int) -> int | None:
        at, end = log_offset, self.end_of_files_from(log_offset)
        while at < end:
            size = min(ZEROS_AT_ONCE, end - at, self._files.size - at % self._files.size)
            data = np.frombuffer(self._files.read(at, size), np.uint8)
            if data.any():
                return at + int(np.argmax(data != 0))
            at += size
        return None

    def _blanks(self, at: int, upto: int) -> None:
        """Between two pieces of a walk there are only file ends: each is a blank that says how long it is."""
        size = self._files.size
        while at < upto:
            room = size - at % size
            says, magic = PAIR.unpack(self._files.read(at, BLANK_SIZE))
            if magic == MAGIC_BLANK and says != room:
                what = f"the blank says {says} bytes, {room} are left in the file"
                self._add(
                    StoreFinding("blank", f"log {at}", what, "nothing is lost; RocketMQ does not look at it either")
                )
            at += room

    def _records(self, found: FoundRecords) -> None:
        self.records += len(found.sizes)
        times = _times(found)
        self._check_times(found, times)
        batch = batch_of(found, self._table.number_of, self._delay_levels_ms)
        entries = np.empty(len(found.sizes), ENTRY)
        entries["log_offset"], entries["size"], entries["tags_code"] = batch.log_offsets, batch.sizes, batch.tags_codes
        for number, members in batch.groups:
            if not may_be_queue(*self._table.keys[number]):
                self._tell_name(self._table.keys[number], entries["log_offset"][members])
                continue
            living = self._living(
                number, ExpectedEntries(batch.queue_offsets[members], entries[members], times[members])
            )
            queue = self._queue(number) if len(living.entries) else None
            if queue is not None:
                queue.feed(living)
        for other in self.others:
            other(found)

    def _check_times(self, found: FoundRecords, times: Ints) -> None:
        before = np.concatenate(([self.last_store_timestamp_ms], times[:-1]))
        back = times < before
        if back.any():
            index = int(np.argmax(back))
            log_offset = found.log_offset + sum(found.sizes[:index])
            what = f"stored at {int(times[index])} ms, the record before it at {int(before[index])}"
            self._add(StoreFinding("store-time", f"log {log_offset}", what, "search by time may answer wrong around it",
                      count=int(back.sum())))  # fmt: skip
        self.last_store_timestamp_ms = int(times.max(initial=self.last_store_timestamp_ms))

    def _living(self, number: int, expected: ExpectedEntries) -> ExpectedEntries:
        """Without the records of a former life of the topic: the log keeps them, no queue has entries of them."""
        topic, _ = self._table.keys[number]
        ended = self._deleted.end_of_life(topic)
        former = int(np.searchsorted(expected.entries["log_offset"], ended))
        if former:
            what = f"it was deleted at log offset {ended}, the log still has messages of before"
            self._add(StoreFinding("deleted", f"topic {topic}", what, count=former, severity=Severity.NOTE))
        return expected.part(former, len(expected.entries))

    def _tell_name(self, key: QueueKey, log_offsets: Ints) -> None:
        topic, queue_id = key
        what = f"it says topic {topic!r}, queue {queue_id}: no queue can be called so"
        do = "a queue that is made again from the log lacks the record"
        self._add(StoreFinding("log-record", f"log {int(log_offsets[0])}", what, do, len(log_offsets)))

    def _check_of(self, files: QueueFiles) -> QueueCheck:
        return QueueCheck(files, self.tally, self._deleted.end_of_life(files.topic))

    def _queue(self, number: int) -> QueueCheck | None:
        key = self._table.keys[number]
        if key not in self._queues:
            files = self._make_queue(*key)
            self._queues[key] = self._check_of(files) if files else None
            if files is None:
                what = "the log has messages of it, but it is no topic any more: it was deleted"
                self._add(StoreFinding("deleted", f"topic {key[0]}", what, severity=Severity.NOTE))
        return self._queues[key]

    def _add(self, finding: StoreFinding) -> None:
        self.tally.add(finding, "" if finding.kind == "store-time" else f"{finding.where} {finding.what}")


def _times(found: FoundRecords) -> Ints:
    if found.run is not None:
        return found.run.headers["store_timestamp_ms"].astype(np.int64)
    return np.array([decode(found.data, check_crc=False).store_timestamp_ms], np.int64)
