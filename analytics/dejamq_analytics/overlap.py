"""What several groups had of one topic, as ``survey`` tells it to the rule of L9."""

from collections.abc import Mapping
from typing import NamedTuple

Pair = tuple[str, str, str]
"""The first group by name, the second one, and the topic."""
Spot = tuple[str, str, int, int, int]
"""Broker, topic, queue id, and the first and last offset of some places."""


class Overlap(NamedTuple):
    """What several groups had of ``topics``, where not all of it is among the deliveries.

    ``counts``: how many messages at places that need not be looked at. Of ``spots`` all deliveries are there: among the
    places of ``first`` is the first message that both had, of those counted; what is in ``uncounted`` is not in
    ``counts``.
    """

    topics: frozenset[str] = frozenset()
    counts: Mapping[Pair, int] = {}
    first: frozenset[Spot] = frozenset()
    uncounted: frozenset[Spot] = frozenset()

    @property
    def spots(self) -> frozenset[Spot]:
        """All that decides."""
        return self.first | self.uncounted
