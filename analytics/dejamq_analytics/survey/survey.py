"""Reads journals twice: first to see which messages may be part of a finding, then to take their lines."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from dejamq_analytics.rules.audiences import read_by_several
from dejamq_analytics.sources.facts import settled
from dejamq_analytics.sources.overlap import Overlap, Spot
from dejamq_analytics.survey import keys, look, order, places
from dejamq_analytics.survey.keys import Candidates
from dejamq_analytics.survey.note import LineExtent, Note, blocks_of
from dejamq_analytics.survey.order import QueuePiece, Range
from dejamq_analytics.survey.overlap import KnownDeliveries, overlap
from dejamq_analytics.survey.pick import WantedLines
from dejamq_analytics.survey.places import Place
from dejamq_analytics.survey.readings import Readings, bad_input_of_tasks
from dejamq_analytics.survey.wire import JournalLine

JUDGED = "keys binary, places binary, messages bigint"
TOGETHER, FEWEST_TASKS = 1_000_000, 4


class Surveyed(NamedTuple):
    """``lines`` as ``journals.read_lines`` has them, without those that no finding can rest on.

    ``extents`` are of all lines, ``messages`` and ``deliveries`` of all groups count everything, and so does
    ``overlap``. ``ranges`` say what had been reached before lines that may be out of order.
    """

    texts: DataFrame
    extents: list[LineExtent]
    messages: int
    deliveries: dict[str, int]
    ranges: list[Range]
    overlap: Overlap

    def size(self) -> int:
        """Bytes of the lines."""
        row = self.texts.agg(sf.coalesce(sf.sum(sf.octet_length("text")), sf.lit(0)).alias("bytes")).first()
        return int(row.bytes) if row else 0


@bad_input_of_tasks()
def survey(read: Readings, group: str | None = None) -> Surveyed:
    """Of these journals; for one consumer group, or all. Raises BadInput when one goes away meanwhile."""
    looked = settled(read.first())
    notes = _notes(looked)
    jumps = [jump for note in notes for jump in note.jumps]
    extents = [_steady(extent, jumps) for note in notes for extent in note.extents]
    whole = _candidates(looked, notes)
    wanted, had = wanted_of(notes, whole, group)
    if wanted.gone:
        lost = _lost(read, looked, wanted)
        wanted.keys = np.concatenate([wanted.keys, lost.keys])
        wanted.places = np.concatenate([wanted.places, lost.places])
    picked = read.second(looked, wanted)
    kept = looked.where(sf.col("kind") == look.LINE).select("text", "file").unionByName(picked)
    counts = defaultdict[str, int](int)
    for note in notes:
        for name, count in note.counts.items():
            counts[name] += count
    return Surveyed(settled(kept), extents, whole.messages, dict(counts), wanted.ranges, had)


def _notes(looked: DataFrame) -> list[Note]:
    decode = msgspec.msgpack.Decoder(Note).decode
    return [decode(bytes(row.data)) for row in looked.where(sf.col("kind") == look.NOTE).select("data").collect()]


def _candidates(looked: DataFrame, notes: Sequence[Note]) -> Candidates:
    """Bring all entries of a bucket into one task; it holds the entries of about a million deliveries."""
    tasks = sum(sum(note.counts.values()) for note in notes) // TOGETHER
    entries = looked.where(sf.col("kind").isin(look.KEYS, look.BUSINESS)).select("kind", "bucket", "data")
    apart = entries.repartition(min(max(tasks, FEWEST_TASKS), keys.BUCKETS), "kind", "bucket")
    brokers_known = any(extent.role == "broker" for note in notes for extent in note.extents)
    judged = apart.mapInArrow(_judge(brokers_known), JUDGED).collect()
    found = [np.frombuffer(bytes(row["keys"]), np.uint64) for row in judged]
    given = [np.frombuffer(bytes(row["places"]), np.uint32) for row in judged]
    return Candidates(
        np.concatenate([keys.NOTHING.keys, *found]), np.concatenate([keys.NOTHING.places, *given]),
        sum(row["messages"] for row in judged),
    )  # fmt: skip


def _judge(brokers_known: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow`` over kind, bucket and entries."""

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        buckets = defaultdict[tuple[str, int], list[bytes]](list)
        for batch in batches:
            for kind, bucket, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                buckets[kind, bucket].append(data)
        for (kind, _), several in buckets.items():
            found = keys.judged(b"".join(several), business=kind == look.BUSINESS, brokers_known=brokers_known)
            row = {"keys": found.keys.tobytes(), "places": found.places.tobytes(), "messages": found.messages}
            yield pa.RecordBatch.from_pydict({name: [value] for name, value in row.items()})

    return judge


