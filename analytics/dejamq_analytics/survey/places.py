"""Blocks of a queue's places: which of them were stored, and which each group was given.

Of 1,024 places it is remembered which ones there were (a bit each), how often they were named, and the sum of hashes
of the records there. Where what was stored and what was given are the same places, no message was left unseen.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from dejamq_analytics.survey.keys import Numbers

BLOCK = 10
PLACES = 1 << BLOCK
STORED = ""
"""The side of the broker; the other sides are named after groups."""
BETWEEN = "\n"
"""Stands in no name, as ``|`` may."""
Place = str
Queue = tuple[str, str, int]
"""The queue of a place: broker, topic and queue id."""


class Block(msgspec.Struct, gc=False):
    """``bits``: one for each place; ``count``: how often places were named; ``total``: the sum of their hashes."""

    count: int = 0
    total: int = 0
    bits: bytes = b"\0" * (PLACES // 8)

    def add(self, count: int, total: int, bits: bytes) -> None:
        self.count += count
        self.total = (self.total + total) & ((1 << 64) - 1)
        self.bits = (int.from_bytes(self.bits) | int.from_bytes(bits)).to_bytes(PLACES // 8)

    def once(self) -> bool:
        """Whether each place was named once."""
        return self.count == self.places().bit_count()

    def places(self) -> int:
        """The bits as a number whose lowest bit is the first place."""
        return int.from_bytes(self.bits, "little")


Blocks = dict[tuple[Place, str], dict[int, Block]]


def place(broker: str, topic: str, queue_id: int) -> Place:
    """A queue, in words."""
    return f"{broker}{BETWEEN}{topic}{BETWEEN}{queue_id}"


def count(blocks: Blocks, stream: tuple[Place, str], offsets: Numbers, hashes: Numbers) -> None:
    """Add these places of one queue, stored or given to one group."""
    number = offsets >> BLOCK
    order = np.argsort(number, kind="stable")
    number, inside, hashes = number[order], offsets[order] & (PLACES - 1), hashes[order]
    starts = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))
    bits = np.zeros((len(starts), PLACES), np.uint8)
    bits[np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(number)))), inside] = 1
    packed = np.packbits(bits, axis=1, bitorder="little")
    totals = np.add.reduceat(hashes, starts).tolist()
    counts = np.diff(np.append(starts, len(number))).tolist()
    known = blocks.setdefault(stream, {})
    for row, block in enumerate(number[starts].tolist()):
        known.setdefault(block, Block()).add(counts[row], totals[row], packed[row].tobytes())


def merged(several: Iterable[Blocks]) -> Blocks:
    """The blocks of all tasks as one."""
    whole: Blocks = {}
    for blocks in several:
        for stream, each in blocks.items():
            known = whole.setdefault(stream, {})
            for number, block in each.items():
                known.setdefault(number, Block()).add(block.count, block.total, block.bits)
    return whole


def uneven(blocks: Blocks, starts: Mapping[tuple[Place, str], int]) -> dict[Place, set[int]]:
    """The blocks that are to be looked at message by message.

    ``starts``: of each queue that a group without a filter opened, the lowest offset that it began at.
    """
    by_place = defaultdict[Place, dict[str, dict[int, Block]]](dict)
    for (where, side), each in blocks.items():
        by_place[where][side] = each
    openings = defaultdict[Place, dict[str, int]](dict)
    for (where, group), start in starts.items():
        openings[where][group] = start
    found: dict[Place, set[int]] = {}
    for where, sides in by_place.items():
        numbers = {
            number
            for number in set().union(*sides.values())
            if _is_uneven({side: each[number] for side, each in sides.items() if number in each},
                          openings[where], number)
        }  # fmt: skip
        if numbers:
            found[where] = numbers
    return found


def _is_uneven(sides: dict[str, Block], starts: dict[str, int], number: int) -> bool:
    stored = sides.pop(STORED, None)
    there = 0
    if stored is not None:
        there = stored.places()
        if not stored.once() or any(_misses(sides.get(group), start, there, number)
                                                    for group, start in starts.items()):  # fmt: skip
            return True
        if any(one.bits == stored.bits and one.count == stored.count and one.total != stored.total
               for one in sides.values()):  # fmt: skip
            return True  # other records than those that are known to be there
    given = list(sides.values())
    if all(one.places() & ~there == 0 for one in given):
        return False
    return any(_others(one, given[0]) for one in given)


def _misses(given: Block | None, start: int, there: int, number: int) -> bool:
    """Whether the group was not given something that is stored where it was reading."""
    first = min(max(start - number * PLACES, 0), PLACES)
    return bool((there >> first) & ~((given.places() if given else 0) >> first))


def alike(several: Iterable[Block]) -> bool:
    """Whether all were given the very same records, each place once."""
    first, *rest = several
    return not any(_others(one, first) for one in (first, *rest))


def _others(one: Block, another: Block) -> bool:
    """Where no broker says what was stored: not the very same records, or one place named twice."""
    return not one.once() or (one.count, one.total, one.bits) != (
        another.count, another.total, another.bits
    )  # fmt: skip


def as_list(blocks: Blocks) -> list[Any]:
    """To be sent: keys of maps are texts or numbers there."""
    return [[*stream, list(each.items())] for stream, each in blocks.items()]
