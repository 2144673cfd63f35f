"""The end of a topic or a group: everything that this broker keeps of it goes, in an order that a crash may cut.

Source: RocketMQ ``AdminBrokerProcessor.deleteTopic``, ``deleteSubscriptionGroup``.
"""

import logging
from collections.abc import Callable

from dejamq_broker.counts import Counts
from dejamq_broker.offsets import OffsetTable
from dejamq_broker.subscription_groups import SubscriptionGroupTable
from dejamq_broker.topics import TopicTable

log = logging.getLogger(__name__)


class Lives:
    """Owned by the event loop; nothing here waits."""

    def __init__(self, topics: TopicTable, groups: SubscriptionGroupTable, offsets: OffsetTable) -> None:
        self._topics, self._groups, self._offsets = topics, groups, offsets
        self.delete_queues: Callable[[str], None] = lambda topic: None
        """Takes the topic's queues out of the store."""
        self.counts = Counts()
        self.wake: Callable[[list[tuple[str, int]]], None] = lambda queues: None
        """Makes held pulls of these queues look again."""

    def delete_topic(self, topic: str) -> bool:
        """Table, offsets, queues. False when there was no such topic; what may be left of it goes all the same.

        The table goes first: a crash after it leaves offsets and queues that nobody is led to, and that the same call
        clears away. Raises InvalidName for a topic of the broker's own.
        """
        config = self._topics.get(topic)
        existed = self._topics.delete(topic)
        forgotten = self._offsets.forget(topic=topic)
        self.delete_queues(topic)
        self.counts.forget(topic=topic)
        if config is not None:
            self.wake([(topic, number) for number in range(config.queues)])
            log.info("topic_deleted topic=%s offsets=%d", topic, forgotten)
        return existed

    def delete_group(self, group: str, *, remove_offsets: bool) -> bool:
        """The group, and its offsets of all topics. Its retry topic and its dead letters are topics of their own.

        False when there was no such group. Raises InvalidName for a built-in one.
        """
        existed = self._groups.delete(group)
        forgotten = self._offsets.forget(group=group) if remove_offsets else 0
        self.counts.forget(group=group)
        if existed:
            log.info("group_deleted group=%s offsets=%d", group, forgotten)
        return existed
