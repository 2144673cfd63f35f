"""The loads, for any peer's client in Python: a peer says only how it sends, receives and acknowledges."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from dejamq_lab.bench.client.result import Job, Span
from dejamq_lab.bench.client.stopwatch import Gate, Stopwatch, age_ms, paced, stamped


class PeerSender(Protocol):
    """Sends to the topic of the job. Returns when everything is acknowledged."""

    async def send_all(self, bodies: Iterable[bytes]) -> None:
        """As fast as this client can, with many under way."""

    async def send(self, body: bytes) -> None:
        """One, and wait. Concurrent calls are made only where the peer has the mode await."""


class Receiver(Protocol):
    async def receive(self) -> Sequence[bytes]:
        """The bodies of what comes next, possibly nothing, after some time of waiting."""

    async def acknowledge(self) -> None:
        """Everything that was received."""


async def produce(job: Job, sender: PeerSender, gate: Gate) -> Span:
    body, load, watch = job.load.body(), job.load, Stopwatch()
    if job.what == "send":
        await sender.send(body)
    await gate()
    watch.start()
    if job.what == "latency":
        await paced(lambda count: sender.send_all([stamped(body) for _ in range(count)]), load.messages, load.rate)
    elif load.mode == "submit":
        await sender.send_all(_times(body, load.messages))
    else:
        await _senders(job, sender, watch.samples_ms)
    return watch.span()


def _times(body: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield body


async def _senders(job: Job, sender: PeerSender, samples_ms: list[float]) -> None:
    numbers, body = iter(range(job.load.messages)), job.load.body()

    async def one() -> None:
        for _ in numbers:
            began = time.perf_counter()
            await sender.send(body)
            samples_ms.append((time.perf_counter() - began) * 1000)

    async with asyncio.TaskGroup() as group:
        for _ in range(1 if job.load.mode == "single" else job.load.concurrency):
            group.create_task(one())


async def consume(job: Job, receiver: Receiver, gate: Gate) -> Span:
    """From the first messages received to the last acknowledgement."""
    watch, count, size = Stopwatch(), 0, 0
    await gate()
    while count < job.load.messages:
        bodies = await receiver.receive()
        if not count and bodies:
            watch.start()
        if job.what == "latency":
            watch.samples_ms += map(age_ms, bodies)
        count += len(bodies)
        for body in bodies:
            size += len(body)
        await receiver.acknowledge()
    return watch.span()
