"""Verify's look at one consume queue: is there exactly one right entry for each of its records?

Fed with the records of the queue in log order; the right entries are computed from the records alone.
"""

import msgspec
import numpy as np
import numpy.typing as npt
from dejamq_proto.names import SCHEDULE_TOPIC

from dejamq_broker.store.log.batch import Ints
from dejamq_broker.store.offline.at_rest import QueueFiles
from dejamq_broker.store.offline.findings import DamageTally, Severity, StoreFinding
from dejamq_broker.store.queues.entry_files import ENTRY, FILLER_SIZE, Entries

REBUILD = "stop the broker, delete the queue's folder and start it: the queue is built again from the log"
CHUNK = 65_536
Ranges = list[tuple[int, int]]


class ExpectedEntries(msgspec.Struct, frozen=True):
    """Records of one queue, in log order, by the log."""

    queue_offsets: Ints
    entries: Entries
    store_timestamps_ms: Ints

    def part(self, start: int, end: int) -> "ExpectedEntries":
        return ExpectedEntries(
            self.queue_offsets[start:end], self.entries[start:end], self.store_timestamps_ms[start:end]
        )  # fmt: skip


class LogBounds(msgspec.Struct, frozen=True):
    """Where the log begins and ends, and the parts of it that cannot be read. ``killed``: its store was not closed."""

    start: int
    end: int
    lost: Ranges
    killed: bool

    def spoils(self, log_offset: int) -> bool:
        return any(begin <= log_offset < end for begin, end in self.lost)


