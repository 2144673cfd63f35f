"""The content of each queue of a topic."""

import asyncio

import msgspec
from dejamq_proto.codes import Code, error_for

from dejamq.admin.messages import StoredMessages
from dejamq.net.broker import BrokerLink
from dejamq.values.message import MessageQueue


class QueueRange(msgspec.Struct, frozen=True):
    """A queue holds the offsets from ``min_offset`` to before ``max_offset``. Store times are the broker's; None when
    it holds nothing, or nothing of these two messages any more.
    """

    queue: MessageQueue
    min_offset: int
    max_offset: int
    first_stored_ms: int | None
    last_stored_ms: int | None


class QueueRanges(StoredMessages):
    """The part of ``Admin`` that measures queues."""

    async def queue_ranges(self, topic: str) -> list[QueueRange]:
        """Every queue of the topic that can be read, at every master that has it, sorted.

        Raises RouteNotFound for a topic that no master has. Source: RocketMQ ``GET_TOPIC_STATS_INFO``.
        """
        masters = await self._open().masters()
        configs = await self.topic(topic)
        if not configs:
            raise error_for(Code.TOPIC_NOT_EXIST, f"no broker has a topic {topic!r}")
        queues = sorted(
            MessageQueue(topic, one.broker_name, queue_id) for one in configs for queue_id in range(one.read_queues)
        )
        links = {name: self._open().broker(address) for name, address in masters.items()}
        return list(await asyncio.gather(*(self._range(links[queue.broker_name], queue) for queue in queues)))

    async def _range(self, link: BrokerLink, queue: MessageQueue) -> QueueRange:
        low = await link.min_offset(queue.topic, queue.queue_id)
        high = await link.max_offset(queue.topic, queue.queue_id)
        return QueueRange(
            queue, low, high, await self._stored_ms(queue, low, high), await self._stored_ms(queue, high - 1, high)
        )

    async def _stored_ms(self, queue: MessageQueue, place: int, high: int) -> int | None:
        """When the message at this place was stored."""
        if not 0 <= place < high:
            return None
        async for message in self.read(queue, place, place + 1):
            return message.store_timestamp_ms
        return None