def wanted_of(notes: Sequence[Note], whole: Candidates, group: str | None) -> tuple[WantedLines, Overlap]:
    """The lines for the second reading, by the reports of all tasks of the first; and the overlap of groups."""
    openings = [opening for note in notes for opening in note.openings]
    starts: dict[tuple[str, str], int] = {}
    filtered = {one for note in notes for one in note.filtered}
    for one in openings:
        where = places.place(one.broker_name, one.topic, one.queue_id), one.group
        if (one.group, one.topic) not in filtered and not one.topic.startswith("%"):
            starts[where] = min(starts.get(where, one.start_offset), one.start_offset)
    asked = defaultdict[str, set[int]](set)
    for note in notes:
        for boot, ids in note.asked.items():
            asked[boot].update(ids)
    marks = _highest(mark for note in notes for mark in note.marks)
    jumps = [jump for note in notes for jump in note.jumps]
    pieces = [_in_step(piece, jumps) for note in notes for piece in note.pieces]
    blocks = blocks_of(notes)
    shared = read_by_several((one.broker_name, one.topic, one.group) for one in openings)
    had = overlap(blocks, pieces, _known(notes, shared))
    return WantedLines(
        keys=whole.keys, places=whole.places, blocks=places.uneven(blocks, starts), asked=dict(asked),
        marks={(boot, pq, mark) for (boot, pq), mark in marks.items()},
        groups={one.group for one in openings if one.own},
        topics=shared - had.topics, spots=_by_queue(had.spots),
        ranges=order.disagreeing(pieces), gone=_gone(notes), group=group,
    ), had  # fmt: skip


def _known(notes: Sequence[Note], shared: set[str]) -> KnownDeliveries:
    queues = {place: queue for note in notes for place, queue in note.queues.items()}
    ended = {end.broker_name for note in notes for end in note.ends}
    return KnownDeliveries(queues, shared.difference(*(note.uncounted for note in notes)), ended)


def _by_queue(spots: Iterable[Spot]) -> dict[Place, set[int]]:
    found = defaultdict[Place, set[int]](set)
    for broker, topic, queue_id, first, last in spots:
        found[places.place(broker, topic, queue_id)].update(range(first, last + 1))
    return dict(found)


def _highest(marks: Iterator[tuple[str, int, int]]) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for boot, pq, mark in marks:
        found[boot, pq] = max(found.get((boot, pq), -1), mark)
    return found


def _in_step(piece: QueuePiece, jumps: Sequence[tuple[str, int, int]]) -> QueuePiece:
    """With times as if no clock had jumped; see ``journals.steady``."""
    ahead = ahead_us(jumps, piece.boot_id, piece.first_seq)
    return msgspec.structs.replace(piece, first_us=piece.first_us - ahead, last_us=piece.last_us - ahead)


def _steady(extent: LineExtent, jumps: Sequence[tuple[str, int, int]]) -> LineExtent:
    ahead = ahead_us(jumps, extent.boot_id, extent.first_seq)
    extent.first_wall_us, extent.last_wall_us = extent.first_wall_us - ahead, extent.last_wall_us - ahead
    return extent


def ahead_us(jumps: Sequence[tuple[str, int, int]], boot_id: str, seq: int) -> int:
    """By how much a clock had jumped at that line."""
    return sum(ms for boot, at, ms in jumps if boot == boot_id and at <= seq) * 1000


def _gone(notes: Sequence[Note]) -> dict[tuple[str, str], int]:
    """Where a log ended before what an earlier start had stored: by broker and start, from which log offset on."""
    ends = [end for note in notes for end in note.ends]
    found: dict[tuple[str, str], int] = {}
    for note in notes:
        for broker, boot, highest, began_us in note.stored:
            for end in ends:
                another = end.broker_name == broker and end.boot_id != boot and began_us < end.wall_us
                if another and highest >= end.log_offset:
                    found[broker, boot] = min(found.get((broker, boot), end.log_offset), end.log_offset)
    return found


def _lost(read: Readings, looked: DataFrame, wanted: WantedLines) -> Candidates:
    """Senders and places of lost messages: one more reading, in the rare case."""
    only = WantedLines(keys=keys.NOTHING.keys, places=keys.NOTHING.places, gone=wanted.gone, group=wanted.group)
    lines = [msgspec.json.decode(row.text, type=JournalLine) for row in read.second(looked, only).collect()]
    appended = [line for line in lines if line.event == "APPEND"]
    hashes = keys.hashed([key for line in appended for key in line.unique_keys if key])
    where = [
        (places.place(line.broker_name, line.topics[queue], line.queue_ids[queue]), offset)
        for line in appended
        for queue, offset in zip(line.queue_index, line.queue_offsets, strict=True)
    ]
    there = keys.at(keys.hashed([place for place, _ in where]), np.array([offset for _, offset in where], np.int64))
    return Candidates(hashes, there.astype(np.uint32), 0)