class QueueCheck:
    """One queue; ``feed`` in log order, then ``finish``."""

    def __init__(self, files: QueueFiles, tally: DamageTally, ended: int) -> None:
        """``ended``: log offset of the topic's last deletion.

        Records before it are of an earlier life; 0: there was no deletion.
        """
        self.files, self._tally, self._ended = files, tally, ended
        self._name = f"queue {files.topic}/{files.queue_id}"
        self._first: int | None = None
        self._next = 0
        """The queue offset that the next record must have."""
        self._gaps: Ranges = []
        self._missing = (0, 0)
        """First and number of the missing entries at the end of the compared part."""
        self._delay_ms = 0
        self._former: int | None = None
        """The first queue offset at which an entry of a former life was met."""

    def feed(self, expected: ExpectedEntries) -> None:
        """Raises OSError."""
        start = 0
        while start < len(expected.queue_offsets):
            offsets = expected.queue_offsets
            dense = np.flatnonzero(np.diff(offsets[start:]) != 1)
            end = start + int(dense[0]) + 1 if len(dense) else len(offsets)
            self._dense(expected.part(start, end))
            start = end

    def finish(self, log: LogBounds) -> None:
        """Report differences between the files and the entries of records, and check the rest of the files.

        Raises OSError.
        """
        self._check_files()
        if log.killed:
            self._tell_missing(Severity.RECOVERS, "the next start adds them")
        self._tell_missing(Severity.DAMAGE, REBUILD)
        first = self._next if self._first is None else self._first
        if self.files.first < first:
            self._check_others(self.files.first, first, log)
        for begin, end in self._gaps:
            self._check_gap(begin, end, log)
        self._check_rest(log)
        if self._former is not None:
            self._tell_former(self._former)

    def _dense(self, expected: ExpectedEntries) -> None:
        """Records whose queue offsets follow one another."""
        begin = int(expected.queue_offsets[0])
        if self._first is None:
            self._first = self._next = begin
        if begin == 0 and self._next and self._found(expected, 0, 1)[0] == expected.entries[0]:
            self._begin_again(expected)
        elif begin < self._next:
            again = min(len(expected.queue_offsets), self._next - begin)
            log_offset = int(expected.entries["log_offset"][0])
            what = f"the record at {log_offset} has queue offset {begin}, which an earlier one has"
            self._add(
                StoreFinding("queue-offset", f"log {log_offset}", what, "report it: no recovery repairs that", again)
            )
            if again == len(expected.queue_offsets):
                return
            expected = expected.part(again, len(expected.queue_offsets))
        elif begin > self._next:
            self._gaps.append((self._next, begin))
        for start in range(0, len(expected.queue_offsets), CHUNK):
            self._compare(expected.part(start, start + CHUNK))
        self._next = int(expected.queue_offsets[-1]) + 1

    def _begin_again(self, expected: ExpectedEntries) -> None:
        """The topic was deleted and made again: entries are for the younger records."""
        for kind in ("entry", "entry-missing", "queue-offset"):
            self._tally.forget(kind, self._name)
        self._gaps.clear()
        self._missing = (0, 0)
        self._first, self._next = 0, 0
        at = int(expected.entries["log_offset"][0])
        self._add(StoreFinding("made-again", self._name, f"it begins anew at log offset {at}", severity=Severity.NOTE))

    def _tell_former(self, queue_offset: int) -> None:
        """A start knows a queue of a former life by its first entry, and makes it again."""
        whole = queue_offset == self.files.first
        severity, do = (Severity.RECOVERS, "the next start makes it again") if whole else (Severity.DAMAGE, REBUILD)
        what = f"entries of before its topic was deleted at log offset {self._ended} stand here"
        self._add(StoreFinding("entry-former", f"{self._name}@{queue_offset}", what, do, severity=severity))

    def _found(self, expected: ExpectedEntries, start: int, end: int) -> Entries:
        return self._read(int(expected.queue_offsets[0]) + start, end - start)

    def _read(self, queue_offset: int, count: int) -> Entries:
        """Entries as they stand in the files.

        An entry of an earlier life does not count: a start does not believe it either.
        """
        found = self.files.read(queue_offset, count)
        former = (found["log_offset"] < self._ended) & (found["size"] > 0) & (found["size"] != FILLER_SIZE)
        if former.any():
            at = queue_offset + int(np.argmax(former))
            self._former = at if self._former is None else min(at, self._former)
            found[former] = np.zeros((), ENTRY)
        return found

    def _compare(self, expected: ExpectedEntries) -> None:
        found = self._found(expected, 0, len(expected.queue_offsets))
        missing = found["size"] <= 0
        self._count_missing(int(expected.queue_offsets[0]), missing)
        same = (found["log_offset"] == expected.entries["log_offset"]) & (found["size"] == expected.entries["size"])
        codes = found["tags_code"] == expected.entries["tags_code"]
        if self.files.topic == SCHEDULE_TOPIC and not codes.all():
            codes |= self._delivers(found, expected)
        wrong = ~missing & ~(same & codes)
        if wrong.any():
            index = int(np.argmax(wrong))
            what = f"the entry is {_told(found[index])}, the record says {_told(expected.entries[index])}"
            at = int(expected.queue_offsets[index])
            self._add(StoreFinding("entry", f"{self._name}@{at}", what, REBUILD, int(wrong.sum())))

    def _count_missing(self, queue_offset: int, missing: npt.NDArray[np.bool_]) -> None:
        """Missing entries with others behind them are reported at once; those at the end wait for the facts that
        ``finish`` gets.
        """
        last_there = int(np.flatnonzero(~missing)[-1]) if not missing.all() else -1
        if last_there >= 0:
            self._tell_missing(Severity.DAMAGE, REBUILD)
            inside = int(np.count_nonzero(missing[:last_there]))
            if inside:
                self._missing = (queue_offset + int(np.argmax(missing)), inside)
                self._tell_missing(Severity.DAMAGE, REBUILD)
        behind = len(missing) - 1 - last_there
        if behind:
            first, count = self._missing
            self._missing = (first if count else queue_offset + last_there + 1, count + behind)

    def _tell_missing(self, severity: Severity, do: str) -> None:
        (at, count), self._missing = self._missing, (0, 0)
        if count:
            what = "the log has a record for it, the queue has no entry"
            self._add(StoreFinding("entry-missing", f"{self._name}@{at}", what, do, count, severity))

    def _delivers(self, found: Entries, expected: ExpectedEntries) -> npt.NDArray[np.bool_]:
        """Delivery times by another list of delays than the usual one: equal for all of this queue's entries."""
        delays = found["tags_code"].astype(np.int64) - expected.store_timestamps_ms
        if not self._delay_ms:
            values, counts = np.unique(delays, return_counts=True)
            self._delay_ms = int(values[np.argmax(counts)])
        good: npt.NDArray[np.bool_] = (delays == self._delay_ms) & (delays > 0)
        return good

    def _check_files(self) -> None:
        for trouble in self.files.files.troubles():
            self._add(StoreFinding("queue-file", self._name, trouble.reason, REBUILD))
        for name in self.files.files.foreign:
            self._add(
                StoreFinding(
                    "foreign", self._name, f"{name} is no file of a queue", "move it away: it stops the next start"
                )
            )

    def _check_others(self, begin: int, end: int, log: LogBounds) -> None:
        """Entries before the queue's first record in the log: of expired records, or fillers."""
        end = min(end, self.files.room)
        for start in range(begin, end, CHUNK):
            found = self._read(start, min(CHUNK, end - start))
            expired = (found["log_offset"] < log.start) | (found["size"] == FILLER_SIZE)
            for index in np.flatnonzero(~expired | (found["size"] <= 0)).tolist():
                if not log.spoils(int(found["log_offset"][index])):
                    what = f"the entry {_told(found[index])} is of no record"
                    self._add(StoreFinding("entry", f"{self._name}@{start + index}", what, REBUILD))

    def _check_gap(self, begin: int, end: int, log: LogBounds) -> None:
        """Queue offsets that no record of the log has: fillers, or records in a part that cannot be read.

        A garbled record may claim any queue offset, so only what the files can hold is looked at one by one.
        """
        beyond = max(begin, self.files.room)
        if end > beyond:
            what = f"no record has this queue offset nor any other before {end}, and the queue ends before them"
            self._add(StoreFinding("queue-offset", f"{self._name}@{beyond}", what, "the record is lost"))
        end = min(end, beyond)
        for start in range(begin, end, CHUNK):
            found = self._read(start, min(CHUNK, end - start))
            for index in np.flatnonzero(found["size"] != FILLER_SIZE).tolist():
                if not log.spoils(int(found["log_offset"][index])) or found["size"][index] <= 0:
                    what = f"no record has this queue offset, the entry is {_told(found[index])}"
                    self._add(StoreFinding("queue-offset", f"{self._name}@{start + index}", what, "the record is lost"))

    def _check_rest(self, log: LogBounds) -> None:
        """Behind the last record: nothing, and after the first nothing only nothing."""
        at, ended = max(self._next, self.files.first), False
        while at < self.files.room:
            found = self._read(at, min(CHUNK, self.files.room - at))
            used = found != np.zeros((), ENTRY)
            for index in np.flatnonzero(used)[:1].tolist():
                self._stray(at + index, found[index], int(used.sum()), log, ended or index > 0)
            ended = ended or not used.all()
            at += len(found)

    def _stray(self, queue_offset: int, entry: np.void, count: int, log: LogBounds, apart: bool) -> None:
        where = f"{self._name}@{queue_offset}"
        if log.spoils(int(entry["log_offset"])) and entry["size"] > 0 and not apart:
            return
        if apart or entry["size"] <= 0:
            self._add(
                StoreFinding("entry-apart", where, f"behind the queue's end stands {_told(entry)}", REBUILD, count)
            )
        elif entry["log_offset"] >= log.end:
            self._add(
                StoreFinding(
                    "entry-behind",
                    where,
                    f"the entry {_told(entry)} is behind the log's end at {log.end}",
                    "the next start takes it off",
                    count,
                    Severity.RECOVERS,
                )
            )
        else:
            self._add(
                StoreFinding("entry", where, f"the entry {_told(entry)} is of no record of this queue", REBUILD, count)
            )

    def _add(self, finding: StoreFinding) -> None:
        self._tally.add(finding, self._name)


def _told(entry: np.void) -> str:
    if int(entry["size"]) == FILLER_SIZE:
        return "a filler"
    return f"({int(entry['log_offset'])}, {int(entry['size'])} bytes, tags code {int(entry['tags_code'])})"
