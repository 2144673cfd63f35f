"""The order in which a group was given a queue: pieces in which offsets only rise, and where two pieces disagree.

A message came out of order if a later one of its queue came before it. Within a piece that cannot be. A piece of which
all offsets lie above everything that began before the piece ended has none either. Of the others the lines are looked
at, with those of pieces that ran beside them; what ended before them is known by its highest offset alone.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

import msgspec

from dejamq_analytics.survey.places import Place

LONGEST = 8192
"""The most messages of a piece: this many lines are read beside one that may be out of order."""
Key = tuple[int, str, int]


class QueuePiece(msgspec.Struct, gc=False):
    """Lines of one process with rising offsets of one queue. Times are as journalled."""

    place: Place
    group: str
    boot_id: str
    first_us: int
    first_seq: int
    last_us: int
    last_seq: int
    lowest: int
    highest: int
    messages: int

    @property
    def begin(self) -> Key:
        return self.first_us, self.boot_id, self.first_seq

    @property
    def end(self) -> Key:
        return self.last_us, self.boot_id, self.last_seq


class Range(NamedTuple):
    """Lines to be looked at: of one process and queue, from one sequence number to another, below an offset.

    ``reached`` is the highest offset of what had ended before, -1 for none.
    """

    boot_id: str
    place: Place
    group: str
    first_seq: int
    last_seq: int
    below: int
    reached: int


class Pieces:
    """Gathers the pieces of one task."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, Place], QueuePiece] = {}
        self.done: list[QueuePiece] = []

    def add(self, piece: QueuePiece, rises: bool) -> None:
        """One line; ``rises`` says that its offsets do."""
        key = piece.boot_id, piece.group, piece.place
        last = self._open.get(key)
        if (
            last
            and rises
            and piece.lowest > last.highest
            and last.messages < LONGEST
            and piece.first_us >= last.last_us
        ):
            last.last_us, last.last_seq, last.highest = piece.last_us, piece.last_seq, piece.highest
            last.messages += piece.messages
            return
        if last:
            self.done.append(last)
        if rises:
            self._open[key] = piece
        else:  # it disagrees with itself, told by a message count below 0
            self._open.pop(key, None)
            piece.messages = -piece.messages
            self.done.append(piece)

    def cut(self, boot_id: str) -> None:
        """A clock jumped: times before and after are not to be mixed."""
        for key in [key for key in self._open if key[0] == boot_id]:
            self.done.append(self._open.pop(key))

    def end(self) -> list[QueuePiece]:
        """All of them."""
        self.done += self._open.values()
        self._open = {}
        return self.done


def disagreeing(pieces: Iterable[QueuePiece]) -> list[Range]:
    """The lines that may hold messages out of order, and those that ran beside them."""
    by_queue = defaultdict[tuple[Place, str], list[QueuePiece]](list)
    for piece in pieces:
        by_queue[piece.place, piece.group].append(piece)
    found: dict[tuple[str, int, Place, str], Range] = {}
    for queue in by_queue.values():
        for one in _of_queue(sorted(queue, key=lambda piece: piece.begin)):
            key = one.boot_id, one.first_seq, one.place, one.group
            known = found.get(key)
            found[key] = one if known is None else one._replace(below=max(one.below, known.below))
    return list(found.values())


def _of_queue(pieces: list[QueuePiece]) -> Iterable[Range]:
    begins = [piece.begin for piece in pieces]
    by_end = sorted(pieces, key=lambda piece: piece.end)
    ends = [piece.end for piece in by_end]
    ended = list(accumulate((piece.highest for piece in by_end), max, initial=-1))
    highest = list(accumulate((piece.highest for piece in pieces), max, initial=-1))
    for at, piece in enumerate(pieces):
        until = bisect_left(begins, piece.end)  # all that began before this one ended
        others = max(highest[at], max((one.highest for one in pieces[at + 1 : until]), default=-1))
        if others <= piece.lowest and piece.messages > 0:
            continue
        reached = ended[bisect_left(ends, piece.begin)]
        below = max(others, piece.highest + 1 if piece.messages < 0 else 0)
        yield _range(piece, below, reached)
        for beside in pieces[:until]:
            if beside is not piece and beside.end >= piece.begin and beside.highest > piece.lowest:
                yield _range(beside, beside.highest + 1, ended[bisect_left(ends, beside.begin)])


def _range(piece: QueuePiece, below: int, reached: int) -> Range:
    return Range(piece.boot_id, piece.place, piece.group, piece.first_seq, piece.last_seq, below, reached)
