"""Messages of one topic that several groups had (L9): their number, and the place of the first of them.

Both follow from the memory of places and of order: which places of a queue each group was given, and when it
was given the lowest of each piece of rising offsets. So the messages themselves need not be looked at, except where a
place may have had two records.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dejamq_analytics.sources.overlap import Overlap, Pair, Spot
from dejamq_analytics.survey.order import Key, QueuePiece
from dejamq_analytics.survey.places import PLACES, STORED, Block, Blocks, Place, Queue, alike

Common = dict[Place, list[tuple[int, int]]]
"""By queue the numbers of blocks, rising, each with a bit for each place that two groups were given."""


class KnownDeliveries(NamedTuple):
    """``queues`` names the queue of each place. Every delivery of ``topics`` is in a block.

    Where a log of ``ended`` brokers ended, another record may have got the place of one that is in no journal.
    """

    queues: Mapping[Place, Queue]
    topics: Collection[str]
    ended: Collection[str]


def overlap(blocks: Blocks, pieces: Iterable[QueuePiece], known: KnownDeliveries) -> Overlap:
    """Messages that the groups of these topics had in common."""
    common, uncounted = _common(blocks, known)
    given = defaultdict[tuple[str, str], list[QueuePiece]](list)
    for piece in pieces:
        if piece.place in known.queues:
            given[piece.group, known.queues[piece.place][1]].append(piece)
    counts = {
        pair: sum(bits.bit_count() for each in shared.values() for _, bits in each) for pair, shared in common.items()
    }
    first = {
        (*known.queues[place], offset, offset)
        for (_, second, topic), shared in common.items()
        for place, offset in _first(given[second, topic], shared)
    }
    return Overlap(frozenset(known.topics), counts, frozenset(first), frozenset(uncounted))


def _common(blocks: Blocks, known: KnownDeliveries) -> tuple[dict[Pair, Common], set[Spot]]:
    """By pair, the first group being the first by name of those that had a message; and blocks that say too little."""
    sides = defaultdict[Place, dict[int, dict[str, Block]]](lambda: defaultdict(dict))
    for (place, side), each in blocks.items():
        if place in known.queues and known.queues[place][1] in known.topics:
            for number, block in each.items():
                sides[place][number][side] = block
    found = defaultdict[Pair, Common](lambda: defaultdict(list))
    uncounted = set()
    for place, each_number in sides.items():
        broker, topic, queue_id = known.queues[place]
        for number, several in sorted(each_number.items()):
            stored = several.pop(STORED, None)
            if len(several) < 2:
                continue
            if not _one_record_each(list(several.values()), stored, ended=broker in known.ended):
                uncounted.add((broker, topic, queue_id, number * PLACES, number * PLACES + PLACES - 1))
                continue
            for first, second, bits in _pairs(several):
                found[first, second, topic][place].append((number, bits))
    return found, uncounted


def _one_record_each(given: Sequence[Block], stored: Block | None, *, ended: bool) -> bool:
    """Whether groups that were given one place were given one record there."""
    same = alike(given)
    if stored is None:
        return same
    if not stored.once():
        return False
    if same and given[0].bits == stored.bits:
        return given[0].total == stored.total
    return not ended and not any(one.places() & ~stored.places() for one in given)


def _pairs(several: Mapping[str, Block]) -> Iterator[tuple[str, str, int]]:
    """Two groups and what both had, the first one first of all that had it."""
    groups = sorted(several)
    for at, second in enumerate(groups):
        left = several[second].places()
        for first in groups[:at]:
            if both := left & several[first].places():
                yield first, second, both
                left &= ~both


def _first(pieces: Iterable[QueuePiece], common: Common) -> Iterator[tuple[Place, int]]:
    """The places of which one is that of the message that came first to the second group, of those that both had."""
    begun = [(piece, offset) for piece in pieces if (offset := next(_between(piece, common), None)) is not None]
    latest = min((when for piece, offset in begun if (when := _not_after(piece, offset)) is not None), default=None)
    for piece, offset in begun:
        if latest is not None and piece.begin > latest:
            continue
        if _not_after(piece, offset) is None:
            yield from ((piece.place, one) for one in _between(piece, common))
        else:
            yield piece.place, offset


def _not_after(piece: QueuePiece, offset: int) -> Key | None:
    """When the message there had come at the latest, and before all others of the piece; None where it may not be in
    it, or not in its order.
    """
    if piece.messages < 0:
        return None
    if offset == piece.lowest:
        return piece.begin
    return piece.end if piece.messages == piece.highest - piece.lowest + 1 else None


def _between(piece: QueuePiece, common: Common) -> Iterator[int]:
    """The places of a piece that both groups had."""
    shared = common.get(piece.place, [])
    for number, bits in shared[bisect_left(shared, (piece.lowest // PLACES, 0)) :]:
        if number * PLACES > piece.highest:
            return
        while bits:
            offset = number * PLACES + (bits & -bits).bit_length() - 1
            bits &= bits - 1
            if piece.lowest <= offset <= piece.highest:
                yield offset
