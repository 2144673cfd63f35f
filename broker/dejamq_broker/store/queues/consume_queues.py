"""All consume queues of a store, and the dispatcher that feeds them. Source: RocketMQ ``ConsumeQueueStore``."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from dejamq_proto.records.record import OVERHEAD
from dejamq_proto.records.run import every

from dejamq_broker.store.files.checkpoint import DispatchProgress
from dejamq_broker.store.files.config import QUEUE_ENTRY_SIZE
from dejamq_broker.store.files.directories import sync_directory
from dejamq_broker.store.files.paths import StorePaths, may_be_queue
from dejamq_broker.store.log.batch import NOT_QUEUED, Batch, Groups, Ints, QueueKey, QueueTable, Single
from dejamq_broker.store.log.scan import Damage, LogFiles
from dejamq_broker.store.queues.consume_queue import CHUNK, MAX_GAP, ConsumeQueue
from dejamq_broker.store.queues.deleted import DeletedTopics
from dejamq_broker.store.queues.entry_files import ENTRY, FILLER_SIZE, PLAIN_ENTRY, Entries
from dejamq_broker.store.queues.entry_tail import rows_of
from dejamq_broker.store.queues.unsupported import has_ext_addresses

# Entries for a queue that is made again from the whole log, which may say strange things of queue offsets. A record's
# header has no checksum, topics are deleted and made again, and damage leaves gaps.

SPARE = 4096
"""Queue offsets that a gap may have beyond the number of records that fit into the log between its ends."""


def append_again(queue: ConsumeQueue, queue_offsets: Ints, entries: Entries, ends: Ints) -> list[Damage]:
    """Append in log order. Answers the records that get no entry, for their queue offset cannot be.

    A gap becomes fillers. Where queue offsets begin again at 0, the topic was deleted and made again: the queue's
    entries are of the earlier life. An offset that goes back otherwise is passed over, as RocketMQ does.
    """
    strange = out_of_place(queue_offsets, queue.max_offset)
    # so many records cannot have been between, not even with some that were never stored
    known, begin = queue.max_log_offset > 0, int(queue_offsets[0])
    gaps = queue_offsets - (queue.max_offset if known else begin)
    room = entries["log_offset"] - (queue.max_log_offset if known else int(entries["log_offset"][0]))
    strange |= gaps > room // OVERHEAD + SPARE
    damages = [
        Damage(int(entry["log_offset"]), int(end), f"it says entry {queue_offset}, and its neighbours do not agree")
        for entry, end, queue_offset in zip(entries[strange], ends[strange], queue_offsets[strange], strict=True)
    ]
    queue_offsets, entries, ends = queue_offsets[~strange], entries[~strange], ends[~strange]
    begun = np.flatnonzero(queue_offsets == 0)
    if len(begun) and (queue.max_offset or begun[-1]):
        queue.discard()
        queue_offsets, entries, ends = queue_offsets[begun[-1] :], entries[begun[-1] :], ends[begun[-1] :]
    if len(queue_offsets):
        queue.append(queue_offsets, entries, ends)
    return damages


def out_of_place(queue_offsets: Ints, expected: int) -> npt.NDArray[np.bool_]:
    """Which say a queue offset that their two neighbours do not agree with, or one further off than a gap can be.

    ``expected`` is what the first should say; 0 when nothing is known, for a queue may begin late.
    """
    drift = queue_offsets - np.arange(len(queue_offsets))
    before = np.concatenate(([expected], drift[:-1]))
    after = np.concatenate((drift[1:], drift[-1:]))
    begin = expected or int(queue_offsets[0])
    strange: npt.NDArray[np.bool_] = (drift != before) & (drift != after) & (before == after)
    return strange | (queue_offsets - begin > MAX_GAP)


MEMORY_OF_ALL, LEAST_KEPT, MOST_KEPT = 64 << 20, 64, 4096
ROOM_OF_AN_ENTRY = 2 * QUEUE_ENTRY_SIZE  # a tail that is replaced has room for as many again
MANY = 8
"""Queues of a batch: of fewer, numpy's looks at each cost no more than bringing all into plain numbers."""
COMPARED = 64
"""Records whose entries are compared with the log: enough to tell queues of another life."""

