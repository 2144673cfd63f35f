"""Who consumes which queue: pure functions that every member of a group computes alone from the same two lists.

Nobody hands out queues. Each member sorts the queues and the members' client ids, applies the same function and takes
its own share; while the members' lists differ, shares may overlap (a duplicate) or leave a queue without an owner.
A strategy that does not find its own id in the list takes nothing. Source: RocketMQ ``AllocateMessageQueue*``.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dejamq_proto.codes import ConfigError

Queue = TypeVar("Queue")
Strategy = Callable[[Sequence[Any], Sequence[str], str], list[Any]]


def averagely(queues: Sequence[Queue], members: Sequence[str], me: str) -> list[Queue]:
    """Contiguous ranges whose sizes differ by at most one; the first members get the larger ones.

    >>> averagely([0, 1, 2, 3, 4, 5, 6, 7], ["c1", "c2", "c3"], "c1")
    [0, 1, 2]
    >>> averagely([0, 1, 2, 3, 4, 5, 6, 7], ["c1", "c2", "c3"], "c3")
    [6, 7]
    >>> averagely([0, 1], ["c1", "c2", "c3"], "c3")
    []
    """
    if me not in members:
        return []
    index = members.index(me)
    share, rest = divmod(len(queues), len(members))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])


def averagely_by_circle(queues: Sequence[Queue], members: Sequence[str], me: str) -> list[Queue]:
    """Queue number i goes to member number i modulo the number of members, so that each one's queues are spread.

    >>> averagely_by_circle([0, 1, 2, 3, 4, 5, 6, 7], ["c1", "c2", "c3"], "c2")
    [1, 4, 7]
    """
    if me not in members:
        return []
    return list(queues[members.index(me) :: len(members)])


STRATEGIES: dict[str, Strategy] = {"averagely": averagely, "averagely_by_circle": averagely_by_circle}


def strategy_named(allocation: str | Strategy) -> tuple[str, Strategy]:
    """The name that the journal keeps and the function. Raises ConfigError for an unknown name."""
    if callable(allocation):
        return getattr(allocation, "__name__", type(allocation).__name__), allocation
    if allocation not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise ConfigError(f"allocation {allocation!r} is unknown; use one of {known}, or a function of your own")
    return allocation, STRATEGIES[allocation]
