"""Reads journals twice: first to see which messages may be part of a finding, then to take their lines."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from dejamq_analytics.rules.audiences import read_by_several
from dejamq_analytics.sources.overlap import Overlap, Spot
from dejamq_analytics.survey import keys, order, places
from dejamq_analytics.survey.keys import Candidates
from dejamq_analytics.survey.note import LineExtent, Note, blocks_of
from dejamq_analytics.survey.order import QueuePiece, Range
from dejamq_analytics.survey.overlap import KnownDeliveries, overlap
from dejamq_analytics.survey.pick import WantedLines
from dejamq_analytics.survey.places import Place
from dejamq_analytics.survey.readings import Readings, Texts
from dejamq_analytics.survey.wire import JournalLine


class Surveyed(NamedTuple):
    """``texts`` of all lines but those that no finding can rest on.

    ``extents`` are of all lines, ``messages`` and ``deliveries`` of all groups count everything, and so does
    ``overlap``. ``ranges`` say what had been reached before lines that may be out of order.
    """

    texts: Texts
    extents: list[LineExtent]
    messages: int
    deliveries: dict[str, int]
    ranges: list[Range]
    overlap: Overlap


def survey(read: Readings, group: str | None = None) -> Surveyed:
    """Of these journals; for one consumer group, or all. Raises BadInput when one goes away meanwhile."""
    notes = read.first()
    jumps = [jump for note in notes for jump in note.jumps]
    extents = [_steady(extent, jumps) for note in notes for extent in note.extents]
    whole = keys.together(read.judged(brokers_known=any(one.role == "broker" for one in extents)))
    wanted, had = wanted_of(notes, whole, group)
    if wanted.gone:
        lost = _lost(read, wanted)
        wanted.keys = np.concatenate([wanted.keys, lost.keys])
        wanted.places = np.concatenate([wanted.places, lost.places])
    counts = defaultdict[str, int](int)
    for note in notes:
        for name, count in note.counts.items():
            counts[name] += count
    taken = read.second(wanted, with_kept=True)
    return Surveyed(taken, extents, whole.messages, dict(counts), wanted.ranges, had)


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


def _lost(read: Readings, wanted: WantedLines) -> Candidates:
    """Senders and places of lost messages: one more reading, in the rare case."""
    only = WantedLines(keys=keys.NOTHING.keys, places=keys.NOTHING.places, gone=wanted.gone, group=wanted.group)
    texts = read.second(only, with_kept=False).each()
    lines = [msgspec.json.decode(text, type=JournalLine) for text, _ in texts]
    appended = [line for line in lines if line.event == "APPEND"]
    hashes = keys.hashed([key for line in appended for key in line.unique_keys if key])
    where = [
        (places.place(line.broker_name, line.topics[queue], line.queue_ids[queue]), offset)
        for line in appended
        for queue, offset in zip(line.queue_index, line.queue_offsets, strict=True)
    ]
    there = keys.at(keys.hashed([place for place, _ in where]), np.array([offset for _, offset in where], np.int64))
    return Candidates(hashes, there.astype(np.uint32), 0)
