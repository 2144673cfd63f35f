"""The first reading's memory of each line of messages, so that the second one opens only lines that may matter.

It keeps a line's place in the file, its queue, and the lowest and highest of its numbers. ``chosen`` may name a line
that does not matter after all, never leaves out one that does: ``pick`` decides by the line itself.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from dejamq_analytics.survey import chunks, keys, places
from dejamq_analytics.survey.chunks import Chunk, LineSpan
from dejamq_analytics.survey.keys import Numbers
from dejamq_analytics.survey.pick import Pick, Reasons
from dejamq_analytics.survey.places import BLOCK, Place
from dejamq_analytics.survey.sends import SENDS
from dejamq_analytics.survey.wire import JournalLine

ENTRY = np.dtype([
    (name, "<i8")
    for name in ("stream", "at", "size", "seq", "messages", "lowest", "highest", "first_id", "last_id")
])  # fmt: skip
SPARSE = 8
"""A line is simply read when its numbers span this many times as many places as it has messages."""


class Stream(NamedTuple):
    """Common fields of lines of one kind, process and queue. Lines of sends name no queue."""

    event: str
    boot_id: str
    group: str = ""
    topic: str = ""
    broker_name: str = ""
    queue_id: int = -1
    pq_id: int = 0

    @property
    def place(self) -> Place:
        return places.place(self.broker_name, self.topic, self.queue_id)


class StoredIndex(msgspec.Struct):
    """An index as it is kept between the readings; ``rows`` are of ``ENTRY``."""

    chunk: Chunk
    streams: list[Stream]
    rows: bytes


class ChunkIndex:
    """Of one part of a journal."""

    def __init__(self) -> None:
        self._streams: dict[Stream, int] = {}
        self._rows: list[tuple[int, ...]] = []

    def add(self, line: JournalLine, span: LineSpan) -> None:
        """A line of deliveries, results, records or sends."""
        if line.event in SENDS:
            self._add(Stream(line.event, line.boot_id), line, span, [0])
        elif line.event == "APPEND":
            for number, (topic, queue_id) in enumerate(zip(line.topics, line.queue_ids, strict=False)):
                stream = Stream(line.event, line.boot_id, "", topic, line.broker_name, queue_id)
                offsets = line.queue_offsets
                if len(line.topics) > 1:
                    offsets = [at for at, one in zip(offsets, line.queue_index, strict=False) if one == number]
                self._add(stream, line, span, offsets)
        else:
            queue = line.topic, line.broker_name, line.queue_id, line.pq_id
            self._add(Stream(line.event, line.boot_id, line.group, *queue), line, span, line.queue_offsets)

    def _add(self, stream: Stream, line: JournalLine, span: LineSpan, offsets: list[int]) -> None:
        number = self._streams.setdefault(stream, len(self._streams))
        offsets, ids = offsets or [0], line.delivery_ids or [-1]
        ranges = min(offsets), max(offsets), min(ids), max(ids)
        self._rows.append((number, span.at, span.size, line.seq, len(offsets), *ranges))

    def stored(self, chunk: Chunk) -> bytes:
        """All of it."""
        rows = np.array(self._rows, np.int64).tobytes()
        return msgspec.msgpack.encode(StoredIndex(chunk, [*self._streams], rows))


def picked(stored: StoredIndex, reasons: Reasons) -> Iterator[tuple[str, str]]:
    """The texts to take of this part, each with its file. Raises BadInput when the file is gone."""
    lines = chunks.read_some(stored.chunk, chosen(stored, reasons))
    return Pick(reasons).taken((text, line, stored.chunk.file) for text, line in lines)


def chosen(stored: StoredIndex, reasons: Reasons) -> list[LineSpan]:
    """The lines that may matter, in the order of the file."""
    rows = np.frombuffer(stored.rows, ENTRY)
    ways, taken = Ways(reasons), np.zeros(len(rows), bool)
    order = np.argsort(rows["stream"], kind="stable")
    bounds = np.searchsorted(rows["stream"][order], np.arange(len(stored.streams) + 1))
    for number, stream in enumerate(stored.streams):
        mine = order[bounds[number] : bounds[number + 1]]
        taken[mine] = ways.matter(stream, rows[mine])
    found = rows[taken]
    return sorted({LineSpan(*place) for place in zip(found["at"].tolist(), found["size"].tolist(), strict=True)})


class Ways:
    """The reasons of ``pick`` to take a line, as far as an index can tell them."""

    def __init__(self, reasons: Reasons) -> None:
        self._wanted, self._reasons = reasons.wanted, reasons

    def matter(self, stream: Stream, rows: Numbers) -> Numbers | bool:
        """Whether each line may; one answer may be for all."""
        wanted, event = self._wanted, stream.event
        if event in SENDS:
            return True
        if event == "APPEND":
            if (stream.broker_name, stream.boot_id) in wanted.gone:
                return True
        elif stream.group in wanted.groups or stream.topic in wanted.topics:
            return True
        found = self._at_places(stream, rows)
        for lowest, highest, numbers in self._asked(stream, rows):
            found |= _any_between(lowest, highest, numbers)
        if event == "DELIVER":
            for one in self._reasons.ranges.get((stream.boot_id, stream.group, stream.place), ()):
                inside = (rows["seq"] >= one.first_seq) & (rows["seq"] <= one.last_seq)
                found |= inside & (rows["lowest"] < one.below)
        return found

    def _asked(self, stream: Stream, rows: Numbers) -> Iterator[tuple[Numbers, Numbers, Any]]:
        """Ranges of each line, and the numbers of which one in its range makes a line matter."""
        wanted = self._wanted
        yield rows["lowest"] >> BLOCK, rows["highest"] >> BLOCK, wanted.blocks.get(stream.place, ())
        if stream.event != "APPEND":
            yield rows["first_id"], rows["last_id"], wanted.asked.get(stream.boot_id, ())
            yield rows["lowest"], rows["highest"], wanted.spots.get(stream.place, ())
        if stream.event == "DELIVER":
            yield rows["lowest"], rows["highest"], self._reasons.marks.get((stream.boot_id, stream.pq_id), ())

    def _at_places(self, stream: Stream, rows: Numbers) -> Numbers:
        """Whether a candidate may have been there."""
        if not len(self._wanted.places):
            return np.zeros(len(rows), bool)
        spans = rows["highest"] - rows["lowest"] + 1
        # numbers that no broker gave may be of any size
        found: Numbers = (spans > SPARSE * rows["messages"]) | (spans < 1)
        near = np.flatnonzero(~found)
        if len(near):
            spans = spans[near]
            begins = np.concatenate(([0], np.cumsum(spans)[:-1]))
            offsets = np.repeat(rows["lowest"][near] - begins, spans) + np.arange(spans.sum())
            hashed = keys.at(keys.hashed([stream.place]), offsets)
            found[near] = np.logical_or.reduceat(self._reasons.places.among(hashed), begins)
        return found


def _any_between(lowest: Numbers, highest: Numbers, numbers: Any) -> Numbers:
    """Whether one of the numbers lies between, both included."""
    if not numbers:
        return np.zeros(len(lowest), bool)
    known = np.array(sorted(numbers))
    first, behind = np.searchsorted(known, lowest, "left"), np.searchsorted(known, highest, "right")
    between: Numbers = first < behind
    return between
