"""Which objects of a list are one object, and columns put in that order. Pure."""

from collections.abc import Sequence
from itertools import chain, groupby, pairwise
from typing import Any


class Order:
    """The places of objects when those that are one object stand side by side, by when each comes first."""

    def __init__(self, objects: list[Any]) -> None:
        places: dict[int, list[int]] = {}
        for place, one in enumerate(map(id, objects)):
            places.setdefault(one, []).append(place)
        self._places = list(chain.from_iterable(places.values()))

    def deal(self, columns: list[list[Any]], ends: Sequence[int]) -> list[list[Any]]:
        """What the columns hold, one behind the other, in this order: a list up to each end.

        The columns are empty then. Raises ValueError where they hold more or fewer objects than were put in order, or
        the last list ends elsewhere.
        """
        count, borders = len(self._places), [0, *ends]
        if sum(map(len, columns)) != count:
            raise ValueError(f"the columns do not hold {count} objects")
        if borders != sorted(borders) or borders[-1] != count:
            raise ValueError("the last list ends with the last object")
        together = list(chain.from_iterable(columns))
        for column in columns:
            column.clear()
        dealt = list(map(together.__getitem__, self._places))
        return [dealt[begin:end] for begin, end in pairwise(borders)]


def stretches(objects: list[Any]) -> list[tuple[Any, int]]:
    """The objects as they stand, and how often each does so side by side."""
    return [(together[0], len(together)) for together in (list(same) for _, same in groupby(objects, id))]
