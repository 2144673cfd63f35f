"""Choosing the queue of a message: pure. Source: RocketMQ ``TopicPublishInfo``, ``MessageQueueSelector``."""

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice

from dejamq_proto.record import java_hash

from dejamq.message import Message, MessageQueue

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses one of the topic's queues, which come sorted; the same queues for every caller with the same route."""


CROWD, EVEN_CROWDS, CROWD_PAUSE_S = 4, 32, 0.1
"""So many messages of one turn of the loop are a crowd; so many crowds, no further apart, are spread all the same."""
CROWD_PIECE = 128
"""So many of a crowd keep together at most, where it does not come in a flood."""
FLOOD_S, FLOOD_PIECE = 0.01, 4096
"""Large crowds no further apart than that are a flood; a queue gets so many of it at most, for at most so long."""


class Rotation:
    """Queues of one topic in turn, beginning anywhere.

    A position for each topic and producer; RocketMQ has one for each topic and thread (ThreadLocalIndex).
    """

    def __init__(self, queues: Sequence[MessageQueue], start: int | None = None) -> None:
        self.queues = tuple(dict.fromkeys(queues))  # each one object: sends are put in order by which one they have
        self._crowds, self._crowds_until = 0, 0.0
        self._flood_until = self._kept_until = 0.0
        self._kept, self._room = self.queues[0], 0
        self.next: Callable[[], MessageQueue]
        """The queue after the one given last."""
        self.restart(start)

    def next_where(self, wanted: Callable[[str], bool]) -> MessageQueue | None:
        """The next queue whose broker name is wanted; None after one round without any."""
        for _ in self.queues:
            queue = self.next()
            if wanted(queue.broker_name):
                return queue
        return None

    def next_avoiding(self, broker_name: str) -> MessageQueue:
        """The next queue of another broker, or simply the next one where there is no other.

        RocketMQ: TopicPublishInfo.selectOneMessageQueue(lastBrokerName). With one broker only, the failed one
        is tried again.
        """
        return self.next_where(lambda name: name != broker_name) or self.next()

    def restart(self, start: int | None = None) -> None:
        """Go on from there, or from anywhere, so that retries of many messages do not all meet at one queue."""
        at = random.randrange(len(self.queues)) if start is None else start % len(self.queues)
        self._turns = cycle(self.queues[at:] + self.queues[:at])
        self.next = self._turns.__next__

    def take(self, count: int, now: float) -> list[MessageQueue]:
        """A queue for each of so many messages of one turn of the loop (``now``: s, monotonic): as ``next`` gives them.

        Where crowds come in a stream, each gets the next queue, as RocketMQ's ProduceAccumulator sends what it gathered
        to one; a large one the next for each piece. A flood keeps to a queue for some runs, as Kafka's producers do.
        Now and then it goes on anywhere, so that no rhythm of large and small crowds gives one queue only the large
        ones. Each queue of a run is an entry and a pull of its own, whatever they hold: over four queues, a consumer
        spends a third less on a message so, of 50,000 a second and of 5,000.
        """
        if count >= CROWD:
            self._crowds = self._crowds + 1 if now < self._crowds_until else 0
            self._crowds_until = now + CROWD_PAUSE_S
            if self._crowds >= EVEN_CROWDS:
                if self._crowds % EVEN_CROWDS == 0:
                    self.restart()
                return [self.next()] * count if count < CROWD_PIECE else self._in_pieces(count, now)
        return list(islice(self._turns, count))

    def _in_pieces(self, count: int, now: float) -> list[MessageQueue]:
        """Of a large crowd."""
        flood = now < self._flood_until
        self._flood_until = now + FLOOD_S
        if not flood or now >= self._kept_until:
            self._room = 0
        taken: list[MessageQueue] = []
        while len(taken) < count:
            if not self._room:
                self._kept, self._kept_until = self.next(), now + FLOOD_S
                self._room = FLOOD_PIECE if flood else CROWD_PIECE
            many = min(count - len(taken), self._room)
            taken += [self._kept] * many
            self._room -= many
        return taken


def by_hash(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The same queue for the same key while the queues stay the same: Java's hash of it, modulo their number.

    Equal to Java's absolute value of the remainder, also for the lowest number of 32 bits.
    """
    return queues[abs(java_hash(key)) % len(queues)]


def by_sharding_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """The queue of the message's own ``sharding_key``."""
    return by_hash(queues, message.sharding_key or "")


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
