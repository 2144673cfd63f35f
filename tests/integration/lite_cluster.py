"""Lite pull consumers for tests: short intervals, journalled, addressed to the servers of ``consumer_cluster``."""

import asyncio
from collections.abc import Callable
from typing import Any

from consumer_cluster import QUICK, Servers
from dejamq import LitePullConsumer, Message, MessageQueue, ReceivedMessage
from dejamq_broker.tables.offsets import Position

SETTINGS: dict[str, Any] = {name: value for name, value in QUICK.items() if name != "consume_retry_delay_ms"}


def lite(here: Servers, group: str = "g", **settings: Any) -> LitePullConsumer:
    journal = {"journal_dir": str(here.directory / "journal"), "journal_level": "forensic"}
    return LitePullConsumer(group, namesrv=here.namesrv.address, **SETTINGS | journal | settings)


def subscribed(here: Servers, group: str = "g", **settings: Any) -> LitePullConsumer:
    consumer = lite(here, group, **settings)
    consumer.subscribe("orders")
    return consumer


async def send_to(here: Servers, number: int, *bodies: str, topic: str = "orders") -> MessageQueue:
    """Send in order to the topic's queue of this number."""
    async with here.producer() as producer:
        queue = (await producer.publish_queues(topic))[number]
        for body in bodies:
            await producer.send(Message(topic, body.encode()), queue=queue)
    return queue


async def polled(
    consumer: LitePullConsumer, enough: Callable[[list[ReceivedMessage]], object], limit: int = 500
) -> list[ReceivedMessage]:
    """Everything that polls return until there is enough."""
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(15):
        while not enough(found):
            found += await consumer.poll(200, limit)
    return found


async def poll_count(consumer: LitePullConsumer, count: int) -> list[str]:
    """Bodies, until so many came."""
    return bodies(await polled(consumer, lambda found: len(found) >= count))


def bodies(messages: list[ReceivedMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


def committed(here: Servers, queue: MessageQueue, group: str = "g") -> int | None:
    """The group's offset as the broker has it now."""
    assert here.broker is not None
    return here.broker.domain.tables.offsets.get(Position(group, queue.topic, queue.queue_id))


def is_committed(here: Servers, queue: MessageQueue, offset: int) -> bool:
    """Whether the broker has this offset of the group now."""
    return committed(here, queue) == offset
