"""Reading a queue: which entries, which bytes, where to go on. Source: RocketMQ ``DefaultMessageStore``."""

import os
from collections.abc import Sequence
from enum import Enum

import msgspec
import numpy as np
import numpy.typing as npt
from dejamq_proto.records.record import HEADER, HEADER_SIZE, SYS_BORN_HOST_V6, BadRecord, decode

from dejamq_broker.store.files.config import QUEUE_ENTRY_SIZE, StoreConfig
from dejamq_broker.store.files.errors import StoreDamaged
from dejamq_broker.store.log.batch import Ints
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_broker.store.log.scan import Damage
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from dejamq_broker.store.queues.entry_files import FILLER_SIZE, Entries

RAM = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

GAP_STEP = 65_536
NO_END = 1 << 62


class ReadStatus(Enum):
    """Source: RocketMQ ``GetMessageStatus``."""

    FOUND = "FOUND"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"


class ReadResult(msgspec.Struct, frozen=True, gc=False):
    """``sizes`` are the lengths of the records, which follow one another in ``pieces``. Pieces are copies, or views of
    the log, which keep a deleted file on the disk. ``next_offset`` is a queue offset.
    """

    status: ReadStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    sizes: list[int] = []
    pieces: "Sequence[bytes | memoryview]" = ()

    @property
    def records(self) -> bytes:
        """A copy of all of them."""
        return b"".join(self.pieces)


class ReadLimits(msgspec.Struct, frozen=True, gc=False):
    """How much one read may answer, and of which tags (hash codes; None is all)."""

    max_messages: int
    max_bytes: int
    tags: frozenset[int] | None = None


