"""Which queue each message of one iteration of the event loop gets, when its program does not choose one. Pure.

Each queue in a run costs the broker an entry and every reader a pull. So messages that come in large numbers keep
together, and few messages take turns. ``CROWD`` or more messages of one iteration of the event loop are a crowd.
A flood is a bulk send.

One topic (``Rotation.take``), by what came before:

======  =======================================================  ==============================================
state   when                                                     the crowd gets
======  =======================================================  ==============================================
spread  fewer than ``CROWD`` messages, or one of the first       the next queue for each message
        ``EVEN_CROWDS`` crowds, or ``CROWD_PAUSE_S`` after one
stream  later crowds                                             one queue; from ``CROWD_PIECE`` messages on the
                                                                 next queue for each piece of that size
flood   such large crowds, less than ``FLOOD_S`` apart           one queue for up to ``FLOOD_PIECE`` messages
                                                                 and ``FLOOD_S``, over several crowds
======  =======================================================  ==============================================

Several topics in one turn (``TopicRotations.take``):

======  =======================================================  ==============================================
state   when                                                     a message gets
======  =======================================================  ==============================================
spread  fewer than ``CROWD_PIECE`` messages, or                  the next queue of its topic
        ``CROWD_PAUSE_S`` after such a crowd
flood   later crowds                                             the queue that its topic keeps, for ``KEPT_S``
                                                                 or ``WINDOW_RECORDS`` messages of all topics
======  =======================================================  ==============================================

Streams and floods now and then go on at any queue (``EVEN_CROWDS``, ``ANYWHERE``). Otherwise a rhythm of large and
small crowds could give one queue only the large ones. The numbers were measured: ``docs/performance.md``.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice

from dejamq.sending.encoding import Template
from dejamq.values.message import MessageQueue

CROWD = 4
"""This many messages of one turn are a crowd."""
EVEN_CROWDS = 32
"""The first this many crowds of a stream are spread; after each further this many the rotation goes on anywhere."""
CROWD_PAUSE_S = 0.1
"""Crowds that are this far apart are no stream."""
CROWD_PIECE = 128
"""A crowd of this many messages is large; a piece of it that keeps together outside of a flood has as many."""
FLOOD_S = 0.01
"""Large crowds of one topic that are less than this apart are a flood; it keeps a queue for at most as long."""
FLOOD_PIECE = 4096
"""A flood of one topic gives a queue at most this many messages."""
KEPT_S = 0.1
"""In a flood of several topics each topic keeps a queue for at most this long."""
ANYWHERE = 16
"""After this many times all rotations of a flood of several topics go on anywhere."""
WINDOW_RECORDS = 48 * 850
"""This many sends of a flood are regrouped by queue before they are cut into runs: ``batching.runs_of``.

A flood of several topics keeps its queues for as many messages, so that a window has one queue of each topic.
"""


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
        """A queue for each message of one turn, by the table of this module (``now``: s, monotonic).

        A stream's crowd goes to one queue, as RocketMQ's ProduceAccumulator sends a gathered batch to one; a flood
        keeps to a queue for some runs, as Kafka's producers do. Over four queues, a consumer spends a third less on
        a message so, of 50,000 a second and of 5,000.
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


class TopicRotations:
    """Queues for what goes to several topics in one turn, by the second table of this module.

    A flood's runs and pulls so have more of each queue, as with one topic: over 200 topics of four queues, a message
    takes a sixth less of producer and broker. A flood of one topic has to come faster than one of several topics,
    as nothing is regrouped for it meanwhile.
    """

    def __init__(self, rotations: Mapping[str, Rotation]) -> None:
        """``rotations`` are those of all topics; ``forget`` when one of them is another one."""
        self._rotations = rotations
        self._kept: dict[str, MessageQueue] = {}
        self._queue_of: dict[Template, MessageQueue] = {}
        """The same, for topic, flag and tag."""
        self._flood_until = self._kept_until = 0.0
        self._room = self._renewals = 0

    def take(self, commons: Sequence[Template], kinds: set[Template], now: float) -> list[MessageQueue]:
        """A queue for each message of one turn, by its topic (``now``: s, monotonic).

        Raises KeyError for a topic without a rotation. ``kinds`` are the different ones of ``commons``.
        """
        if len(commons) < CROWD_PIECE:
            return self._next(commons)
        flood, self._flood_until = now < self._flood_until, now + CROWD_PAUSE_S
        if not flood:
            return self._next(commons)
        if self._room <= 0 or now >= self._kept_until:
            self.forget()
            self._room, self._kept_until = WINDOW_RECORDS, now + KEPT_S
            self._renewals += 1
        self._room -= len(commons)
        self._keep(kinds.difference(self._queue_of))
        return list(map(self._queue_of.__getitem__, commons))

    def forget(self) -> None:
        """Queues may have gone."""
        self._kept.clear()
        self._queue_of.clear()

    def _keep(self, commons: Iterable[Template]) -> None:
        """Those that come for the first time keep to the next queues of their topics."""
        for common in commons:
            topic = common.topic
            if topic not in self._kept:
                rotation = self._rotations[topic]
                if self._renewals % ANYWHERE == 0:
                    rotation.restart()
                self._kept[topic] = rotation.next()
            self._queue_of[common] = self._kept[topic]

    def _next(self, commons: Sequence[Template]) -> list[MessageQueue]:
        return [self._rotations[common.topic].next() for common in commons]
