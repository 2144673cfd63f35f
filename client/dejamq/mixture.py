"""Queues of what goes to several topics in one turn of the loop."""

from collections.abc import Iterable, Mapping, Sequence

from dejamq.encoding import Template
from dejamq.message import MessageQueue
from dejamq.selectors import CROWD_PAUSE_S, CROWD_PIECE, Rotation
from dejamq.window import WINDOW_RECORDS

KEPT_S = 0.1
"""All topics of a flood get other queues after so long, or when as many messages as are put in order together have gone
to them."""
ANYWHERE = 16
"""So often they go on anywhere, so that no rhythm of large and small crowds gives one queue only the large ones."""


class Mixture:
    """Each message gets the next queue of its topic, but in a flood, where a topic keeps to a queue for a while.

    So runs and pulls have more of each queue, as with one topic (``Rotation.take``): over 200 topics of four queues, a
    message takes a sixth less of producer and broker. A flood is large crowds that come in a stream; that of one
    topic has to come faster, as nothing is put in order for it meanwhile.
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
        """A queue for each message of one turn, by its topic (``now``: s, monotonic). Raises KeyError for a topic
        without a rotation. ``kinds`` are the different ones of ``commons``.
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
