"""Choosing the queue of a message: pure. Source: RocketMQ ``TopicPublishInfo``, ``SelectMessageQueueByHash``."""

import random
from collections.abc import Sequence

from dejamq_proto.record import java_hash

from dejamq.message import MessageQueue


class Rotation:
    """Queues of one topic in turn, beginning anywhere.

    A position for each topic and producer; RocketMQ has one for each topic and thread (ThreadLocalIndex).
    """

    __slots__ = ("_position", "queues")

    def __init__(self, queues: Sequence[MessageQueue], start: int | None = None) -> None:
        self.queues = tuple(queues)
        self._position = random.randrange(len(self.queues)) - 1 if start is None else start - 1

    def next(self) -> MessageQueue:
        """The queue after the one given last."""
        self._position += 1
        return self.queues[self._position % len(self.queues)]

    def next_avoiding(self, broker_name: str) -> MessageQueue:
        """The next queue of another broker, or simply the next one where there is no other.

        RocketMQ: TopicPublishInfo.selectOneMessageQueue(lastBrokerName). With one broker only, the failed one
        is tried again.
        """
        for _ in self.queues:
            queue = self.next()
            if queue.broker_name != broker_name:
                return queue
        return self.next()


def by_hash(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The same queue for the same key while the queues stay the same: Java's hash of it, modulo their number.

    Equal to Java's absolute value of the remainder, also for the lowest number of 32 bits.
    """
    return queues[abs(java_hash(key)) % len(queues)]
