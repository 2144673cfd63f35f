"""The second reading: the lines of messages that may matter.

A line of deliveries or results is taken whole when one of its messages matters. Of appends and sends only the messages
that matter are taken: an append without its delivery would look as if nobody had been given it.

Rules declare of which events they need such lines. Which messages matter they cannot declare: a need is asked of one
line, and a message matters for what all other lines say of it. The stories of the tests tell where a reason is missing:
an audit of them reads what is picked here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from dejamq_proto.journal.events import Append, SendTry
from dejamq_proto.journal.lines import tag_of
from dejamq_proto.journal.readings import COLUMNS as COLUMNS_OF

from dejamq_analytics.survey import keys, places, wire
from dejamq_analytics.survey.keys import ChosenHashes, Numbers
from dejamq_analytics.survey.order import Range
from dejamq_analytics.survey.places import BLOCK, Place
from dejamq_analytics.survey.sends import PairedSends
from dejamq_analytics.survey.wire import JournalLine

COLUMNS = "text string, file string"
SCHEMA = pa.schema([("text", pa.string()), ("file", pa.string())])
NAMED = frozenset(tag_of(event) for event, of in COLUMNS_OF.items() if "unique_keys" in of.always) & wire.PICKED
"""Events that tell the unique keys of their messages."""
SIDE_BY_SIDE = frozenset(COLUMNS_OF[Append].every + COLUMNS_OF[SendTry].every)


class WantedLines(msgspec.Struct):
    """The choice of lines. ``keys`` are hashes of unique keys, ``places`` of places of candidates; ``blocks`` by queue.

    ``spots`` are offsets by queue, of deliveries and results. ``asked`` are delivery ids, ``marks`` (boot id, pq id,
    queue offset); all of ``groups`` and ``topics`` is taken, and of the lines in ``ranges``. ``gone``: (broker, boot
    id) and the log offset from which its records were lost.
    """

    keys: Any
    places: Any
    blocks: dict[Place, set[int]] = {}
    spots: dict[Place, set[int]] = {}
    asked: dict[str, set[int]] = {}
    marks: set[tuple[str, int, int]] = set()
    groups: set[str] = set()
    topics: set[str] = set()
    ranges: list[Range] = []
    gone: dict[tuple[str, str], int] = {}
    group: str | None = None


def pick_texts(wanted: Callable[[], WantedLines]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow`` over the columns text and file; ``wanted`` is called where the task runs."""

    def pick(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = Pick(Reasons(wanted()))
        for batch in batches:
            yield as_batch(task.taken([(*one, file) for one, file in wire.of_batch(batch)]))

    return pick


def as_batch(taken: Iterable[tuple[str, str]]) -> pa.RecordBatch:
    """Texts with their files."""
    every = list(taken)
    columns = [text for text, _ in every], [file for _, file in every]
    return pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], schema=SCHEMA)


class Reasons:
    """The wanted lines, made ready for a question about every line: once a task, as there may be many keys.

    ``marks`` are offsets by boot id and pq id, ``ranges`` are by boot id, group and queue.
    """

    def __init__(self, wanted: WantedLines) -> None:
        self.wanted = wanted
        self.keys, self.places = ChosenHashes(wanted.keys), ChosenHashes(wanted.places)
        self.marks = defaultdict[tuple[str, int], set[int]](set)
        for boot, pq, offset in wanted.marks:
            self.marks[boot, pq].add(offset)
        self.ranges = defaultdict[tuple[str, str, Place], list[Range]](list)
        for one in wanted.ranges:
            self.ranges[one.boot_id, one.group, one.place].append(one)


