"""JetStream by nats-py: publishes with many acknowledgements under way, pulls of 500 acknowledged as one."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NothingCame
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StorageType
from nats.js.errors import BadRequestError

from dejamq_lab.bench.client.result import Job, Span
from dejamq_lab.bench.client.stopwatch import Gate
from dejamq_lab.bench.peers import client_loops

FETCH, WAIT_S, ANSWER_S = 500, 1.0, 60.0
UNDER_WAY = 1000


class StreamSender:
    """Publishes with a reply subject of its own and counts the answers: nats-py's own futures cost many times that."""

    def __init__(self, connection: Client, stream: JetStreamContext, subject: str) -> None:
        self._connection, self._stream, self._subject = connection, stream, subject
        self._inbox = connection.new_inbox()
        self._answered, self._wanted = 0, 0
        self._refused = b""
        self._enough = asyncio.Event()

    async def _told(self, answer: Msg) -> None:
        self._answered += 1
        if b'"error"' in answer.data:
            self._refused = answer.data
        if self._answered >= self._wanted:
            self._enough.set()

    async def send_all(self, bodies: Iterable[bytes]) -> None:
        if not self._wanted:
            await self._connection.subscribe(self._inbox, cb=self._told)
        sent = self._answered
        for body in bodies:
            await self._connection.publish(self._subject, body, reply=self._inbox)
            sent += 1
            if sent % UNDER_WAY == 0:
                await self._reach(sent - UNDER_WAY)
        await self._reach(sent)

    async def _reach(self, count: int) -> None:
        """Wait until ``count`` are answered. Raises RuntimeError for one that is refused."""
        self._wanted = max(1, count)
        self._enough.clear()
        if self._answered < count:
            await asyncio.wait_for(self._enough.wait(), ANSWER_S)
        if self._refused:
            raise RuntimeError(self._refused.decode())

    async def send(self, body: bytes) -> None:
        await self._stream.publish(self._subject, body)


class StreamReceiver:
    """Acknowledges the last of a pull for all of it, as a low-water mark does."""

    def __init__(self, subscription: JetStreamContext.PullSubscription) -> None:
        self._subscription, self._last = subscription, list[Any]()

    async def receive(self) -> Sequence[bytes]:
        try:
            messages = await self._subscription.fetch(FETCH, timeout=WAIT_S)
        except NothingCame:
            messages = []
        self._last = messages[-1:]
        return [message.data for message in messages]

    async def acknowledge(self) -> None:
        for message in self._last:
            await message.ack()


class DeliveredReceiver:
    """Messages that the server delivers by itself: a pull would wait until it is full, and be late."""

    def __init__(self, subscription: JetStreamContext.PushSubscription) -> None:
        self._subscription, self._last = subscription, list[Any]()

    async def receive(self) -> Sequence[bytes]:
        try:
            self._last = [await self._subscription.next_msg(WAIT_S)]
        except NothingCame:
            self._last = []
        return [message.data for message in self._last]

    async def acknowledge(self) -> None:
        for message in self._last:
            await message.ack()


async def run(job: Job, gate: Gate) -> Span:
    async with await nats.connect(f"nats://{job.address}") as connection:
        stream = connection.jetstream()
        subject = job.topics[0]
        try:
            await stream.add_stream(name=subject, subjects=[subject], storage=StorageType.FILE)
        except BadRequestError:
            pass  # the other client has made it
        if job.role == "produce":
            return await client_loops.produce(job, StreamSender(connection, stream, subject), gate)
        if job.what == "latency":
            delivered = DeliveredReceiver(await stream.subscribe(subject, manual_ack=True, pending_msgs_limit=1 << 20))
            return await client_loops.consume(job, delivered, gate)
        config = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=-1)
        subscription = await stream.pull_subscribe(subject, durable="bench", config=config)
        return await client_loops.consume(job, StreamReceiver(subscription), gate)


async def drop(job: Job) -> None:
    async with await nats.connect(f"nats://{job.address}") as connection:
        await connection.jetstream().delete_stream(job.topics[0])
