"""``python benchmarks/simple_consumer.py``: messages a second that a ``SimpleConsumer`` receives and acknowledges.

A name server, a broker and the consumer are processes of their own, the journal is at ``audit``. Messages are sent
before. Each way to consume has a group of its own, and ways alternate; a ``PushConsumer`` is measured beside them.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import service_common as common
from dejamq import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage, SimpleConsumer
from dejamq_lab import Cluster
from dejamq_lab.cluster.usage import core_seconds

TOPIC, QUEUES = "parcels", 8
INVISIBLE_MS = 60_000


class Took(msgspec.Struct):
    """One way, once."""

    rate: float
    receive_p50_ms: float = 0.0
    ack_p50_ms: float = 0.0
    consumer_us: float = 0.0
    broker_us: float = 0.0
    """Of a core, a message."""


async def simple(given: argparse.Namespace, group: str, *, at_once: int, together: bool) -> Took:
    """Some loops receive so many at a time, and acknowledge them together or one by one."""
    consumer = SimpleConsumer(
        group, namesrv=given.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, **common.journal()
    )  # fmt: skip
    consumer.subscribe(TOPIC)
    left, received, acked, ended = given.messages, list[float](), list[float](), 0.0

    async def loop() -> None:
        nonlocal left, ended
        while left > 0:
            began = time.perf_counter()
            found = await consumer.receive(max_messages=at_once, invisible_ms=INVISIBLE_MS, timeout_ms=5_000)
            left -= len(found)
            answered = time.perf_counter()
            assert all(message.body for message in found)
            if together:
                await consumer.ack(*found)
            else:
                await asyncio.gather(*map(consumer.ack, found))
            received.append(answered - began)
            acked.append(time.perf_counter() - answered)
            ended = time.perf_counter() if found else ended

    async with consumer:
        began, before_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(loop() for _ in range(given.loops)))
        rate = given.messages / (ended - began)
        busy_us = 1e6 * (time.process_time() - before_s) / given.messages
    return Took(rate, 1000 * statistics.median(received), 1000 * statistics.median(acked), busy_us)


async def push(given: argparse.Namespace, group: str) -> Took:
    """A handler that reads each body."""
    consumer = PushConsumer(group, namesrv=given.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, **common.journal())
    left, everything = given.messages, asyncio.Event()

    async def one(message: ReceivedMessage) -> None:
        nonlocal left
        left -= bool(message.body)
        if not left:
            everything.set()

    consumer.subscribe(TOPIC, one)
    async with consumer:
        await consumer.wait_assigned(10_000)
        began, before_s = time.perf_counter(), time.process_time()
        await everything.wait()
        busy_us = 1e6 * (time.process_time() - before_s) / given.messages
        return Took(given.messages / (time.perf_counter() - began), consumer_us=busy_us)


WAYS: dict[str, Callable[[argparse.Namespace, str], Awaitable[Took]]] = {
    "32 at once": lambda given, group: simple(given, group, at_once=32, together=True),
    "256 at once": lambda given, group: simple(given, group, at_once=256, together=True),
    "32, one by one": lambda given, group: simple(given, group, at_once=32, together=False),
    "push consumer": push,
}


async def measured(given: argparse.Namespace) -> dict[str, list[Took]]:
    found: dict[str, list[Took]] = {way: [] for way in WAYS if given.only in way}
    async with common.cluster({TOPIC: QUEUES}) as servers:
        async with Producer("bench", namesrv=servers.namesrv) as producer:
            for number in range(given.messages):
                producer.submit(Message(TOPIC, b"%0*d" % (given.body_bytes, number)))
                if not number % 1024:
                    await producer.flush()
            await producer.flush()
        for number in range(given.rounds):
            for way, tooks in found.items():
                tooks.append(await alone(servers, given, way, f"{way.replace(',', '').replace(' ', '-')}-{number}"))
    return found


async def alone(servers: Cluster, given: argparse.Namespace, way: str, group: str) -> Took:
    """In a process of its own; what the broker took of a core is told."""
    arguments = [way, group, f"--messages={given.messages}", f"--loops={given.loops}"]
    pid = common.broker_of(servers).pid
    before, began = core_seconds(pid), time.monotonic()
    async with common.clients(servers, __file__, {"consume": arguments}) as processes:
        output, _ = await processes["consume"].communicate()
    took = msgspec.json.decode(output, type=Took)
    took.broker_us = 1e6 * (core_seconds(pid) - before) / given.messages
    print(f"{group:32} {took.rate:10,.0f}/s  a message takes {took.broker_us:5.1f} us of a core in the broker, "
          f"{took.consumer_us:5.1f} in the consumer; {time.monotonic() - began:.1f} s")  # fmt: skip
    return took


def told(found: dict[str, list[Took]]) -> str:
    lines = []
    for way, tooks in found.items():
        rates, line = [took.rate for took in tooks], f"{way:24}"
        line += f"{statistics.median(rates):10,.0f}/s ({min(rates):,.0f} to {max(rates):,.0f})"
        if tooks[0].receive_p50_ms:
            receive, ack = (statistics.median(getattr(took, name) for took in tooks)
                            for name in ("receive_p50_ms", "ack_p50_ms"))  # fmt: skip
            line += f"  receive {receive:.1f} ms, ack {ack:.1f} ms in the median"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("part", nargs="*", help="for the client's process: consume WAY GROUP")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--loops", type=int, default=8, help="that receive and acknowledge at one time")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="the ways whose name contains this")
    parser.add_argument("--namesrv", default="")
    given = parser.parse_args()
    if not given.part:
        print(told(asyncio.run(measured(given))))
        return
    _, way, group = given.part
    result: Any = asyncio.run(WAYS[way](given, group))  # type: ignore[arg-type]
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main()
