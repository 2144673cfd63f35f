"""Messages of one topic that several groups had, as ``survey`` reports them to the rule of L9."""

from collections.abc import Mapping
from typing import NamedTuple

Pair = tuple[str, str, str]
"""The first group by name, the second one, and the topic."""
Spot = tuple[str, str, int, int, int]
"""Broker, topic, queue id, and the first and last offset of some places."""


class Overlap(NamedTuple):
    """Messages of ``topics`` that several groups had, where some are not among the deliveries.

    ``counts``: the number of messages at places that need no look. All deliveries of ``spots`` are there. The places of
    ``first`` include the first counted message that both groups had. Messages in ``uncounted`` are not in ``counts``.
    """

    topics: frozenset[str] = frozenset()
    counts: Mapping[Pair, int] = {}
    first: frozenset[Spot] = frozenset()
    uncounted: frozenset[Spot] = frozenset()

    @property
    def spots(self) -> frozenset[Spot]:
        """All that decides."""
        return self.first | self.uncounted
