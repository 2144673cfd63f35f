"""Allocation by a hash ring: a member that comes or goes moves only queues of its own. Pure.

Source: RocketMQ ``AllocateMessageQueueConsistentHash``, ``ConsistentHashRouter``.
"""

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dejamq_proto.codes import ConfigError

from dejamq.values.message import MessageQueue

VIRTUAL_NODES = 10
Hash = Callable[[str], int]


def md5_hash(text: str) -> int:
    """The first four bytes of the MD5 of the text's UTF-8, as a number.

    >>> hex(md5_hash("abc"))
    '0x90015098'
    """
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def java_text(queue: MessageQueue) -> str:
    """How RocketMQ writes a queue; its place on the ring is the hash of this.

    >>> java_text(MessageQueue("orders", "broker-a", 0))
    'MessageQueue [topic=orders, brokerName=broker-a, queueId=0]'
    """
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


@dataclass(frozen=True)
class ConsistentHash:
    """Each member stands at ``virtual_nodes`` points of a ring; a queue goes to the first point at or after its own.

    Shares may differ much in size; more points make them more even. All members of a group must have the same number
    of points and the same ``hash`` (text -> number).

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(8)]
    >>> [queue.queue_id for queue in ConsistentHash()(queues, ["c1", "c2", "c3"], "c1")]
    [1, 3, 7]
    >>> [queue.queue_id for queue in ConsistentHash()(queues, ["c1", "c3"], "c1")]
    [1, 3, 6, 7]
    """

    virtual_nodes: int = VIRTUAL_NODES
    hash: Hash = md5_hash

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1:
            raise ConfigError(f"a member needs at least 1 point on the ring, not {self.virtual_nodes}")

    @property
    def name(self) -> str:
        """Tells members with other points apart."""
        return "consistent_hash" if self.virtual_nodes == VIRTUAL_NODES else f"consistent_hash({self.virtual_nodes})"

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
        if me not in members:
            return []
        ring = self._ring(members)
        points = sorted(ring)
        return [queue for queue in queues if ring[_next(points, self.hash(java_text(queue)))] == me]

    def _ring(self, members: Sequence[str]) -> dict[int, str]:
        """Point -> member; where two fall together the later one has it. An id listed twice has twice as many."""
        seen: Counter[str] = Counter()
        ring = {}
        for member in members:
            for _ in range(self.virtual_nodes):
                ring[self.hash(f"{member}-{seen[member]}")] = member
                seen[member] += 1
        return ring


def _next(points: Sequence[int], place: int) -> int:
    return points[bisect_left(points, place) % len(points)]


consistent_hash = ConsistentHash()