class Pick:
    """The lines of a task, or of a part of a journal: those that the first reading saw together."""

    def __init__(self, reasons: Reasons) -> None:
        self._wanted, self._reasons = reasons.wanted, reasons
        self._sends = PairedSends()
        self._seeds: dict[Place, int] = {}

    def taken(self, read: Iterable[tuple[memoryview, JournalLine | None, str]]) -> Iterator[tuple[str, str]]:
        """Of texts, what they say and their files: those to take, each with its file."""
        lines = [
            (text, line, file)
            for text, line, file in read
            if line is not None and wire.concerns(line, self._wanted.group)
        ]  # fmt: skip
        matter = self._matter([line for _, line, _ in lines])
        for number, (text, line, file) in enumerate(lines):
            for one in self._of(line, text, file, matter[number]):
                yield one, file

    def _matter(self, lines: Sequence[JournalLine]) -> list[Numbers]:
        """Of each line with messages, which of them are candidates; of all lines at once, for the sake of speed.

        Results name no keys: for them it is their places that are a candidate's.
        """
        found: list[Numbers] = [np.empty(0, bool)] * len(lines)
        told = {number: _names_of(line) for number, line in enumerate(lines) if line.event in NAMED}
        mine = self._reasons.keys.among(keys.hashed([name for names in told.values() for name in names]))
        _share_out(mine, {number: len(names) for number, names in told.items()}, found)
        results = {number: line for number, line in enumerate(lines) if line.event == "RESULT"}
        mine = self._reasons.places.among(self._places_of([*results.values()]))
        _share_out(mine, {number: len(line.queue_offsets) for number, line in results.items()}, found)
        return found

    def _places_of(self, results: Sequence[JournalLine]) -> Numbers:
        """Hashes of the places whose results these lines tell."""
        seeds = np.array([self._seed(line) for line in results], np.uint64)
        offsets = [offset for line in results for offset in line.queue_offsets]
        each = np.repeat(seeds, [len(line.queue_offsets) for line in results])
        return keys.at(each, np.array(offsets, np.int64))

    def _seed(self, line: JournalLine) -> int:
        where = places.place(line.broker_name, line.topic, line.queue_id)
        found = self._seeds.get(where)
        if found is None:
            found = self._seeds[where] = int(keys.hashed([where])[0])
        return found

    def _of(self, line: JournalLine, text: memoryview, file: str, matter: Numbers) -> Iterator[str]:
        if line.event == "DELIVER":
            if not wire.whole(line) and (matter.any() or self._takes(line)):
                yield _text(text)
        elif line.event == "RESULT":
            if matter.any() or self._takes_result(line):
                yield _text(text)
        elif line.event == "APPEND":
            if not wire.whole(line):
                yield from self._of_append(line, text, matter)
        elif line.event == "SEND_TRY":
            self._sends.tried(line, text, file)
        elif line.event == "SEND_RESULT":
            yield from self._of_send(line, text)

    def _takes(self, line: JournalLine) -> bool:
        """A line of deliveries, for another reason than a key."""
        wanted = self._wanted
        if line.group in wanted.groups or line.topic in wanted.topics:
            return True
        asked = wanted.asked.get(line.boot_id)
        if asked and not asked.isdisjoint(line.delivery_ids):
            return True
        marks = self._reasons.marks.get((line.boot_id, line.pq_id))
        if marks and not marks.isdisjoint(line.queue_offsets):
            return True
        where = places.place(line.broker_name, line.topic, line.queue_id)
        return self._is_there(where, line.queue_offsets) or self._in_range(line, where)

    def _takes_result(self, line: JournalLine) -> bool:
        if line.group in self._wanted.groups or line.topic in self._wanted.topics:
            return True
        asked = self._wanted.asked.get(line.boot_id)
        if asked and not asked.isdisjoint(line.delivery_ids):
            return True
        return self._is_there(places.place(line.broker_name, line.topic, line.queue_id), line.queue_offsets)

    def _is_there(self, where: Place, offsets: Sequence[int]) -> bool:
        """At a spot, or in a block."""
        spots = self._wanted.spots.get(where)
        if spots and not spots.isdisjoint(offsets):
            return True
        blocks = self._wanted.blocks.get(where, ())
        return bool(blocks) and any(offset >> BLOCK in blocks for offset in offsets)

    def _in_range(self, line: JournalLine, where: Place) -> bool:
        ranges = self._reasons.ranges.get((line.boot_id, line.group, where))
        if not ranges:
            return False
        lowest = min(line.queue_offsets)
        return any(one.first_seq <= line.seq <= one.last_seq and lowest < one.below for one in ranges)

    def _of_append(self, line: JournalLine, text: memoryview, matter: Numbers) -> Iterator[str]:
        named = [places.place(line.broker_name, *one) for one in zip(line.topics, line.queue_ids, strict=False)]
        nothing: set[int] = set()
        blocks = [self._wanted.blocks.get(where, nothing) for where in named]
        lost = self._wanted.gone.get((line.broker_name, line.boot_id))
        chosen = matter.copy()
        if any(blocks):
            for number, (queue, offset) in enumerate(zip(line.queue_index, line.queue_offsets, strict=True)):
                if queue < len(blocks) and offset >> BLOCK in blocks[queue]:
                    chosen[number] = True
        if lost is not None:
            chosen |= np.array(line.log_offsets) >= lost
        if chosen.any():
            yield _with(text, chosen)

    def _of_send(self, line: JournalLine, text: memoryview) -> Iterator[str]:
        sent = self._sends.answered(line)
        if sent is None or line.outcome != "ok":
            return  # kept by the first reading
        chosen = self._reasons.keys.among(keys.hashed(sent.line.unique_keys))
        if chosen.any():
            yield _with(sent.text, chosen)
            yield _text(text)


def _share_out(values: Numbers, sizes: Mapping[int, int], found: list[Numbers]) -> None:
    """Give each line, by its number, as many of the values as it has messages."""
    at = 0
    for number, size in sizes.items():
        found[number] = values[at : at + size]
        at += size


def _names_of(line: JournalLine) -> Sequence[str]:
    """As the first reading named them. Of a line with several queues that is not needed: see ``whole``."""
    if "" not in line.unique_keys:
        return line.unique_keys
    if line.event == "DELIVER":
        where = [places.place(line.broker_name, line.topic, line.queue_id)] * len(line.unique_keys)
    else:
        named = [places.place(line.broker_name, *one) for one in zip(line.topics, line.queue_ids, strict=False)]
        where = [named[one] if one < len(named) else "" for one in line.queue_index]
    padded = [*line.log_offsets, *[0] * len(line.unique_keys)]
    where += [""] * (len(line.unique_keys) - len(where))
    return [key or f"{place}|{log}" for key, place, log in zip(line.unique_keys, where, padded, strict=False)]


def _text(text: memoryview | bytes) -> str:
    return bytes(text).decode("utf-8", "replace")


def _with(text: memoryview | bytes, chosen: Numbers) -> str:
    """The line with the chosen messages alone."""
    told: dict[str, Any] = msgspec.json.decode(text)
    for name in SIDE_BY_SIDE:
        values = told.get(name)
        if isinstance(values, list) and len(values) == len(chosen):
            told[name] = [value for value, mine in zip(values, chosen.tolist(), strict=True) if mine]
    return msgspec.json.encode(told).decode()
