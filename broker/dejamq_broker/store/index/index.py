"""The index: messages by key, in files that follow one another. Source: RocketMQ ``IndexService``.

Derived from the log and fed late (``catch_up.py``), so losing it costs only time. ``indexed.json`` is our mark: the
files as they were when they were on disk, and the log offset up to which they hold everything. Before a file is changed
in place, it is taken out of the mark; afterwards it is named there again. So a start may trust the mark, whatever
happened. It does not fit when another program went on writing, or a crash came between. Then RocketMQ's rules decide
which files are kept, and the content of the others is read from the log again.
"""

import errno
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from dejamq_proto.loose_json import BAD_JSON

from dejamq_broker.store.files.checkpoint import Checkpoint, atomic_write
from dejamq_broker.store.files.config import StoreConfig
from dejamq_broker.store.files.directories import make_directory, sync_directory
from dejamq_broker.store.files.paths import StorePaths, index_name, is_index_name
from dejamq_broker.store.index.file import Bounds, IndexFile, IndexShape
from dejamq_broker.store.index.keys import Keys, key_hash, keys_of
from dejamq_broker.store.index.trust import KnownLog, contradiction
from dejamq_broker.store.log.scan import FoundRecords

logger = logging.getLogger(__name__)

MOST_KEYS = 16_384
"""No record has more keys: its properties take at most 32767 bytes, and a key with its separator two."""


class IndexMark(msgspec.Struct, frozen=True):
    """Every record before ``log_offset`` is in these files; the numbers are those that their next entries get."""

    log_offset: int
    files: dict[str, int]

    @classmethod
    def load(cls, path: Path) -> "IndexMark | None":
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (FileNotFoundError, *BAD_JSON):
            return None


