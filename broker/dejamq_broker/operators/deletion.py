"""The end of a topic or a group: everything that this broker keeps of it goes, in an order that a crash may cut.

Source: RocketMQ ``AdminBrokerProcessor.deleteTopic``, ``deleteSubscriptionGroup``.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from dejamq_proto.signals import Signal

from dejamq_broker.base.counts import Counts
from dejamq_broker.base.disk_work import beside_loop
from dejamq_broker.tables.offsets import OffsetTable
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable

log = logging.getLogger(__name__)


class Queues(Protocol):
    """What a store does for the end of a topic."""

    def given_out(self, topic: str) -> list[int]: ...
    def note_deletion(self, topic: str) -> None: ...
    def delete_topic(self, topic: str, *, noted: bool = False) -> None: ...


class Lives:
    """Owned by the event loop."""

    def __init__(
        self, topics: TopicTable, groups: SubscriptionGroupTable, offsets: OffsetTable, counts: Counts, *,
        queues: Queues, wake: Callable[[list[tuple[str, int]]], None],
        stored: Callable[[], Iterable[tuple[str, int]]],
    ) -> None:  # fmt: skip
        """``queues`` are the store's; ``wake`` makes held pulls of queues look again.
        ``stored``: the queues that the store has.
        """
        self._topics, self._groups, self._offsets, self._counts = topics, groups, offsets, counts
        self._queues, self._wake, self._stored = queues, wake, stored
        self.on_topic_end = Signal[[str]]()
        self.on_group_end = Signal[[str]]()

    async def delete_topic(self, topic: str) -> bool:
        """Table, offsets, queues. False when there was no such topic; remains of it are deleted all the same.

        The table goes first: a crash after it leaves offsets and queues that nobody is led to, and that the same call
        clears away. Raises InvalidName for a topic of the broker's own.
        """
        config = self._topics.get(topic)
        existed = self._topics.delete(topic)
        self.on_topic_end.tell(topic)
        forgotten = self._offsets.forget(topic=topic)
        await self._delete_queues(topic)
        self._counts.forget(topic=topic)
        if config is not None:
            self._wake([(topic, number) for number in range(config.queues)])
            log.info("topic_deleted topic=%s offsets=%d", topic, forgotten)
        return existed

    async def _delete_queues(self, topic: str) -> None:
        """The deletion is on disk before the queues go, and the loop does not wait for that: a message that comes
        meanwhile belongs to the life that ends. Raises StoreError.
        """
        while True:
            before = self._queues.given_out(topic)
            await beside_loop(self._queues.note_deletion, topic)
            if self._queues.given_out(topic) == before:
                self._queues.delete_topic(topic, noted=True)
                return

    async def clean_unused(self) -> list[str]:
        """Delete what is left of topics that are not in the table, as after a lost file of topics; their names.

        Topics of the broker's own stay. Raises as the store's ``delete_topic``.
        Source: RocketMQ ``DefaultMessageStore.cleanUnusedTopic``.
        """
        gone = []
        for topic in sorted({topic for topic, _ in self._stored()}):
            if self._topics.get(topic) is None and not self._topics.is_own(topic):
                await self.delete_topic(topic)
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
