"""Which objects of a list are one object, and columns put in that order. Pure."""

from collections.abc import Sequence
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np


class Permutation:
    """The places of objects when those that are one object stand side by side, by when each comes first."""

    def __init__(self, objects: list[Any]) -> None:
        ids = list(map(id, objects))
        numbers = {one: number for number, one in enumerate(dict.fromkeys(ids))}
        # of 16 bits, as nearly always, numpy orders them in one pass
        places = np.fromiter(map(numbers.__getitem__, ids), np.min_scalar_type(len(numbers)), len(ids))
        self.places: list[int] = places.argsort(kind="stable").tolist()
        """Where the object stood that stands at each place now."""

    def deal(self, columns: list[list[Any]], ends: Sequence[int]) -> list[list[Any]]:
        """The content of the columns, one behind the other, in this order: a list up to each end.

        The columns are empty then. Raises ValueError where they hold more or fewer objects than were put in order, or
        the last list ends elsewhere.
        """
        count, borders = len(self.places), [0, *ends]
        if sum(map(len, columns)) != count:
            raise ValueError(f"the columns do not hold {count} objects")
        filled = [id(column) for column in columns if column]
        if len(set(filled)) < len(filled):
            raise ValueError("a column comes twice")
        if borders != sorted(borders) or borders[-1] != count:
            raise ValueError("the last list ends with the last object")
        together = list(chain.from_iterable(columns))
        dealt = list(itemgetter(*self.places)(together)) if count > 1 else together
        lists = [dealt[begin:end] for begin, end in pairwise(borders)]
        for column in columns:
            column.clear()
        return lists


def stretches(objects: list[Any]) -> list[tuple[Any, int]]:
    """The objects as they stand, and how often each does so side by side; equal ones may count as one object."""
    if objects and objects.count(objects[0]) == len(objects):
        return [(objects[0], len(objects))]
    return [(one, len(list(together))) for one, together in groupby(objects)]
