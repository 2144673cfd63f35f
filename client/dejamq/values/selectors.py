"""Selectors, with which a program chooses the queue of a message: pure. Source: RocketMQ ``MessageQueueSelector``."""

import random
from collections.abc import Callable, Iterable, Sequence

from dejamq_proto.records.record import java_hash
from isal.isal_zlib import crc32

from dejamq.values.message import Message, MessageQueue

SPREAD, WORD = 0x9E3779B97F4A7C15, (1 << 64) - 1
Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses one of the topic's queues, which come sorted; the same queues for every caller with the same route."""


def by_hash(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The same queue for the same key while the queues stay the same: Java's hash of it, modulo their number.

    Equal to Java's absolute value of the remainder, also for the lowest number of 32 bits.
    """
    return queues[abs(java_hash(key)) % len(queues)]


def by_sharding_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """The queue of the message's own ``sharding_key``."""
    return by_hash(queues, message.sharding_key or "")


def by_dedup_id(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """The queue of the message's own ``dedup_id``: the same broker while it is one of the topic's brokers.

    Brokers that come or go take or leave their own share of the ids, and nobody else's (rendezvous hashing).
    """
    number = crc32((message.dedup_id or "").encode())
    if queues[0].broker_name != queues[-1].broker_name:
        names = dict.fromkeys(queue.broker_name for queue in queues)
        name = max(names, key=lambda name: ((number ^ crc32(name.encode())) * SPREAD) & WORD)
        queues = [queue for queue in queues if queue.broker_name == name]
    return queues[number % len(queues)]


def select_by_hash(key: str) -> Selector:
    """A selector for ``queue=``: one queue for each key. RocketMQ: SelectMessageQueueByHash.

    >>> select_by_hash("user-1")([MessageQueue("t", "a", n) for n in range(4)], Message("t", b"x")).queue_id
    1
    """
    return lambda queues, message: by_hash(queues, key)


def select_random(seed: int | None = None) -> Selector:
    """A selector for ``queue=``: any queue; one seed gives the same choices. RocketMQ: SelectMessageQueueByRandom."""
    choose = random.Random(seed).choice
    return lambda queues, message: choose(queues)


def select_machine_room(rooms: Iterable[str], seed: int | None = None) -> Selector:
    """A selector for ``queue=``: any queue in one of these machine rooms; raises LookupError where there is none.

    A broker's room is what stands before ``@`` in its name, as in RocketMQ's allocation by machine room; its
    SelectMessageQueueByMachineRoom is a shell that chooses nothing.
    """
    wanted, choose = frozenset(rooms), random.Random(seed).choice

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        inside = [queue for queue in queues if "@" in queue.broker_name and queue.broker_name.split("@")[0] in wanted]
        if not inside:
            raise LookupError(f"no queue of topic {message.topic!r} is in machine room {', '.join(sorted(wanted))}")
        return choose(inside)

    return select
