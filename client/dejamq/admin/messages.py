"""Stored messages as operators look at them: by id, by key, by place. Nothing is committed, nobody is disturbed."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from dejamq_proto.admin_pb2 import QueryMessageRequest
from dejamq_proto.codes import Code, DejamqError, error_for
from dejamq_proto.names import TOOLS_GROUP
from dejamq_proto.pull_pb2 import PullRequest

from dejamq.admin.calls import AdminLink
from dejamq.admin.life import AdminLife
from dejamq.receiving.received import ReceivedMessage, receive, receive_stored
from dejamq.values.message import MessageQueue

PULL_MESSAGES = 256


class TopicQueues(msgspec.Struct, frozen=True):
    """A topic at one broker. ``perm`` adds 4 read and 2 write; ``order``: its messages are to keep theirs."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool = False


class StoredMessages(AdminLife):
    """The part of ``Admin`` that reads messages."""

    async def topic(self, topic: str) -> list[TopicQueues]:
        """The topic as each master has it, whatever the name servers say; empty when none has it."""
        configs = await self._open().each(AdminLink.topic_configs)
        return [
            TopicQueues(name, one.read_queue_nums, one.write_queue_nums, one.perm, one.order)
            for name, found in configs.items()
            for one in found
            if one.topic == topic
        ]

    async def message(self, offset_message_id: str) -> ReceivedMessage:
        """The stored copy with this id. Raises DejamqError with QUERY_NOT_FOUND.

        Brokers are asked one after the other: the host in the id is the one that stored it, maybe under another
        address than today's.
        """
        for name, address in (await self._open().masters()).items():
            try:
                raw = await self._open().admin(address).view(offset_message_id)
            except DejamqError as error:
                if error.code != Code.QUERY_NOT_FOUND:
                    raise
            else:
                message = receive_stored(raw, name)
                if message.offset_message_id == offset_message_id.upper():
                    return message
        raise DejamqError(f"no broker has a message {offset_message_id}", code=Code.QUERY_NOT_FOUND)

    async def messages_by_key(
        self, topic: str, key: str, *, unique: bool = False, begin_ms: int = 0, end_ms: int = 0
    ) -> list[ReceivedMessage]:
        """Messages with this key, or with ``unique`` this message id, by store time; the newest 64 of each broker.

        ``begin_ms`` and ``end_ms`` are store times, both included; 0 is no bound. Empty when there is no such message.
        """
        found = []
        for name, address in (await self._open().masters()).items():
            request = QueryMessageRequest(
                topic=topic, key=key, unique=unique, begin_timestamp_ms=begin_ms, end_timestamp_ms=end_ms
            )
            try:
                found += [receive_stored(raw, name) for raw in await self._open().admin(address).query(request)]
            except DejamqError as error:
                if error.code != Code.QUERY_NOT_FOUND:
                    raise
        return sorted(found, key=lambda message: message.store_timestamp_ms)

    async def read(self, queue: MessageQueue, begin: int = 0, end: int | None = None) -> AsyncIterator[ReceivedMessage]:
        """The messages of one queue from ``begin`` to before ``end``, by default what is the end now."""
        (address,) = (await self._open().masters([queue.broker_name])).values()
        link = self._open().broker(address)
        stop = await link.max_offset(queue.topic, queue.queue_id) if end is None else end
        place = begin
        while place < stop:
            request = PullRequest(
                group=TOOLS_GROUP, topic=queue.topic, queue_id=queue.queue_id, queue_offset=place,
                max_messages=min(PULL_MESSAGES, stop - place), max_bytes=1 << 20,
            )  # fmt: skip
            async with asyncio.timeout(self.config.mq_client_api_timeout_ms / 1000):
                answer = await link.pull(request)
            if answer.code == Code.SUCCESS:
                for message in receive(answer, queue, "")[1]:
                    if message.queue_offset < stop:
                        yield message
            elif answer.code != Code.PULL_OFFSET_MOVED:  # messages that retention removed are passed over
                raise error_for(answer.code, answer.remark)
            if answer.next_offset <= place:
                return
            place = answer.next_offset