class QueueReader:
    """Reads queues and the log they point into. Any thread."""

    def __init__(self, log: CommitLog, config: StoreConfig, damages: tuple[Damage, ...]) -> None:
        self._log, self._config, self._damages = log, config, damages
        self._memory_window = RAM * config.access_message_in_memory_max_ratio // 100

    def read(self, queue: ConsumeQueue | None, queue_offset: int, limits: ReadLimits) -> ReadResult:
        """Up to ``limits`` messages from ``queue_offset`` on, at least one when there is one."""
        outside = self._outside(queue, queue_offset)
        if outside or queue is None:
            return outside or ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        if not self._damages and (few := self._few(queue, queue_offset, limits)):
            return few
        entries = queue.entries(queue_offset, self._window(limits))
        low, high = queue.min_offset, queue.max_offset
        if not len(entries):
            # the queue's file may have expired since the first look
            nothing = ReadResult(ReadStatus.OFFSET_FOUND_NULL, min(queue.next_file(queue_offset), high), low, high)
            return self._outside(queue, queue_offset) or nothing
        chosen, scanned, pieces = self._take(entries, limits)
        next_offset = queue_offset + scanned
        if not len(chosen):
            status = ReadStatus.NO_MATCHED_MESSAGE if self._any_there(entries) else ReadStatus.MESSAGE_WAS_REMOVING
            return ReadResult(status, next_offset, low, high)
        return ReadResult(ReadStatus.FOUND, next_offset, low, high, chosen["size"].tolist(), pieces)

    def _few(self, queue: ConsumeQueue, queue_offset: int, limits: ReadLimits) -> ReadResult | None:
        """As ``read``, in plain numbers, where numpy would cost more than all else. It is for a few entries, asked for
        or left, which are all wanted and may all be given. None: it is not so, or not sure.
        """
        config = self._config
        most = max(1, min(limits.max_messages, config.max_transfer_count_on_message_in_memory))
        # by tags it goes on behind all that nobody wants
        entries = queue.few(queue_offset, most if limits.tags is None else NO_END)
        if not entries or len(entries) > most or not self.in_memory(entries[0][0]):
            return None
        sizes = [size for _, size, _ in entries]
        wanted = limits.tags is None or all(code in limits.tags for _, _, code in entries)
        if not wanted or FILLER_SIZE in sizes or entries[0][0] < self._log.min_offset:
            return None
        total = sum(sizes)
        if total > min(config.max_transfer_bytes_on_message_in_memory, limits.max_bytes):
            return None
        starts = [log_offset for log_offset, _, _ in entries]
        end = starts[-1] + sizes[-1]
        if end - starts[0] == total:  # no other queue's between them
            pieces = self._log.stretches(starts[:1], [end])
        else:
            pieces = self._log.stretches(starts, [log_offset + size for log_offset, size, _ in entries])
        if sum(map(len, pieces)) != total:
            return None
        after = queue_offset + len(sizes)
        return ReadResult(ReadStatus.FOUND, after, queue.min_offset, queue.max_offset, sizes, pieces)

    def in_memory(self, log_offset: int) -> bool:
        """Young enough to be in the page cache, by RocketMQ's rule."""
        return self._log.max_offset - log_offset <= self._memory_window

    def store_timestamp_ms(self, log_offset: int, size: int) -> int:
        """Store time of a record; 0 when it is damaged, or its file gone: it is older then than all that is left."""
        head = self._log.read(log_offset, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return 0
        header = np.frombuffer(head, HEADER)[0]
        if not header["sys_flag"] & SYS_BORN_HOST_V6:
            return int(header["store_timestamp_ms"])
        try:
            return decode(self._log.read(log_offset, size), check_crc=False).store_timestamp_ms
        except BadRecord:
            return 0

    def record_at(self, log_offset: int) -> bytes | None:
        """The record that begins here, None when none does. Anybody may ask for any offset."""
        if not self._log.min_offset <= log_offset < self._log.max_offset:
            return None
        head = self._log.read(log_offset, HEADER_SIZE)
        header = np.frombuffer(head, HEADER)[0] if len(head) == HEADER_SIZE else None
        # the place first: bytes inside a body may announce a record as long as the file
        if header is None or header["log_offset"] != log_offset or header["total_size"] < HEADER_SIZE:
            return None
        data = self._log.read(log_offset, int(header["total_size"]))
        try:
            decode(data)
        except ValueError:
            return None
        return data

    def search(self, queue: ConsumeQueue, timestamp_ms: int, *, upper: bool) -> int:
        """Lower: the first entry stored at or after the time. Upper: the last one stored at or before it.

        Source: RocketMQ ``ConsumeQueue.binarySearchInQueueByTime`` with its two boundary types.
        """
        low, high = queue.min_offset, queue.max_offset
        first, end = low, high
        while first < end:
            middle = (first + end) // 2
            stored = self._stored_at(queue, middle)
            if stored < timestamp_ms or (upper and stored == timestamp_ms):
                first = middle + 1
            else:
                end = middle
        return max(low, first - 1) if upper else first

    def _stored_at(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """Store time of an entry; of the next real one where a filler stands; 0 of one whose file is gone."""
        count = 1
        while queue_offset < queue.max_offset:
            entries = queue.entries(queue_offset, count)
            if not len(entries):
                return 0
            real = np.flatnonzero(entries["size"] != FILLER_SIZE)
            if len(real):
                entry = entries[real[0]]
                return self.store_timestamp_ms(int(entry["log_offset"]), int(entry["size"]))
            # a gap may be of millions
            queue_offset, count = queue_offset + len(entries), GAP_STEP
        return 1 << 62

    def _window(self, limits: ReadLimits) -> int:
        if limits.tags is None:
            return max(1, min(limits.max_messages, self._config.max_transfer_count_on_message_in_memory))
        return max(self._config.max_filter_message_size // QUEUE_ENTRY_SIZE, limits.max_messages)

    def _outside(self, queue: ConsumeQueue | None, queue_offset: int) -> ReadResult | None:
        """The answers that need no entry."""
        if queue is None:
            return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if queue_offset < low:
            return ReadResult(ReadStatus.OFFSET_TOO_SMALL, low, low, high)
        if queue_offset == high:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
        if queue_offset > high:
            corrected = 0 if low == 0 and self._config.overflow_to_zero else high
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_BADLY, corrected, low, high)
        return None

    def _take(self, entries: Entries, limits: ReadLimits) -> "tuple[Entries, int, list[bytes | memoryview]]":
        """The entries to answer, how many were looked at for them, and their records' bytes.

        A log file may expire between the choice and the look. The log's minimum moves before the bytes go. So a look
        that is short is followed by another choice, among the records that are left; records are never answered in
        part.
        """
        while True:
            log_min = self._log.min_offset
            chosen, scanned = self._choose(entries, limits)
            if not len(chosen):
                return chosen, scanned, []
            sizes = chosen["size"].astype(np.int64)
            pieces = self._pieces(chosen["log_offset"].astype(np.int64), sizes)
            if sum(map(len, pieces)) == int(sizes.sum()):
                return chosen, scanned, pieces
            if self._log.min_offset == log_min:
                raise StoreDamaged(
                    f"the queue entry for log offset {int(chosen['log_offset'][0])} points at bytes that the log does "
                    "not have: delete the queue's folder and restart, it is rebuilt from the log"
                )

    def _choose(self, entries: Entries, limits: ReadLimits) -> tuple[Entries, int]:
        """The entries to answer, and how many were looked at for them."""
        scanned = len(entries)
        good = self._there(entries)
        if limits.tags is not None:
            good &= np.isin(entries["tags_code"], np.fromiter(limits.tags, np.int64))
        numbers = np.flatnonzero(good)
        if not len(numbers):
            return entries[:0], scanned
        config = self._config
        near = self.in_memory(int(entries["log_offset"][numbers[0]]))
        most = config.max_transfer_count_on_message_in_memory if near else config.max_transfer_count_on_message_in_disk
        size = config.max_transfer_bytes_on_message_in_memory if near else config.max_transfer_bytes_on_message_in_disk
        ends = np.cumsum(entries["size"][numbers], dtype=np.int64)
        fitting = int(np.searchsorted(ends, min(size, limits.max_bytes), side="right"))
        taken = max(1, min(fitting, most, limits.max_messages))
        if taken < len(numbers):
            scanned = int(numbers[taken - 1]) + 1
            numbers = numbers[:taken]
        return (entries[:taken] if int(numbers[-1]) == taken - 1 else entries[numbers]), scanned

    def _there(self, entries: Entries) -> npt.NDArray[np.bool_]:
        """Which entries have a whole record in the log."""
        log_offsets = entries["log_offset"]
        there: npt.NDArray[np.bool_] = (log_offsets >= self._log.min_offset) & (entries["size"] != FILLER_SIZE)
        for damage in self._damages:
            there &= (log_offsets + entries["size"] <= damage.log_offset) | (log_offsets >= damage.end)
        return there

    def _any_there(self, entries: Entries) -> bool:
        return bool(self._there(entries).any())

    def _pieces(self, log_offsets: Ints, sizes: Ints) -> "list[bytes | memoryview]":
        """The records' bytes, by parts of the log that are without a gap."""
        ends = log_offsets + sizes
        breaks = np.flatnonzero(ends[:-1] != log_offsets[1:])
        starts = log_offsets[np.concatenate(([0], breaks + 1))].tolist()
        stops = ends[np.concatenate((breaks, [len(ends) - 1]))].tolist()
        return self._log.stretches(starts, stops)
