"""The measurements: send, consume, poll, latency. Clients live in the calling process, servers in their own."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
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
from dejamq_proto.journal import new_boot_id

from dejamq_lab.bench.result import BenchResult, Load, percentiles
from dejamq_lab.bench.rpc_echo import baseline
from dejamq_lab.cluster import Cluster

QUEUES = 4
POLLED = 500
IDLE_DEADLINE_S = 60


class Bench:
    """Runs one measurement against ``namesrv``, or against a cluster of one broker that lives as long as the call.

    One topic of its own for each measurement, so that nothing is left over from another one. Bodies are the
    same bytes each time: neither compression nor caches are measured.
    """

    def __init__(self, load: Load, namesrv: str | None = None) -> None:
        self.load, self.namesrv = load, namesrv
        self.topic = f"bench-{new_boot_id()}"
        self.body = bytes(range(256)) * (load.body_bytes // 256 + 1)
        self.body = self.body[: load.body_bytes]

    async def run(self, what: str) -> BenchResult:
        """``what`` is send, consume, poll or latency. Raises what the clients raise when the cluster is not well."""
        async with self._target() as (namesrv, journal_dir):
            self._meet(namesrv, journal_dir)
            ground = await baseline(self.load.body_bytes)
            measures = {"send": self._send, "consume": self._consume, "poll": self._poll, "latency": self._latency}
            measured = await measures[what]()
        seconds, p50_ms, p99_ms = measured
        return BenchResult(
            what=what, messages=self.load.messages, body_bytes=self.load.body_bytes, seconds=round(seconds, 4),
            messages_per_second=round(self.load.messages / seconds, 1), p50_ms=p50_ms, p99_ms=p99_ms, baseline=ground,
            settings=self._settings(what),
        )  # fmt: skip

    async def consume_on(self, namesrv: str, journal_dir: str) -> None:
        """Send and consume all messages, and measure nothing: whoever calls wants the journals."""
        self._meet(namesrv, journal_dir)
        await self._consume()

    def _meet(self, namesrv: str, journal_dir: str | None) -> None:
        self.client: dict[str, Any] = {
            "namesrv": namesrv, "journal_dir": journal_dir, "journal_level": self.load.journal_level
        }  # fmt: skip

    def _settings(self, what: str) -> dict[str, str | int]:
        """What has to be known to repeat the measurement, besides the numbers."""
        settings: dict[str, str | int] = {"journal_level": self.load.journal_level, "queues": QUEUES}
        if what == "send":
            settings |= {"mode": self.load.mode}
            if self.load.mode == "await":
                settings |= {"concurrency": self.load.concurrency}
        elif what == "poll":
            settings |= {"max_messages": POLLED}
        elif what == "latency":
            settings |= {"rate": self.load.rate}
        return settings

    @contextlib.asynccontextmanager
    async def _target(self) -> AsyncIterator[tuple[str, str | None]]:
        """(name servers, journal folder) to measure against; None where somebody else's cluster is used."""
        if self.namesrv:
            yield self.namesrv, None
            return
        async with Cluster(
            processes=True, topics={self.topic: QUEUES}, journal_level=self.load.journal_level
        ) as cluster:
            yield cluster.namesrv, str(cluster.journal_dir)

    def _message(self) -> Message:
        return Message(self.topic, self.body)

    async def _send(self) -> tuple[float, float | None, float | None]:
        """Seconds, median, 99th percentile. The first message is outside: it makes the topic and the connections."""
        async with Producer("bench-producer", **self.client) as producer:
            await producer.send(self._message())
            began = time.perf_counter()
            if self.load.mode == "submit":
                await self._flood(producer)
                return time.perf_counter() - began, None, None
            samples = await self._senders(producer, 1 if self.load.mode == "single" else self.load.concurrency)
            return time.perf_counter() - began, *percentiles(samples)

    async def _flood(self, producer: Producer) -> None:
        """Submit everything and await every future; BacklogFull is the sign to wait for room."""
        pending: deque[asyncio.Future[SendResult]] = deque()
        for _ in range(self.load.messages):
            try:
                pending.append(producer.submit(self._message()))
            except BacklogFull:
                await producer.drain()
                pending.append(producer.submit(self._message()))
            while pending and pending[0].done():
                pending.popleft().result()
            if len(pending) % 256 == 0:
                await asyncio.sleep(0)
        while pending:
            await pending.popleft()

    async def _senders(self, producer: Producer, concurrency: int) -> list[float]:
        samples: list[float] = []
        numbers = iter(range(self.load.messages))

        async def sender() -> None:
            for _ in numbers:
                began = time.perf_counter()
                await producer.send(self._message())
                samples.append((time.perf_counter() - began) * 1000)

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(sender())
        return samples

    async def _consume(self) -> tuple[float, float | None, float | None]:
        """From the first message handled to the last one, with all of them stored before the consumer starts."""
        async with Producer("bench-producer", **self.client) as producer:
            await self._flood(producer)
        done = asyncio.Event()
        handled = size = 0
        began = 0.0

        async def handle(message: ReceivedMessage) -> None:
            nonlocal handled, size, began
            began = began or time.perf_counter()
            handled, size = handled + 1, size + len(message.body)
            if handled == self.load.messages:
                done.set()

        async with self._consumer(handle):
            await asyncio.wait_for(done.wait(), IDLE_DEADLINE_S + self.load.messages / 1000)
            return time.perf_counter() - began, None, None

    async def _poll(self) -> tuple[float, float | None, float | None]:
        """From the first poll that returned messages to the last one; body and id of each message are read."""
        async with Producer("bench-producer", **self.client) as producer:
            await self._flood(producer)
        consumer = LitePullConsumer("bench-poller", consume_from=ConsumeFrom.FIRST_OFFSET, **self.client)
        consumer.subscribe(self.topic)
        polled = size = 0
        began = 0.0
        async with consumer, asyncio.timeout(IDLE_DEADLINE_S + self.load.messages / 1000):
            while polled < self.load.messages:
                messages = await consumer.poll(1_000, POLLED)
                began = began or (time.perf_counter() if messages else 0.0)
                polled += len(messages)
                for message in messages:
                    size += len(message.body) + len(message.message_id)
            return time.perf_counter() - began, None, None

    def _consumer(self, handle: Callable[[ReceivedMessage], Awaitable[None]]) -> PushConsumer:
        consumer = PushConsumer("bench-consumer", consume_from=ConsumeFrom.FIRST_OFFSET, **self.client)
        consumer.subscribe(self.topic, handle)
        return consumer

    async def _latency(self) -> tuple[float, float | None, float | None]:
        """From just before ``submit`` to the handler's begin, by the wall clock of one machine."""
        samples: list[float] = []
        done = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            samples.append((time.time_ns() - int(message.properties["sent"])) / 1e6)
            if len(samples) == self.load.messages:
                done.set()

        async with Producer("bench-producer", **self.client) as producer, self._consumer(handle) as consumer:
            await consumer.wait_assigned(IDLE_DEADLINE_S * 1000)
            began = time.perf_counter()
            await self._paced(producer, began)
            await asyncio.wait_for(done.wait(), IDLE_DEADLINE_S)
            return time.perf_counter() - began, *percentiles(samples)

    async def _paced(self, producer: Producer, began: float) -> None:
        """Send at ``rate``, in steps of one millisecond."""
        sent = 0
        pending: deque[asyncio.Future[SendResult]] = deque()
        while sent < self.load.messages:
            due = min(self.load.messages, int((time.perf_counter() - began) * self.load.rate))
            for _ in range(due - sent):
                stamp = {"sent": str(time.time_ns())}
                pending.append(producer.submit(Message(self.topic, self.body, properties=stamp)))
            sent = max(sent, due)
            while pending and pending[0].done():
                pending.popleft().result()
            await asyncio.sleep(0.001)
        while pending:
            await pending.popleft()
