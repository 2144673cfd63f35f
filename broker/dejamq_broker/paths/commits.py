"""Offsets that clients commit by a request of their own: which are taken."""

from typing import TYPE_CHECKING

from dejamq_broker.tables.offsets import Asker, OffsetTable, Position
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable, check_queue

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore


class Commits:
    """Owned by the event loop; it never waits. Source: RocketMQ ``ConsumerManageProcessor.updateConsumerOffset``."""

    def __init__(
        self, store: "MessageStore", topics: TopicTable, groups: SubscriptionGroupTable, offsets: OffsetTable
    ) -> None:
        self._store, self._topics, self._groups, self._offsets = store, topics, groups, offsets

    def commit(self, at: Position, offset: int, by: str, asker: Asker) -> None:
        """Raises for an unknown group or topic, and for a queue that never was.

        A queue that was taken out of use is not refused: a consumer that finishes it commits there. RocketMQ checks no
        queue.
        """
        self._groups.known(at.group)
        config = self._topics.require(at.topic)
        if not self._store.max_offset(at.topic, at.queue_id):
            check_queue(config, at.queue_id)
        self._offsets.commit(at, offset, by=by, asker=asker)
