"""RabbitMQ by aio-pika: publishes with many confirms under way, a consumer with a prefetch of 500."""

import asyncio
import itertools
from collections.abc import Iterable, Sequence

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from dejamq_lab.bench.client.result import Job, Span
from dejamq_lab.bench.client.stopwatch import Gate
from dejamq_lab.bench.peers import client_loops

UNDER_WAY, PREFETCH = 500, 500
ACKNOWLEDGED = 100
"""Messages for one acknowledgement, well below the prefetch, so that deliveries do not pause."""


class QueueSender:
    def __init__(self, channel: AbstractChannel, queue: str) -> None:
        self._exchange, self._queue = channel.default_exchange, queue

    async def send_all(self, bodies: Iterable[bytes]) -> None:
        rest = iter(bodies)
        while part := list(itertools.islice(rest, UNDER_WAY)):
            await asyncio.gather(*map(self.send, part))

    async def send(self, body: bytes) -> None:
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._exchange.publish(message, self._queue)


class QueueReceiver:
    """Gathers what is delivered; acknowledges the last of it for all."""

    def __init__(self) -> None:
        self._delivered: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        self._last: AbstractIncomingMessage | None = None

    async def deliver(self, message: AbstractIncomingMessage) -> None:
        self._delivered.put_nowait(message)

    async def receive(self) -> Sequence[bytes]:
        messages = [await self._delivered.get()]
        while len(messages) < ACKNOWLEDGED and not self._delivered.empty():
            messages.append(self._delivered.get_nowait())
        self._last = messages[-1]
        return [message.body for message in messages]

    async def acknowledge(self) -> None:
        if self._last is not None:
            await self._last.ack(multiple=True)


async def run(job: Job, gate: Gate) -> Span:
    connection = await aio_pika.connect(f"amqp://guest:guest@{job.address}/")
    async with connection, connection.channel() as channel:
        queue = await channel.declare_queue(job.topics[0], durable=True)
        if job.role == "produce":
            return await client_loops.produce(job, QueueSender(channel, job.topics[0]), gate)
        await channel.set_qos(prefetch_count=PREFETCH)
        receiver = QueueReceiver()
        await queue.consume(receiver.deliver)
        return await client_loops.consume(job, receiver, gate)


async def drop(job: Job) -> None:
    async with await aio_pika.connect(f"amqp://guest:guest@{job.address}/") as connection:
        await (await connection.channel()).queue_delete(job.topics[0])
