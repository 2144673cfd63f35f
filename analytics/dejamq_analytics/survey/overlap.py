"""What several groups had of one topic (L9): how many messages, and where the first of them may stand.

Both follow from what is remembered of places and of order: which places of a queue each group was given, and when it
was given the lowest of each piece of rising offsets. So the messages themselves need not be looked at.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from dejamq_analytics.rules.audiences import Overlap
from dejamq_analytics.survey.order import Key, Piece
from dejamq_analytics.survey.places import PLACES, STORED, Block, Blocks, Place

Queue = tuple[str, str, int]
"""Broker, topic and queue id."""
Common = dict[Place, dict[int, int]]
"""By queue the numbers of blocks, each with a bit for each place that two groups were given."""


def overlap(blocks: Blocks, pieces: Iterable[Piece], queues: Mapping[Place, Queue], topics: Collection[str]) -> Overlap:
    """Of these topics, of which every delivery is in ``blocks``. ``queues`` says what each place is."""
    common = _common(blocks, queues, topics)
    given = defaultdict[tuple[str, str], list[Piece]](list)
    for piece in pieces:
        if piece.place in queues:
            given[piece.group, queues[piece.place][1]].append(piece)
    counts = {
        pair: sum(bits.bit_count() for each in shared.values() for bits in each.values())
        for pair, shared in common.items()
    }
    places = {
        (*queues[place], offset)
        for (_, second, topic), shared in common.items()
        for place, offset in _first(given[second, topic], shared)
    }
    return Overlap(counts, frozenset(places))


def _common(
    blocks: Blocks, queues: Mapping[Place, Queue], topics: Collection[str]
) -> dict[tuple[str, str, str], Common]:
    """By the first group, the second one and the topic; of those that had a message the first is so by name."""
    by_place = defaultdict[Place, dict[str, dict[int, Block]]](dict)
    for (place, side), each in blocks.items():
        if side != STORED and place in queues and queues[place][1] in topics:
            by_place[place][side] = each
    found = defaultdict[tuple[str, str, str], Common](dict)
    for place, sides in by_place.items():
        groups = sorted(sides)
        for at, second in enumerate(groups):
            for first, shared in _of_earlier(sides, groups[:at], second).items():
                found[first, second, queues[place][1]][place] = shared
    return found


def _of_earlier(
    sides: Mapping[str, Mapping[int, Block]], earlier: Sequence[str], second: str
) -> dict[str, dict[int, int]]:
    """What ``second`` had in common with each of the groups before it, and with none before that one."""
    found = defaultdict[str, dict[int, int]](dict)
    for number, block in sides[second].items():
        left = block.places()
        for first in earlier:
            both = left & sides[first][number].places() if number in sides[first] else 0
            if both:
                found[first][number] = both
                left &= ~both
    return found


def _first(pieces: Iterable[Piece], common: Common) -> Iterator[tuple[Place, int]]:
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


def _not_after(piece: Piece, offset: int) -> Key | None:
    """When the message there had come at the latest, and before all others of the piece; None where it may not be in
    it, or not in its order.
    """
    if piece.messages < 0:
        return None
    if offset == piece.lowest:
        return piece.begin
    return piece.end if piece.messages == piece.highest - piece.lowest + 1 else None


def _between(piece: Piece, common: Common) -> Iterator[int]:
    """The places of a piece that both groups had."""
    known = common.get(piece.place, {})
    for number in range(piece.lowest // PLACES, piece.highest // PLACES + 1):
        bits = known.get(number, 0)
        while bits:
            offset = number * PLACES + (bits & -bits).bit_length() - 1
            bits &= bits - 1
            if piece.lowest <= offset <= piece.highest:
                yield offset
