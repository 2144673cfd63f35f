"""Reading a topic as it lies in its queues, without a group: nothing is committed and nobody is disturbed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from dejamq import MessageQueue, ReceivedMessage
from dejamq.config import parse_addresses
from dejamq.received import receive
from dejamq.routes import TopicRoute
from dejamq.rpc_broker import BrokerLink
from dejamq.rpc_namesrv import NameServerLink
from dejamq_proto.codes import Code, error_for
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.journal import new_boot_id
from dejamq_proto.pull_pb2 import PullRequest

TOOLS_GROUP = "TOOLS_CONSUMER"  # RocketMQ's group of its own tools
TIMEOUT_MS = 3_000
IDLE_S = 0.2
MESSAGES_A_PULL = 256

Start = Callable[[BrokerLink, MessageQueue], Coroutine[Any, Any, int]]


class Reader:
    """Who asks: a client of no group."""

    def __init__(self) -> None:
        self._boot_id, self._seq = new_boot_id(), 0

    def caller(self, seq: int = 0) -> Caller:
        self._seq += 1
        return Caller(client_id=f"dejamq-cli@{self._boot_id}", boot_id=self._boot_id, seq=seq or self._seq)


@dataclass
class Place:
    """Where the reading of one queue has come to; ``end`` is where it ends unless it follows."""

    link: BrokerLink
    queue: MessageQueue
    queue_offset: int
    end: int


async def read_topic(namesrv: str, topic: str, start: Start, *, follow: bool) -> AsyncIterator[ReceivedMessage]:
    """The messages from ``start`` to what is the end now, queue by queue; with ``follow`` for ever.

    Raises RouteNotFound for a topic that nobody has.
    """
    reader = Reader()
    names = NameServerLink(parse_addresses(namesrv), reader, timeout_ms=TIMEOUT_MS)
    links: dict[str, BrokerLink] = {}
    try:
        route = TopicRoute.read(topic, await names.get_route(topic))
        places = []
        for queue in route.subscribe_queues():
            address = next(iter(route.addresses[queue.broker_name].values()))
            if address not in links:
                links[address] = BrokerLink(address, reader, timeout_ms=TIMEOUT_MS)
            link = links[address]
            end = await link.max_offset(topic, queue.queue_id)
            places.append(Place(link, queue, await start(link, queue), end))
        async for message in _read(places, follow):
            yield message
    finally:
        for link in links.values():
            await link.close()
        await names.close()


async def _read(places: list[Place], follow: bool) -> AsyncIterator[ReceivedMessage]:
    while True:
        found = False
        for place in places:
            while follow or place.queue_offset < place.end:
                before = place.queue_offset
                messages = await _pull(place)
                for message in messages:
                    if follow or message.queue_offset < place.end:
                        yield message
                found = found or bool(messages)
                if follow or place.queue_offset == before:  # an answer without messages may still move on
                    break
        if not follow:
            return
        if not found:
            await asyncio.sleep(IDLE_S)


async def _pull(place: Place) -> list[ReceivedMessage]:
    """The next messages; moves the place on, also over offsets that retention has removed."""
    request = PullRequest(
        group=TOOLS_GROUP, topic=place.queue.topic, queue_id=place.queue.queue_id, queue_offset=place.queue_offset,
        max_messages=MESSAGES_A_PULL, max_bytes=1 << 20,
    )  # fmt: skip
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        answer = await place.link.pull(request)
    if answer.code not in (Code.SUCCESS, Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY, Code.PULL_OFFSET_MOVED):
        raise error_for(answer.code, answer.remark)
    place.queue_offset = max(place.queue_offset, answer.next_offset)
    return receive(answer, place.queue, "")[1] if answer.code == Code.SUCCESS else []
