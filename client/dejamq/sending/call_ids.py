"""Numbers of sends, which the journal tells them by.

Those that were submitted side by side are kept as a range, for as long as nothing is put in another order: a number
object for each would cost as much as a future.
"""

from collections.abc import Sequence


class CallIds:
    """1, 2, 3, … of one producer. Owned by its event loop."""

    def __init__(self, first: int = 1) -> None:
        self._next = first

    def take(self, count: int) -> range:
        """Consecutive numbers, as many as asked for."""
        first = self._next
        self._next = first + count
        return range(first, self._next)


def following(ids: Sequence[int], more: Sequence[int]) -> Sequence[int]:
    """Both, one behind the other; the first are not used any more."""
    if not ids:
        return more
    if isinstance(ids, range) and isinstance(more, range) and ids.stop == more.start:
        return range(ids.start, more.stop)
    both: list[int] = ids if isinstance(ids, list) else list(ids)
    both.extend(more)
    return both
