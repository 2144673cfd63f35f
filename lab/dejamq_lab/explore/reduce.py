"""Delta debugging: which units of a world are enough for its failure. Replays are the judge's, here only asked for."""

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

Unit = TypeVar("Unit")
Fails = Callable[[Sequence[list[Unit]]], list[bool]]
"""Of each candidate whether it fails in the way in question. Candidates of one call can be played side by side."""


def reduced(units: Sequence[Unit], fails: Fails[Unit], most_replays: int) -> list[Unit]:
    """A shorter list that still fails, in the order of the whole.

    No single unit of it can be left out, if ``most_replays`` suffice to find that out.

    Source: Zeller and Hildebrandt, ddmin, by complements: parts are left out, first large ones and then single units.
    """
    left, parts, replays = list(units), 2, 0
    while len(left) > 1:
        shorter = _without_one_part(left, parts)[: most_replays - replays]
        if not shorter:
            break
        replays += len(shorter)
        failing = [candidate for candidate, failed in zip(shorter, fails(shorter), strict=True) if failed]
        if failing:
            left, parts = failing[0], max(parts - 1, 2)
        elif parts >= len(left):
            break
        else:
            parts = min(2 * parts, len(left))
    return left


def _without_one_part(units: list[Unit], parts: int) -> list[list[Unit]]:
    """As many lists as parts, each without one of them."""
    bounds = [len(units) * number // parts for number in range(parts + 1)]
    return [units[:begin] + units[end:] for begin, end in itertools.pairwise(bounds) if begin < end]
