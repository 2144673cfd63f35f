"""The end of a topic or a group: everything that this broker keeps of it goes, in an order that a crash may cut.

Source: RocketMQ ``AdminBrokerProcessor.deleteTopic``, ``deleteSubscriptionGroup``.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from dejamq_proto.signals import Signal

from dejamq_broker.base.counts import Counts
from dejamq_broker.tables.offsets import OffsetTable
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable

log = logging.getLogger(__name__)


class Lives:
    """Owned by the event loop; only ``clean_unused`` lets others go between."""

    def __init__(
        self, topics: TopicTable, groups: SubscriptionGroupTable, offsets: OffsetTable, counts: Counts, *,
        delete_queues: Callable[[str], None], wake: Callable[[list[tuple[str, int]]], None],
        stored: Callable[[], Iterable[tuple[str, int]]],
    ) -> None:  # fmt: skip
        """``delete_queues`` takes a topic's queues out of the store; ``wake`` makes held pulls of queues look again.
        ``stored``: the queues that the store has.
        """
        self._topics, self._groups, self._offsets, self._counts = topics, groups, offsets, counts
        self._delete_queues, self._wake, self._stored = delete_queues, wake, stored
        self.on_topic_end = Signal[[str]]()
        self.on_group_end = Signal[[str]]()

    def delete_topic(self, topic: str) -> bool:
        """Table, offsets, queues. False when there was no such topic; remains of it are deleted all the same.

        The table goes first: a crash after it leaves offsets and queues that nobody is led to, and that the same call
        clears away. Raises InvalidName for a topic of the broker's own.
        """
        config = self._topics.get(topic)
        existed = self._topics.delete(topic)
        self.on_topic_end.tell(topic)
        forgotten = self._offsets.forget(topic=topic)
        self._delete_queues(topic)
        self._counts.forget(topic=topic)
        if config is not None:
            self._wake([(topic, number) for number in range(config.queues)])
            log.info("topic_deleted topic=%s offsets=%d", topic, forgotten)
        return existed

    async def clean_unused(self) -> list[str]:
        """Delete what is left of topics that are not in the table, as after a lost file of topics; their names.

        Topics of the broker's own stay. Raises as the store's ``delete_topic``.
        Source: RocketMQ ``DefaultMessageStore.cleanUnusedTopic``.
        """
        gone = []
        for topic in sorted({topic for topic, _ in self._stored()}):
            if self._topics.get(topic) is None and not self._topics.is_own(topic):
                self.delete_topic(topic)
                gone.append(topic)
                log.info("unused_topic_deleted topic=%s", topic)
                await asyncio.sleep(0)
        return gone

    def delete_group(self, group: str, *, remove_offsets: bool) -> bool:
        """The group, and its offsets of all topics. Its retry topic and its dead letters are topics of their own.

        False when there was no such group. Raises InvalidName for a built-in one.
        """
        existed = self._groups.delete(group)
        self.on_group_end.tell(group)
        forgotten = self._offsets.forget(group=group) if remove_offsets else 0
        self._counts.forget(group=group)
        if existed:
            log.info("group_deleted group=%s offsets=%d", group, forgotten)
        return existed
