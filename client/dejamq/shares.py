"""This member's share of each topic, round after round, by a strategy that anybody may have written."""

import logging
from collections.abc import Sequence

from dejamq_proto.codes import ConfigError

from dejamq.allocation import Strategy, allocate
from dejamq.message import MessageQueue

log = logging.getLogger("dejamq.consumer")


class Shares:
    """Remembers which topics the strategy has answered for, and what it failed with last."""

    def __init__(self, name: str, strategy: Strategy) -> None:
        self._name, self.strategy = name, strategy
        self._answered: set[str] = set()
        self._troubles: dict[str, str] = {}

    def of(
        self, topic: str, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue] | None:
        """None while the strategy fails: everything stays as it is, as in RocketMQ, until it can answer again.

        Raises ConfigError when it never could for this topic: that is a fault of the program.
        """
        try:
            share = allocate(self._name, self.strategy, queues, members, me)
        except ConfigError as error:
            if topic not in self._answered:
                raise
            if self._troubles.get(topic) != str(error):
                log.error("allocation_failed topic=%s: %s", topic, error)
            self._troubles[topic] = str(error)
            return None
        self._answered.add(topic)
        self._troubles.pop(topic, None)
        return share
