"""Journal lines of what becomes of popped messages besides being acknowledged. Nothing where there is no journal."""

from collections.abc import Iterable

from dejamq_proto.journal.events import PopDrop
from dejamq_proto.journal.writer import Journal

from dejamq_broker.pop.memory import DroppedDelivery


class DropLines:
    """Writes those of one broker."""

    def __init__(self, broker_name: str, journal: Journal) -> None:
        self._broker_name, self._journal = broker_name, journal

    def dropped(self, every: Iterable[DroppedDelivery], reason: str) -> None:
        """These are in flight no more; for ``reason`` see ``PopDrop``."""
        if self._journal.on:
            for one in every:
                self._journal.write(PopDrop(
                    broker_name=self._broker_name, group=one.at.group, topic=one.at.topic, queue_id=one.at.queue_id,
                    queue_offsets=one.offsets, pop_time=one.pop_time, reason=reason,
                ))  # fmt: skip
