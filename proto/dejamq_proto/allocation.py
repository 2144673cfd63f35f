"""Shares of a topic's queues that members take by themselves, and brokers give alike. Lists are sorted.

A member that is not in the list gets nothing. Source: RocketMQ ``AllocateMessageQueueAveragely`` and ``…ByCircle``.
"""

from collections.abc import Sequence
from typing import TypeVar

Queue = TypeVar("Queue")


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
