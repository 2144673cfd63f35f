"""The first reading's memory of messages, kept instead of their lines."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from dejamq_analytics.survey import keys, places, wire
from dejamq_analytics.survey.keys import Numbers
from dejamq_analytics.survey.note import Note
from dejamq_analytics.survey.order import Pieces, QueuePiece
from dejamq_analytics.survey.places import STORED, Blocks, Place, Queue
from dejamq_analytics.survey.wire import JournalLine

AT_ONCE = 20_000
"""Entries that are sorted into buckets together: with ten times as many, they are too many for a processor's caches."""
UNCOUNTED = "?"
"""The side of lines that are kept whole: what they name is in no block."""
Bucket = tuple[bool, int, bytes]
"""Whether its entries are by business, its number, and they."""


class Messages:
    """Memory of messages: entries, blocks of places, pieces of order, counts."""

    def __init__(self) -> None:
        self.pieces = Pieces()
        self._blocks: Blocks = {}
        self._counts: dict[str, int] = {}
        self._queues: dict[Place, Queue] = {}
        self._uncounted: set[str] = set()
        self._highest: dict[tuple[str, str], tuple[int, int]] = {}
        self._names: list[str] = []
        self._business: list[str] = []
        self._with_business: list[int] = []
        self._runs: list[tuple[int, int, int]] = []
        self._offsets: list[int] = []
        self._logs: list[int] = []
        self._streams: dict[tuple[Place, str], int] = {}
        self._delivered: list[tuple[QueuePiece, int, int]] = []

    def delivered(self, line: JournalLine) -> bool:
        """Whether the line is to be kept."""
        self._counts[line.group] = self._counts.get(line.group, 0) + len(line.delivery_ids)
        where = places.place(line.broker_name, line.topic, line.queue_id)
        code = keys.DELIVERED | keys.COUNTS | keys.receiver(line.group)
        if wire.whole(line):
            self._uncounted.add(line.topic)
            self._add_odd(line, where, code)
            return True
        self._queues[where] = line.broker_name, line.topic, line.queue_id
        lowest, highest, size = min(line.queue_offsets), max(line.queue_offsets), len(line.queue_offsets)
        times = line.wall_us, line.seq, line.wall_us, line.seq
        piece = QueuePiece(where, line.group, line.boot_id, *times, lowest, highest, size)
        self._delivered.append((piece, len(self._offsets), size))
        self._add(line, where, line.group, code)
        return False

    def stored(self, line: JournalLine) -> bool:
        """Whether the line is to be kept."""
        key = line.broker_name, line.boot_id
        known, began_us = self._highest.get(key, (-1, line.wall_us))
        self._highest[key] = max(known, max(line.log_offsets, default=-1)), began_us
        counts = keys.COUNTS if line.origin in ("client", "tx_final") else 0
        named = [places.place(line.broker_name, *one) for one in zip(line.topics, line.queue_ids, strict=False)]
        if wire.whole(line) or len(named) != len(line.topics) or max(line.queue_index) >= len(named):
            self._add_odd(line, named[0] if named else "", keys.STORED | counts)
            return True
        if len(named) == 1:
            self._add(line, named[0], STORED, keys.STORED | counts)
        else:
            for part, where in _by_queue(line, named):
                self._add(part, where, STORED, keys.STORED | counts)
        return False

    def sent(self, line: JournalLine, *, odd: bool) -> None:
        """A run of messages that left for a broker; where is not known."""
        code = keys.SENT | (keys.ODD if odd else 0)
        named = [key for key in line.unique_keys if key]
        self._names += named
        self._offsets += repeat(0, len(named))
        self._logs += repeat(0, len(named))
        self._runs.append((len(named), -1, code))

    def full(self) -> bool:
        """Whether the memory has grown large enough to be handed on."""
        return len(self._offsets) >= AT_ONCE

    def buckets(self) -> list[Bucket]:
        """The entries, by bucket; blocks and pieces are brought up to them."""
        if not self._offsets:
            return []
        offsets, logs = np.array(self._offsets, np.int64), np.array(self._logs, np.int64)
        sizes = np.array([size for size, _, _ in self._runs])
        streams = np.repeat(np.array([stream for _, stream, _ in self._runs]), sizes)
        codes = np.repeat(np.array([code for _, _, code in self._runs], np.uint32), sizes)
        hashes = keys.hashed(self._names)
        seeds = np.append(keys.hashed([where for where, _ in self._streams]), np.uint64(0))
        where = keys.at(seeds[streams], offsets)  # stream -1 is the last one
        made = keys.entries(hashes, where, logs, codes)
        told: list[Bucket] = [(False, *one) for one in keys.by_bucket(made)]
        if self._business:
            business = keys.of_business(keys.hashed(self._business), made[self._with_business])
            told += [(True, *one) for one in keys.by_bucket(business, "business")]
        self._count_blocks(streams, offsets, keys.mixed(hashes, logs))
        self._order(offsets)
        self._names, self._offsets, self._logs, self._runs, self._delivered = [], [], [], [], []
        self._business, self._with_business = [], []
        return told

    def note(self, note: Note) -> Note:
        """With what this remembers."""
        note.blocks = places.as_list(self._blocks)
        note.pieces, note.counts = self.pieces.end(), self._counts
        note.queues, note.uncounted = self._queues, self._uncounted
        note.stored = [(*key, *told) for key, told in self._highest.items()]
        return note

    def _add(self, line: JournalLine, where: Place, side: str, code: int) -> None:
        stream = self._streams.setdefault((where, side), len(self._streams))
        if len(line.business_keys) == len(line.unique_keys) and code & 3 == keys.DELIVERED:
            there = [at for at, business in enumerate(line.business_keys) if business]
            self._business += [line.business_keys[at] for at in there]
            self._with_business += [len(self._offsets) + at for at in there]
        self._offsets += line.queue_offsets
        self._logs += line.log_offsets
        if "" not in line.unique_keys:
            self._names += line.unique_keys
            self._runs.append((len(line.unique_keys), stream, code))
        else:  # what has no key is no message that counts
            self._names += names_of(line, where)
            self._runs += [(1, stream, code if key else code & ~keys.COUNTS) for key in line.unique_keys]

    def _add_odd(self, line: JournalLine, where: Place, code: int) -> None:
        """Keep a line whole: its messages are candidates, wherever else they are named."""
        size = len(line.unique_keys)
        part = JournalLine(
            event=line.event, seq=line.seq, unique_keys=line.unique_keys,
            queue_offsets=_padded(line.queue_offsets, size), log_offsets=_padded(line.log_offsets, size),
            business_keys=line.business_keys,
        )  # fmt: skip
        self._add(part, where, UNCOUNTED, code | keys.ODD)

    def _count_blocks(self, streams: Numbers, offsets: Numbers, hashes: Numbers) -> None:
        names = list(self._streams)
        order = np.argsort(streams.astype(np.min_scalar_type(-len(names))), kind="stable")
        bounds = np.searchsorted(streams[order], np.arange(len(names) + 1))
        for number, name in enumerate(names):
            mine = order[bounds[number] : bounds[number + 1]]
            if len(mine) and name[1] != UNCOUNTED:
                places.count(self._blocks, name, offsets[mine], hashes[mine])

    def _order(self, offsets: Numbers) -> None:
        """Each line of deliveries as a piece of its own, or as more of the last one."""
        turns = np.concatenate(([0], np.cumsum(np.diff(offsets) <= 0))).tolist()
        for piece, at, size in self._delivered:
            self.pieces.add(piece, turns[at + size - 1] == turns[at])


def names_of(line: JournalLine, where: Place) -> list[str]:
    """The name of each message: its unique key, or its place in the log where it has none."""
    return [key or f"{where}|{log}" for key, log in zip(line.unique_keys, line.log_offsets, strict=True)]


def _padded(numbers: list[int], size: int) -> list[int]:
    return [*numbers[:size], *repeat(0, size - len(numbers))]


def _by_queue(line: JournalLine, named: list[Place]) -> Iterator[tuple[JournalLine, Place]]:
    """The parts of a run that went to several queues."""
    for index in sorted(set(line.queue_index)):
        at = [number for number, one in enumerate(line.queue_index) if one == index]
        part = JournalLine(
            event=line.event, seq=line.seq, unique_keys=[line.unique_keys[number] for number in at],
            queue_offsets=[line.queue_offsets[number] for number in at],
            log_offsets=[line.log_offsets[number] for number in at],
        )  # fmt: skip
        yield part, named[index]
