"""The clients of dejamq that are measured: one producer, one consumer, each in a process of its own."""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from dejamq import (
    BacklogFull,
    ConsumeFrom,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
)

from dejamq_lab.bench.client.result import Job, Span
from dejamq_lab.bench.client.stopwatch import STAMP_BYTES, Gate, Stopwatch, age_ms, paced, stamped

POLLED = 500
SUBMITTED = 256
"""Messages that are submitted before the loop turns, so that results come in and runs leave."""
ASSIGNED_MS = 60_000
UNSTAMPED = bytes(STAMP_BYTES)


async def flood(producer: Producer, topics: Iterator[str], body: bytes, messages: int) -> None:
    """Submit ``messages`` messages and await every future; BacklogFull is the sign to wait for room."""
    turns: deque[list[asyncio.Future[SendResult]]] = deque()
    submit = producer.submit
    for begin in range(0, messages, SUBMITTED):
        turn: list[asyncio.Future[SendResult]] = []
        turns.append(turn)
        for _ in range(min(SUBMITTED, messages - begin)):
            message = Message(next(topics), body)
            try:
                turn.append(submit(message))
            except BacklogFull:
                await producer.drain()
                turn.append(submit(message))
        await asyncio.sleep(0)
        while turns and all(map(asyncio.Future.done, turns[0])):
            for future in turns.popleft():
                future.result()
    for turn in turns:
        for future in turn:
            await future


class OwnProducer:
    """Sends what the job says and measures it."""

    def __init__(self, job: Job, producer: Producer) -> None:
        self._job, self._load, self._producer = job, job.load, producer
        self._topics: Iterator[str] = itertools.cycle(job.topics)
        self._body = job.load.body()
        self._watch = Stopwatch()

    async def run(self, gate: Gate) -> Span:
        """Send all messages. Where a consumer counts them, no warm-up message goes before the measurement."""
        if self._job.what in ("send", "latency"):  # a latency's consumer passes over what has no moment in it
            for topic in self._job.topics:  # makes the topics and the connections
                await self._producer.send(Message(topic, self._body))
        await gate()
        self._watch.start()
        if self._job.what == "latency":
            await self._at_a_rate()
        elif self._load.mode == "submit":
            await flood(self._producer, self._topics, self._body, self._load.messages)
        elif self._load.mode == "batch":
            await self._batches()
        else:
            await self._senders(1 if self._load.mode == "single" else self._load.concurrency)
        return self._watch.span()

    def _message(self) -> Message:
        return Message(next(self._topics), self._body)

    async def _batches(self) -> None:
        """One batch at a time, each of one topic, as a batch has to be."""
        for begin in range(0, self._load.messages, self._load.batch_size):
            count, topic = min(self._load.batch_size, self._load.messages - begin), next(self._topics)
            began = time.perf_counter()
            await self._producer.send_batch([Message(topic, self._body) for _ in range(count)])
            self._watch.samples_ms.append((time.perf_counter() - began) * 1000)

    async def _senders(self, concurrency: int) -> None:
        numbers, samples = iter(range(self._load.messages)), self._watch.samples_ms

        async def sender() -> None:
            for _ in numbers:
                began = time.perf_counter()
                await self._producer.send(self._message())
                samples.append((time.perf_counter() - began) * 1000)

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(sender())

    async def _at_a_rate(self) -> None:
        pending: deque[asyncio.Future[SendResult]] = deque()

        async def send(count: int) -> None:
            for _ in range(count):
                pending.append(self._producer.submit(Message(next(self._topics), stamped(self._body))))
            while pending and pending[0].done():
                pending.popleft().result()

        await paced(send, self._load.messages, self._load.rate)
        while pending:
            await pending.popleft()


class Received:
    """Counts what handlers are given, and knows when it was everything."""

    def __init__(self, job: Job) -> None:
        self.all = asyncio.Event()
        self.watch = Stopwatch()
        self._expected, self._count, self._size = job.load.messages, 0, 0

    async def one(self, message: ReceivedMessage) -> None:
        """Handler per message; reads the body."""
        if not self._count:
            self.watch.start()
        self._count += 1
        self._size += len(message.body)
        if self._count == self._expected:
            self.all.set()

    async def many(self, messages: Sequence[ReceivedMessage]) -> None:
        """Handler of a batch; reads each body."""
        if not self._count:
            self.watch.start()
        self._count += len(messages)
        for message in messages:
            self._size += len(message.body)
        if self._count >= self._expected:
            self.all.set()

    async def late(self, message: ReceivedMessage) -> None:
        """Handler that notes how old the message is; the producer's first ones are of no time."""
        if message.body[:STAMP_BYTES] != UNSTAMPED:
            self.watch.samples_ms.append(age_ms(message.body))
            await self.one(message)

    def take(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Read body and id of each message of a poll. Answers whether the last message was among them."""
        if not self._count and messages:
            self.watch.start()
        self._count += len(messages)
        for message in messages:
            self._size += len(message.body) + len(message.message_id)
        return self._count >= self._expected


async def produce(job: Job, gate: Gate) -> Span:
    async with Producer("bench-producer", **client_settings(job)) as producer:
        return await OwnProducer(job, producer).run(gate)


async def consume(job: Job, gate: Gate) -> Span:
    """From the first message handled to the last one; for latency also how old each was when its handler began."""
    received = Received(job)
    consumer = PushConsumer("bench-consumer", consume_from=ConsumeFrom.FIRST_OFFSET, **client_settings(job))
    for topic in job.topics:
        if job.load.batch_size > 1:
            consumer.subscribe_batch(topic, received.many, size=job.load.batch_size)
        else:
            consumer.subscribe(topic, received.late if job.what == "latency" else received.one)
    async with consumer:
        if job.what == "latency" or job.load.together:
            await consumer.wait_assigned(ASSIGNED_MS)
        await gate()
        await received.all.wait()
        return received.watch.span()


async def poll(job: Job, gate: Gate) -> Span:
    """From the first poll that returned messages to the last one."""
    received = Received(job)
    consumer = LitePullConsumer("bench-poller", consume_from=ConsumeFrom.FIRST_OFFSET, **client_settings(job))
    for topic in job.topics:
        consumer.subscribe(topic)
    async with consumer:
        await gate()
        while not received.take(await consumer.poll(1_000, POLLED)):
            pass
        return received.watch.span()


def client_settings(job: Job) -> dict[str, Any]:
    return {
        "namesrv": job.address, "journal_dir": job.journal_dir, "journal_level": job.load.journal_level,
        "vip_channel_enabled": job.load.transport == "frames",
    }  # fmt: skip


async def run(job: Job, gate: Gate) -> Span:
    """Do the job."""
    if job.role == "produce":
        return await produce(job, gate)
    return await (poll if job.what == "poll" else consume)(job, gate)