OfQueue = tuple[int, Ints, Entries, Ints]
"""The number of a queue, the queue offsets and entries of its records, and the log offsets where the records end."""
Columns = tuple[Ints, Entries, Ints]
"""The same of all queues."""


class Incomplete(Exception):
    """The queues have not the entries that they were believed to have: they are to be made again."""


class Contradiction(Incomplete):
    """The queues or the mark speak of another log than this one."""


class ConsumeQueues:
    """Queues by (topic, queue id). Reput makes and feeds them, the flush thread writes them out."""

    def __init__(self, paths: StorePaths, file_size: int, table: QueueTable) -> None:
        self._paths, self._file_size, self._table = paths, file_size, table
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self.deleted = DeletedTopics(paths.deleted)
        self._ends: dict[int, int] = {}
        """By queue number: where the earlier life ended of a topic that was deleted since the start."""
        self._leaving: list[ConsumeQueue] = []
        """Queues of deleted topics whose files are still there; the flush thread takes them away."""
        self._unsynced_folders: dict[Path, None] = {}
        """In which queues that were synced have new names; of the flush thread."""
        self.lacking = ""
        """Why the files cannot be believed, found by ``load``; "" when they can."""

    # Recovery, before any thread runs.

    def load(self, progress: DispatchProgress | None, log: LogFiles, *, clean: bool) -> None:
        """Read the folders TOPIC/QUEUE_ID, changing nothing. Raises StoreError for entries of an extended queue.

        After a clean stop that left a mark little is looked at, else more.
        """
        for topic, queue_id, path in self._paths.queue_folders():
            wrong = self._load_queue((topic, queue_id), progress, log, clean=clean)
            self.lacking = f"{path}: {wrong}" if wrong else self.lacking
        for key, count in progress.by_queue() if progress else []:
            known = self._queues.get(key)
            if known is None or known.max_offset < count:
                self.lacking = f"{self._paths.consume_queue(*key)} has not the {count} entries that it had"

    def _load_queue(self, key: QueueKey, progress: DispatchProgress | None, log: LogFiles, *, clean: bool) -> str:
        """Answers why its files cannot be believed; "" when they can."""
        topic, queue_id = key
        queue = self._make(key)
        synced = progress.queues.get(topic, {}).get(queue_id, 0) if progress else None
        wrong = queue.load(synced, thorough=not (clean and progress))
        if wrong:
            return wrong
        if self._is_of_earlier_life(topic, queue):
            return "its topic was deleted"
        if log.start == 0 < queue.min_offset:
            # nothing has expired yet
            return f"the entries before {queue.min_offset} are missing"
        if progress:
            began = progress.firsts.get(topic, {}).get(queue_id, queue.min_offset)
            if began < queue.min_offset and not queue.begins_before(log.start):
                return f"the entries from {began} to {queue.min_offset} are missing"
            if queue.max_log_offset > progress.log_offset:
                return f"entry {queue.max_offset - 1} is of no record that it can be of"
        if not (clean and progress):
            last = queue.entries(max(queue.min_offset, queue.max_offset - CHUNK), CHUNK)
            if has_ext_addresses(queue.folder, last["tags_code"]):
                return "an entry points into an extended queue that is not there"
        return ""

    def _is_of_earlier_life(self, topic: str, queue: ConsumeQueue) -> bool:
        """The files of a deleted topic that a crash has left."""
        first = queue.entries(queue.min_offset, 1)
        real = len(first) and first[0]["size"] != FILLER_SIZE
        return bool(real and first[0]["log_offset"] < self.deleted.end_of_life(topic))

    def feed(self, batch: Batch, *, whole: bool) -> list[Damage]:
        """Give the queues entries of records that were read back from the log, in its order.

        They know by log offset what they have. ``whole``: all records before these were fed, so a gap is one of the
        log. Otherwise a gap raises Incomplete, for it may be one of the queue. Answers records that get no entry
        because their queue offset cannot be: a header has no checksum.
        """
        damages: list[Damage] = []
        for number, queue_offsets, entries, ends in _by_queue(batch.groups, _ordered(batch)):
            ended = self.deleted.end_of_life(self._table.keys[number][0])
            if ended:
                lives = entries["log_offset"] >= ended
                queue_offsets, entries, ends = queue_offsets[lives], entries[lives], ends[lives]
                if not len(entries):
                    continue
            queue = self._numbered(number)
            if queue.continues(queue_offsets, ends):
                queue.append(queue_offsets, entries, ends)
            elif whole:
                damages += append_again(queue, queue_offsets, entries, ends)
            else:
                raise Incomplete(f"{queue.folder} ends at {queue.max_offset}, and the log goes on elsewhere")
        return damages

    def check(self, batch: Batch, log_end: int) -> None:
        """Compare the entries of the last records before ``log_end``: they must be what the log says.

        Raises Incomplete, and Contradiction when hardly one is right. A later record's entry, or no queue at all, is
        not wrong: the topic was deleted, and perhaps made again.
        """
        compared = batch.log_offsets[batch.log_offsets < log_end][-COMPARED:]
        right, wrong = 0, ""
        for number, queue_offsets, expected, _ in _by_queue(batch.groups, _ordered(batch)) if len(compared) else []:
            queue = self._queues.get(self._table.keys[number])
            wanted = (expected["log_offset"] >= compared[0]) & (expected["log_offset"] <= compared[-1])
            for queue_offset, entry in zip(queue_offsets[wanted].tolist(), expected[wanted], strict=True):
                if queue is None or not queue_offset - queue.min_offset >= 0:
                    continue
                found = queue.entries(queue_offset, 1)
                right += bool(len(found) and found[0] == entry)
                if not len(found) or (found[0] != entry and not entry["log_offset"] < found[0]["log_offset"] < log_end):
                    wrong = f"entry {queue_offset} of {queue.folder} is not of the record at {entry['log_offset']}"
        if wrong:
            raise (Incomplete if right > len(compared) // 2 else Contradiction)(wrong)

    def number_of(self, key: QueueKey) -> int:
        """A queue's number; NOT_QUEUED for a number that no queue can have."""
        return self._table.number_of(key) if may_be_queue(*key) else NOT_QUEUED

    def discard(self) -> None:
        """Begin again with no entries at all. Raises OSError."""
        self.lacking = ""
        for queue in self.values():
            queue.discard()

    def reach(self, counts: Iterable[tuple[QueueKey, int]]) -> None:
        """Queue offsets that were given out are not given out again, though the log has no record of them any more."""
        for key, count in counts:
            queue = self._queues.get(key) or self._make(key)
            queue.reach(count)

    # Anybody.

    def get(self, key: QueueKey) -> ConsumeQueue | None:
        return self._queues.get(key)

    def values(self) -> list[ConsumeQueue]:
        return list(self._queues.values())

    def items(self) -> Iterator[tuple[QueueKey, ConsumeQueue]]:
        """A snapshot: other threads may add queues meanwhile."""
        return iter(list(self._queues.items()))

    def dispatch(self, batch: Batch | Single) -> None:
        """Give every queue its entries, one append a queue."""
        if isinstance(batch, Single):
            if batch.queue_number >= 0 and not self._is_over(batch.queue_number, batch.log_offset):
                self._numbered(batch.queue_number).append_one(batch)
            return
        columns = _ordered(batch)
        if len(batch.groups) >= MANY and _dense(columns[0], np.array(batch.groups.edges)):
            self._dispatch_many(batch.groups, columns)
            return
        for number, queue_offsets, entries, ends in _by_queue(batch.groups, columns):
            if not self._is_over(number, int(entries["log_offset"][0])):
                self._numbered(number).append(queue_offsets, entries, ends)

    def _dispatch_many(self, groups: Groups, columns: Columns) -> None:
        """In plain numbers, and entries as bytes: of hundreds of queues each has a record or two. Looks at each of them
        by numpy were a third of the broker's work for a run.
        """
        queue_offsets, entries, ends = columns
        edges, rows = np.array(groups.edges), rows_of(entries)
        firsts, begins = queue_offsets[edges[:-1]].tolist(), entries["log_offset"][edges[:-1]].tolist()
        log_ends = zip(ends[edges[:-1]].tolist(), ends[edges[1:] - 1].tolist(), strict=True)
        of_queues = zip(groups.spans(), firsts, begins, log_ends, strict=True)
        for (number, first, after), queue_offset, begin, ends_at in of_queues:
            if self._ends and self._is_over(number, begin):
                continue
            queue = self._numbered(number)
            if not queue.extend(queue_offset, rows[first * QUEUE_ENTRY_SIZE : after * QUEUE_ENTRY_SIZE], ends_at):
                queue.append(queue_offsets[first:after], entries[first:after], ends[first:after])

    def _is_over(self, number: int, log_offset: int) -> bool:
        """The record was stored before its topic was deleted. A batch is of one time: it lies before that or after."""
        return bool(self._ends) and log_offset < self._ends.get(number, 0)

    def delete(self, topic: str, log_end: int, log_min: int) -> None:
        """Forget the topic's queues: everything before ``log_end`` is of a life that is over.

        Called by the appending thread while nothing is dispatched. The list of the deleted is on disk (``note`` of
        ``deleted``): a crash then finds files of a life that is over, and makes the queues without it.
        """
        self.deleted.add(topic, log_end, log_min)
        for number in self._table.begin_again(topic):
            self._ends[number] = log_end
        gone = [key for key in self._queues if key[0] == topic]
        self._leaving += [self._queues.pop(key) for key in gone]

    def _remove_leaving(self) -> None:
        """Before anything is written: a topic that was made again has its files where they were."""
        while self._leaving:
            self._leaving[0].remove()
            del self._leaving[0]

    def write_out(self) -> None:
        """Bring all files up to date. Raises OSError."""
        self._remove_leaving()
        for queue in self.values():
            queue.write_out()

    def sync(self, least_pages: int, between: Callable[[], None]) -> None:
        """Put on disk the queues that have this number of dirty pages (0: all), calling ``between`` after each.

        Queues that are new have folders in common, which are synced once, and at the next call what could not be at
        this one. Raises OSError.
        """
        due = [queue for queue in self.values() if queue.is_due(least_pages)]
        for queue in due:
            self._unsynced_folders |= dict.fromkeys(queue.sync())
            between()
        for folder in tuple(self._unsynced_folders):
            if folder.is_dir():
                sync_directory(folder)
            del self._unsynced_folders[folder]
            between()
        for queue in due:
            queue.count_synced()

    def _numbered(self, number: int) -> ConsumeQueue:
        key = self._table.keys[number]
        return self._queues.get(key) or self._make(key)

    def _make(self, key: QueueKey) -> ConsumeQueue:
        queue = self._queues[key] = ConsumeQueue(self._paths.consume_queue(*key), self._file_size, self._share)
        return queue

    def _share(self) -> int:
        """The most that one queue may keep in memory of its files: many queues share the amount that a few may take."""
        return max(LEAST_KEPT, min(MOST_KEPT, MEMORY_OF_ALL // (ROOM_OF_AN_ENTRY * len(self._queues))))


def _by_queue(groups: Groups, columns: Columns) -> Iterator[OfQueue]:
    queue_offsets, entries, ends = columns
    for number, first, after in groups.spans():
        yield number, queue_offsets[first:after], entries[first:after], ends[first:after]


def _ordered(batch: Batch) -> Columns:
    """Queue by queue."""
    entries = np.empty(len(batch.sizes), ENTRY)
    entries["log_offset"], entries["size"], entries["tags_code"] = batch.log_offsets, batch.sizes, batch.tags_codes
    queue_offsets, ends, order = batch.queue_offsets, batch.log_offsets + batch.sizes, batch.groups.order
    if order is None:
        return queue_offsets, entries, ends
    return queue_offsets[order], entries.view(PLAIN_ENTRY)[order].view(ENTRY), ends[order]


def _dense(queue_offsets: Ints, edges: Ints) -> bool:
    """Whether the entries of each queue follow one another without a gap, as the appender gives them out."""
    follow = queue_offsets[1:] - queue_offsets[:-1] == 1
    follow[edges[1:-1] - 1] = True
    follow[: edges[0]] = True  # these get no entry
    return every(follow)
