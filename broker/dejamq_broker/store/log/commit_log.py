"""The commit log: every record of every queue, in the order of arrival. Source: RocketMQ ``CommitLog``.

One thread appends. ``max_offset`` is published after the bytes are in place, so any thread may read below it.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

import msgspec
import numpy as np
from dejamq_proto.records.record import BLANK_SIZE, MAGIC_BLANK, PAIR
from dejamq_proto.records.run import Bytes

from dejamq_broker.store.files.file_queue import FileQueue
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.log.batch import Ints

SHORT_BYTES = 64 << 10
"""Stretches of the log that are shorter on average are read as one copy: to send each by itself costs more."""
NewFile = Callable[[int], MappedFile]
"""Make, or hand over, the file that begins at this log offset. Raises OSError."""


class AppendPlan(msgspec.Struct, frozen=True):
    """Where records will go. A span is (first record number, log offset): a new one begins where a file is full."""

    log_offsets: Ints
    spans: list[tuple[int, int]]
    blanks: list[int]
    end: int


class CommitLog:
    """Appends bytes into mapped files and reads them back."""

    def __init__(self, files: FileQueue, new_file: NewFile) -> None:
        self.files, self._new_file = files, new_file
        self.max_offset = 0
        self._current: MappedFile | None = None
        self._room_end = 0
        self.last_store_timestamp_ms = 0

    @property
    def min_offset(self) -> int:
        return self.files.start

    @property
    def largest_record(self) -> int:
        return self.files.file_size - BLANK_SIZE

    def has_room(self, size: int) -> bool:
        """Whether records of this size in all go where the log ends, into a file that is there. Changes nothing."""
        end = self.max_offset + size + BLANK_SIZE
        if end > self._room_end:
            self._current = self.files.at(self.max_offset)
            self._room_end = self._current.end if self._current else 0
        return end <= self._room_end

    def plan(self, sizes: Ints, positions: Ints) -> AppendPlan:
        """Where records of these sizes go, none larger than ``largest_record``. Changes nothing.

        ``positions`` are where they begin in the run.

        A run is split where a file ends, always between two records. RocketMQ moves a whole batch to the next file;
        readers meet bytes of the same form.
        """
        at, total = self.max_offset, positions.item(-1) + sizes.item(-1)
        if self.has_room(total):
            return AppendPlan(positions + at, [(0, at)], [], at + total)
        return self._split(sizes, positions + sizes)

    def _split(self, sizes: Ints, ends: Ints) -> AppendPlan:
        log_offsets = np.empty(len(sizes), np.int64)
        spans: list[tuple[int, int]] = []
        blanks: list[int] = []
        first, stored, at = 0, 0, self.max_offset
        while first < len(sizes):
            room = self.files.file_size - at % self.files.file_size - BLANK_SIZE
            after = int(np.searchsorted(ends, stored + room, side="right"))
            if after == first:
                blanks.append(at)
                at += room + BLANK_SIZE
                continue
            spans.append((first, at))
            log_offsets[first:after] = at + ends[first:after] - sizes[first:after] - stored
            at += int(ends[after - 1]) - stored
            first, stored = after, int(ends[after - 1])
        return AppendPlan(log_offsets, spans, blanks, at)

    def make_room(self, end: int) -> None:
        """Have files up to this offset. Raises OSError when the disk is full; nothing is stored then."""
        while self.files.end < end or not self.files.files:
            start = self.files.end if self.files.files else self.max_offset
            self.files.add(self._new_file(start))

    def write(self, plan: AppendPlan, data: Bytes, sizes: Ints, store_timestamp_ms: int) -> None:
        """Put planned records into the log and publish them."""
        view = data.data
        if len(plan.spans) == 1 and not plan.blanks and self.has_room(len(view)):
            self.write_here(view, store_timestamp_ms)
            return
        edges = [first for first, _ in plan.spans[1:]] + [len(sizes)]
        parts: list[tuple[int, memoryview]] = []
        at = 0
        for (first, log_offset), after in zip(plan.spans, edges, strict=True):
            size = int(sizes[first:after].sum())
            parts.append((log_offset, view[at : at + size]))
            at += size
        for log_offset in plan.blanks:
            room = self.files.file_size - log_offset % self.files.file_size
            parts.append((log_offset, memoryview(PAIR.pack(room, MAGIC_BLANK))))
        # in the log's order: a kill in between, or a dump that looks meanwhile, finds an end and no gap
        for log_offset, part in sorted(parts, key=itemgetter(0)):
            self._put(log_offset, part)
        self.max_offset = plan.end
        # after the offset: who reads the time first has all records up to it
        self.last_store_timestamp_ms = store_timestamp_ms

    def write_here(self, data: memoryview | bytearray, store_timestamp_ms: int) -> None:
        """Put records where the log ends and publish them. ``has_room`` has said so for all of them."""
        file = self._current
        assert file is not None, "has_room comes before write_here"
        file.write(self.max_offset - file.start, data)
        self.max_offset += len(data)
        # after the offset, as in ``write``
        self.last_store_timestamp_ms = store_timestamp_ms

    def put_copy(self, data: memoryview, store_timestamp_ms: int) -> None:
        """Put bytes of another log where this one ends, and publish them. They go into one file, that is there."""
        self._put(self.max_offset, data)
        self.max_offset += len(data)
        # after the offset, as in ``write``
        self.last_store_timestamp_ms = max(self.last_store_timestamp_ms, store_timestamp_ms)

    def read(self, log_offset: int, size: int) -> bytes:
        """A copy of published bytes; shorter where a file or the log ends."""
        size = min(size, self.max_offset - log_offset)
        return self.files.read(log_offset, size) if size > 0 else b""

    def view(self, log_offset: int, size: int) -> memoryview:
        """As ``read``, without a copy, for a caller that lets go of it soon."""
        return self.files.view(log_offset, max(0, min(size, self.max_offset - log_offset)))

    def stretches(self, starts: Sequence[int], ends: Sequence[int]) -> "list[bytes | memoryview]":
        """The bytes between these offsets, in the log's order: views of the log, or one copy of many short pieces.

        Messages of a queue lie between messages of others. In one file it takes one look for all of them; a look each
        was a third of the cost of a pull of many.
        """
        first = starts[0]
        view = self.view(first, ends[-1] - first)
        places = zip(starts, ends, strict=True)
        if len(view) == ends[-1] - first:
            pieces = [view[start - first : end - first] for start, end in places]
        else:
            pieces = [piece for start, end in places for piece in self._stretch(start, end)]
        if len(pieces) > 1 and sum(map(len, pieces)) < len(pieces) * SHORT_BYTES:
            return [b"".join(pieces)]
        return list(pieces)

    def _stretch(self, log_offset: int, end: int) -> Iterator[memoryview]:
        """May lie in different files; ends where one is gone."""
        while log_offset < end and (part := self.view(log_offset, end - log_offset)):
            yield part
            log_offset += len(part)

    def _put(self, log_offset: int, data: memoryview) -> None:
        file = self.files.at(log_offset)
        assert file is not None, "make_room comes before write"
        file.write(log_offset - file.start, data)