class Index:
    """All index files. Any thread; one lock orders those who write, and a look-up holds it only to find its chains."""

    def __init__(self, paths: StorePaths, shape: IndexShape, clock_ms: Callable[[], int]) -> None:
        self._paths, self._shape, self._clock_ms = paths, shape, clock_ms
        self._lock = threading.Lock()
        self._files: tuple[IndexFile, ...] = ()
        self._last = (-1, 0)
        """The last record that has an entry: its log offset, and how many entries it has."""
        self.position = 0
        """Every record before this log offset has its entries."""
        self.synced_timestamp_ms = 0
        """Up to this store time, full files are on disk: RocketMQ's checkpoint keeps this time of the index."""

    # Recovery, before any thread runs.

    def load(self, origin: KnownLog, *, full_until_ms: int) -> None:
        """Find the files, and delete those that cannot be trusted.

        ``full_until_ms``: RocketMQ's checkpoint says that full files up to this store time are on disk. Raises OSError.
        """
        found = self._listed()
        mark = IndexMark.load(self._paths.index_mark)
        lost = mark is not None and not mark.files.keys() <= {path.name for path in found}
        kept: list[IndexFile] = []
        for path in [] if lost else found:
            file = self._sound(path, origin, last=path is found[-1])
            if file is not None and _trusted(file, mark, origin, full_until_ms):
                kept.append(file)
            elif file is None or kept or file.header.end_log_offset >= origin.start:
                break
        names = {file.path for file in kept}
        for path in found:
            if path not in names:
                logger.warning("index_file_dropped path=%s", path)
                path.unlink()
        self._files = tuple(kept)
        self._find_position(mark, origin)
        full = [file.header.end_timestamp_ms for file in kept if not file.room]
        self.synced_timestamp_ms = max(full, default=0)

    def _sound(self, path: Path, origin: KnownLog, *, last: bool) -> IndexFile | None:
        """The file; None when it cannot be one of this log."""
        file = IndexFile.load(path, self._shape)
        if file is None:
            return None
        wrong = contradiction(file, origin.start, origin.stored_ms)
        if file.room and not last:
            wrong = wrong or "it is not full, and others follow it"
        if wrong:
            logger.warning("index_file_wrong path=%s reason=%s", path, wrong)
        return None if wrong else file

    def _listed(self) -> list[Path]:
        folder = self._paths.index
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
        for path in paths:
            if not is_index_name(path.name):
                logger.warning("index_file_unknown path=%s", path)
        return [path for path in paths if is_index_name(path.name)]

    def _find_position(self, mark: IndexMark | None, origin: KnownLog) -> None:
        """Where to go on. A mark that did not fit is replaced: the log may grow past what it says."""
        self._last = self._last_record()
        self.position = max(self._last[0], origin.start)
        if mark is not None and mark.files == _contents(self._files):
            self.position = max(origin.start, min(mark.log_offset, origin.end))
        new = IndexMark(self.position, _contents(self._files))
        if mark != new and (mark is not None or self._files):
            try:
                self._save_mark(new)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                # a full disk keeps no store from being opened: without a mark RocketMQ's rules decide the next time
                self._paths.index_mark.unlink(missing_ok=True)
                sync_directory(self._paths.root)

    def _last_record(self) -> tuple[int, int]:
        """The record of the last entry, and how many entries it has; a file's end may lie between them."""
        count, log_offset = 0, -1
        for file in reversed(self._files):
            header = file.header
            if header.next_entry <= 1:
                continue
            if log_offset < 0:
                log_offset = header.end_log_offset
            entries = file.entries(max(1, header.next_entry - MOST_KEYS), header.next_entry)
            others = np.flatnonzero(entries["log_offset"] != log_offset)
            if len(others):
                return log_offset, count + len(entries) - 1 - int(others[-1])
            count += len(entries)
        return log_offset, count

    # Writing: the late reader.

    def dispatch(self, found: FoundRecords) -> None:
        """Take up the keys of these records; those already here are passed over. Raises OSError: then call again."""
        with self._lock:
            keys = self._new(keys_of(found))
            while len(keys):
                taken = self._with_room().put(keys)
                self._remember(keys[:taken])
                keys = keys[taken:]
            self.position = max(self.position, found.end)

    def skip_to(self, log_offset: int) -> None:
        """There is nothing to index before this log offset."""
        with self._lock:
            self.position = max(self.position, log_offset)

    def settle(self) -> None:
        """Put everything on disk, and mark it. Raises OSError; the content in memory stays right."""
        with self._lock:
            self._settle_locked()

    @property
    def settled(self) -> bool:
        """Whether a start would find all that is here."""
        return all(file.settled for file in self._files)

    def _new(self, keys: Keys) -> Keys:
        """Without those that are here. A record may be here in part, when a file could not be made in the middle."""
        log_offset, count = self._last
        known = int(np.searchsorted(keys.log_offsets, log_offset))
        of_last = int(np.searchsorted(keys.log_offsets, log_offset, side="right")) - known
        return keys[known + min(count, of_last) :]

    def _remember(self, taken: Keys) -> None:
        log_offset = int(taken.log_offsets[-1])
        count = int(np.count_nonzero(taken.log_offsets == log_offset))
        self._last = (log_offset, count + (self._last[1] if self._last[0] == log_offset else 0))

    def _with_room(self) -> IndexFile:
        last = self._files[-1] if self._files else None
        if last is not None and last.room:
            return last
        if last is not None and not last.settled:
            self._settle_locked()
        make_directory(self._paths.index)
        name = index_name(self._clock_ms(), after=last.path.name if last else "")
        file = IndexFile.create(self._paths.index / name, self._shape, last.header if last else None)
        self._files = (*self._files, file)
        return file

    def _settle_locked(self) -> None:
        whole = [file for file in self._files if file.settled]
        unsettled = self._files[len(whole) :]
        if unsettled:
            # while they are being written, only those before them can be believed
            reached = whole[-1].header.end_log_offset if whole else 0
            self._save_mark(IndexMark(reached, _contents(whole)))
        for file in unsettled:
            file.write_out()
            if not file.room:
                self.synced_timestamp_ms = file.header.end_timestamp_ms
        self._save_mark(IndexMark(self.position, _contents(self._files)))

    def _save_mark(self, mark: IndexMark) -> None:
        atomic_write(self._paths.index_mark, msgspec.json.encode(mark))

    # Looking up, expiry: any thread.

    def matches(self, topic: str, key: str, bounds: Bounds) -> Iterator[int]:
        """Log offsets of records that may have this key, newest first: others with the same hash are among them."""
        wanted = key_hash(topic, key)
        with self._lock:
            files = [file for file in reversed(self._files) if _overlaps(file, bounds)]
            chains = [file.head(wanted) for file in files]
        for chain in chains:
            yield from chain.matches(wanted, bounds)

    @property
    def newest(self) -> tuple[int, int]:
        """Store time (ms) and log offset of the last record that has an entry; (0, 0) without one."""
        files = self._files
        header = files[-1].header if files else None
        return (header.end_timestamp_ms, header.end_log_offset) if header else (0, 0)

    def delete_before(self, log_offset: int) -> None:
        """Delete the files all of whose records lie before this log offset, never the last one.

        Raises OSError. Source: RocketMQ ``IndexService.deleteExpiredFile``.
        """
        with self._lock:
            files = self._files
            expired = [file for file in files[:-1] if file.header.end_log_offset < log_offset]
            if not expired:
                return
            self._files = files[len(expired) :]
            mark = IndexMark.load(self._paths.index_mark)
            if mark is not None:
                left = {name: number for name, number in mark.files.items() if name >= self._files[0].path.name}
                self._save_mark(IndexMark(mark.log_offset, left))
            for file in expired:
                file.path.unlink(missing_ok=True)


def _contents(files: Sequence[IndexFile]) -> dict[str, int]:
    return {file.path.name: file.header.next_entry for file in files}


def open_index(paths: StorePaths, config: StoreConfig, clock_ms: Callable[[], int], log: KnownLog) -> Index:
    """The index of a store that was just recovered. Raises OSError."""
    index = Index(paths, IndexShape(config.max_hash_slot_num, config.max_index_num), clock_ms)
    index.load(log, full_until_ms=Checkpoint.load(paths.checkpoint).index_timestamp_ms)
    return index


def _trusted(file: IndexFile, mark: IndexMark | None, origin: KnownLog, full_until_ms: int) -> bool:
    """Whether a start may use the file as it is on disk.

    Never when it points beyond the log. Otherwise one of three reasons is enough. The mark knows it, or the last stop
    was clean, or RocketMQ's rule after a crash holds: it is full and not younger than the checkpoint's index time.
    """
    header = file.header
    if header.next_entry > 1 and header.end_log_offset >= origin.end:
        return False
    known = mark is not None and mark.files.get(file.path.name) == header.next_entry
    return known or origin.clean or (not file.room and header.end_timestamp_ms <= full_until_ms)


def _overlaps(file: IndexFile, bounds: Bounds) -> bool:
    header = file.header
    in_time = header.begin_timestamp_ms <= bounds.end_ms and header.end_timestamp_ms >= bounds.begin_ms
    return in_time and header.next_entry > 1
