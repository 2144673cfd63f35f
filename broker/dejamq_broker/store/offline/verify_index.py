"""Verify's look at the index: every key of every record is there once, and chains lead to each.

Index files are filled in log order. So their entries are compared with the keys of the log as both are read.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dejamq_broker.store.files.paths import is_index_name
from dejamq_broker.store.index.file import IndexFile, IndexShape
from dejamq_broker.store.index.keys import keys_of
from dejamq_broker.store.index.trust import KnownLog, contradiction
from dejamq_broker.store.log.batch import Ints
from dejamq_broker.store.log.scan import FoundRecords
from dejamq_broker.store.offline.findings import DamageTally, Severity, StoreFinding
from dejamq_broker.store.offline.verify_index_file import REBUILD, Pairs, chain_findings, is_empty, shape_of

CHUNK = 1 << 16
PAIR = np.dtype([("log_offset", "<i8"), ("hash", "<i8")])
HELD = np.dtype([*PAIR.descr, ("number", "<i8"), ("seconds", "<i8"), ("begin_ms", "<i8"), ("end_ms", "<i8")])
"""An entry, its number in its file, and the times in the file's header; ``end_ms`` for the last entry, else -1."""


class IndexCheck:
    """``open`` first, then ``feed`` with the log, then ``finish``."""

    def __init__(self, folder: Path, shape: IndexShape, tally: DamageTally, log: KnownLog) -> None:
        """``shape`` is tried first. Of a log whose owner did not end well the next start adds what is missing."""
        self._folder, self._shape, self._tally, self._log = folder, shape, tally, log
        self._late = Severity.DAMAGE if log.clean else Severity.RECOVERS
        self._files: list[IndexFile] = []
        self._entries: Iterator[Pairs] = iter(())
        self._ahead = np.empty(0, HELD)
        self._newest = -1
        """Log offset of the index's last entry: keys of records behind it are late, not lost."""
        self._unsettled = 1 << 62
        """From this log offset on, keys are in a file that a kill may have left half written."""
        self._missing_behind = 0
        self.entries = 0

    def open(self) -> bool:
        """Find the files and check each by itself; False without a file to compare the log with. Raises OSError."""
        found = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        paths = [path for path in found if is_index_name(path.name)]
        for path in found:
            if path not in paths:
                self._add(StoreFinding("foreign", f"index/{path.name}", "it is no index file", "move it away"))
        self._shape = next((shape for path in paths if (shape := shape_of(path, self._shape))), self._shape)
        for path in paths:
            self._look_at(path, self._late if path == paths[-1] else Severity.DAMAGE)
        self._entries = self._read()
        if self._files:
            self._newest = self._files[-1].header.end_log_offset
            self._unsettled = self._files[-1].header.begin_log_offset
        return bool(self._files)

    def _look_at(self, path: Path, severity: Severity) -> None:
        """One file by itself; an empty one is passed over."""
        file = IndexFile.load(path, self._shape)
        if is_empty(path):
            return
        if file is None:
            what = f"{path.stat().st_size} bytes and no header that fits"
            self._add(StoreFinding("index-file", f"index/{path.name}", what, REBUILD, severity=severity))
            return
        self._files.append(file)
        self.entries += file.header.next_entry - 1
        wrong = contradiction(file, self._log.start, self._log.stored_ms)
        if wrong:
            do = "start the broker: the index is built again from this file on"
            self._add(StoreFinding("index-header", f"index/{path.name}", wrong, do, severity=severity))
        for finding in chain_findings(file, severity):
            self._add(finding)

    def feed(self, found: FoundRecords) -> None:
        """The keys of these records must be next, apart from keys of older, expired records. Raises OSError."""
        keys = keys_of(found)
        held = self._upto(found.end)
        held = held[held["log_offset"] >= found.log_offset]
        expected, actual = _pairs(keys.log_offsets, keys.hashes), _pairs(held["log_offset"], held["hash"])
        if len(actual) == len(expected) and (actual == expected).all():
            self._check_times(held, keys.store_timestamps_ms)
            return
        missing = np.setdiff1d(expected, actual)
        foreign = np.setdiff1d(actual, expected)
        behind = missing["log_offset"] > self._newest
        for index in np.flatnonzero(~behind)[:1].tolist():
            what = f"a key of the record at {int(missing['log_offset'][index])} is not in it"
            severity = self._severity(int(missing["log_offset"][index]))
            self._add(StoreFinding("index-missing", "index", what, REBUILD, int(np.count_nonzero(~behind)), severity))
        for pair in foreign[:1]:
            what = f"an entry says {int(pair['log_offset'])}, where no record has such a key"
            severity = self._severity(int(pair["log_offset"]))
            self._add(StoreFinding("index-entry", "index", what, REBUILD, len(foreign), severity))
        if len(actual) > len(expected) - len(missing) + len(foreign):
            what = f"keys of records before {found.end} are in it more than once"
            do = "harmless: a RocketMQ that starts after a kill takes up the last record again"
            self._add(StoreFinding("index-twice", "index", what, do, severity=Severity.NOTE))
        self._missing_behind += int(np.count_nonzero(behind))

    def finish(self, log_end: int) -> None:
        """Raises OSError."""
        rest = self._upto(1 << 62)
        stray = rest[rest["log_offset"] >= log_end]
        for pair in stray[:1]:
            what = f"an entry says {int(pair['log_offset'])}, the log ends at {log_end}"
            self._add(
                StoreFinding("index-behind", "index", what, "the next start takes it off", len(stray), self._late)
            )
        if self._missing_behind:
            what = f"it ends at {self._newest}: keys behind it are not in it"
            self._add(
                StoreFinding("index-late", "index", what, "the next start adds them", self._missing_behind, self._late)
            )

    def _severity(self, log_offset: int) -> Severity:
        return self._late if log_offset >= self._unsettled else Severity.DAMAGE

    def _check_times(self, held: Pairs, times_ms: Ints) -> None:
        """The times that a query is bounded by: of each entry, and of first and last in the header."""
        first, last = held["number"] == 1, held["end_ms"] >= 0
        begins = held["begin_ms"]
        # the first entry's seconds count from the end of the file before it, and nobody looks at them
        wrong = ~first & (held["seconds"] != np.maximum(times_ms - begins, 0) // 1000)
        wrong |= (first & (begins != times_ms)) | (last & (held["end_ms"] != times_ms))
        for index in np.flatnonzero(wrong)[:1].tolist():
            what = f"entry {int(held['number'][index])} or the header tells another time than the record has"
            self._add(StoreFinding("index-time", "index", what, REBUILD, int(wrong.sum())))

    def _read(self) -> Iterator[Pairs]:
        """All entries, file by file."""
        for file in self._files:
            for first in range(1, file.header.next_entry, CHUNK):
                entries = file.entries(first, min(first + CHUNK, file.header.next_entry))
                held = np.empty(len(entries), HELD)
                for name in ("log_offset", "hash", "seconds"):
                    held[name] = entries[name]
                held["number"] = np.arange(first, first + len(entries))
                held["begin_ms"], held["end_ms"] = file.header.begin_timestamp_ms, -1
                if first + len(entries) == file.header.next_entry:
                    held["end_ms"][-1] = file.header.end_timestamp_ms
                yield held

    def _upto(self, log_offset: int) -> Pairs:
        """The entries that come next in the files, as far as they lie before this log offset."""
        parts = [self._ahead]
        while not len(parts[-1]) or parts[-1]["log_offset"][-1] < log_offset:
            more = next(self._entries, None)
            if more is None:
                break
            parts.append(more)
        pairs = np.concatenate(parts)
        later = np.flatnonzero(pairs["log_offset"] >= log_offset)
        end = int(later[0]) if len(later) else len(pairs)
        self._ahead = pairs[end:]
        return pairs[:end]

    def _add(self, finding: StoreFinding) -> None:
        self._tally.add(finding, finding.where)


def _pairs(log_offsets: Ints, hashes: Ints) -> Pairs:
    pairs = np.empty(len(hashes), PAIR)
    pairs["log_offset"], pairs["hash"] = log_offsets, hashes
    return pairs
