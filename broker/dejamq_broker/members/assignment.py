"""A member's share of a topic's queues where the broker shares them out: pure, from queues and members as sorted lists.

Members that share them out by themselves count alike (``AVG``, ``AVG_BY_CIRCLE``).
Source: RocketMQ ``QueryAssignmentProcessor``.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dejamq_proto.allocation import averagely, averagely_by_circle

ANY_QUEUE = -1


class QueueThere(NamedTuple):
    """A queue of the topic at one of its brokers. ``queue_id`` -1: whichever it has."""

    broker_name: str
    queue_id: int


Share = list[QueueThere]
Strategy = Callable[[Sequence[QueueThere], Sequence[str], str], Share]


STRATEGIES: dict[str, Strategy] = {"AVG": averagely, "AVG_BY_CIRCLE": averagely_by_circle}


def pop_share(
    allocate: Strategy, queues: Sequence[QueueThere], members: Sequence[str], me: str, shared_by: int
) -> Share:
    """The queues that a member pops: all of them, or its own ones and those of the next ``shared_by`` members."""
    if not 0 < shared_by < len(members) - 1:
        return [QueueThere(name, ANY_QUEUE) for name in dict.fromkeys(queue.broker_name for queue in queues)]
    if me not in members or not queues:
        return []
    at = members.index(me)
    if len(members) > len(queues):
        return [queues[at % len(queues)]]
    sharing = [members[(at + number) % len(members)] for number in range(shared_by + 1)]
    return list(dict.fromkeys(queue for each in sharing for queue in allocate(queues, members, each)))
