"""``python benchmarks/footprint.py start|memory|idle|stuck``: what servers and clients take, beside what is bare.

``start``: from ``dejamq cluster up`` of two name servers and two brokers to its return, when clients can use them,
beside a Python that imports what they need and ends. ``memory``: what each process keeps of its own (RssAnon; the
log's pages are the kernel's) while a producer floods and a consumer takes what it can. ``idle``: the time of a core
that consumers cost which wait for messages that do not come, in the broker and in their own process. ``stuck``: what
one consumer of many topics keeps and costs whose handlers do not come to an end while messages wait in all its queues.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from dejamq import BacklogFull, ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from dejamq_lab.cluster.usage import core_seconds, memory_mib
from service_common import broker_of, clients, cluster, journal, namesrv_of

TOPIC = "footprint"
BARE = "import asyncio, grpc.aio, numpy, msgspec"
SAMPLE_S = 0.1
SETTLE_S = 5
FILL = 10_000
"""So many messages are submitted before they are waited for."""
Report = dict[str, Any]


def main() -> int:
    options = parsed()
    if options.what in CLIENTS:
        asyncio.run(CLIENTS[options.what](options))
        return 0
    report: Report = asyncio.run(MEASURES[options.what](options))
    report |= {"what": options.what, "load_average": os.getloadavg()[0]}
    print(msgspec.json.encode(report).decode())
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=(*MEASURES, *CLIENTS), help="a figure; or a part of one")
    parser.add_argument("--rounds", type=int, default=3, help="start")
    parser.add_argument("--seconds", type=float, default=15, help="memory, idle, stuck")
    parser.add_argument("--consumers", type=int, default=200, help="idle")
    parser.add_argument("--groups", type=int, default=200, help="idle: the consumers are spread over so many")
    parser.add_argument("--topics", type=int, default=200, help="stuck")
    parser.add_argument("--messages", type=int, default=400_000, help="stuck: in all queues together")
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--namesrv", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


# start


async def start(options: argparse.Namespace) -> Report:
    up_s, bare_s = [], []
    for _ in range(options.rounds):
        bare_s.append(timed([sys.executable, "-c", BARE]))
        with tempfile.TemporaryDirectory(prefix="start-") as directory:
            command = [str(Path(sys.executable).with_name("dejamq")), "cluster"]
            up_s.append(timed([*command, "up", "--dir", directory]))
            timed([*command, "down", "--dir", directory])
    median_s, median_bare_s = float(np.median(up_s)), float(np.median(bare_s))
    return {
        "up_s": rounded(median_s), "slowest_s": rounded(max(up_s)), "bare_imports_s": rounded(median_bare_s),
        "bare_imports": rounded(median_s / median_bare_s), "rounds": options.rounds,
    }  # fmt: skip


def timed(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


# memory


async def memory(options: argparse.Namespace) -> Report:
    """The most that each process kept, MiB, looked at every 100 ms."""
    most: dict[str, float] = {}
    async with (
        cluster({TOPIC: options.queues}) as servers,
        clients(servers, __file__, given(options, "consume", "flood")) as processes,
    ):
        pids = {"namesrv": namesrv_of(servers).pid, "broker": broker_of(servers).pid}
        pids |= {"consumer": processes["consume"].pid, "producer": processes["flood"].pid}
        at_first = {name: memory_mib(pid) for name, pid in pids.items()}
        while all(process.returncode is None for process in processes.values()):
            for name, pid in pids.items():
                most[name] = max(most.get(name, 0.0), memory_mib(pid))
            await asyncio.sleep(SAMPLE_S)
    return {"own_mib": most, "own_mib_at_first": at_first, "seconds": options.seconds}


async def flood(options: argparse.Namespace) -> None:
    """Submit without pause, each message with a body of its own, as a program does that has much to say."""
    sent, began = 0, time.monotonic()
    async with Producer("footprint", namesrv=options.namesrv, **journal()) as producer:
        while time.monotonic() - began < options.seconds:
            try:
                for _ in range(256):
                    producer.submit(Message(TOPIC, bytes(1024)))
                    sent += 1
                await asyncio.sleep(0)
            except BacklogFull:
                await producer.drain()
        await producer.flush()
    print(sent, flush=True)


async def consume(options: argparse.Namespace) -> None:
    async def handle(message: ReceivedMessage) -> None:
        assert message.body

    consumer = PushConsumer(
        "footprint", namesrv=options.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, **journal()
    )  # fmt: skip
    consumer.subscribe(TOPIC, handle)
    async with consumer:
        await consumer.wait_assigned(10_000)
        await asyncio.sleep(options.seconds)


# idle


async def idle(options: argparse.Namespace) -> Report:
    """Percent of a core, over the seconds after everybody has its queues and its first pulls wait."""
    topics = dict.fromkeys(names(options.groups), options.queues)
    async with cluster(topics) as servers, clients(servers, __file__, given(options, "wait")) as processes:
        process = processes["wait"]
        assert process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(SETTLE_S)
        pids = {"broker": broker_of(servers).pid, "namesrv": namesrv_of(servers).pid, "consumers": process.pid}
        cost = await core_percent(pids, options.seconds)
    return {"core_percent": cost, "consumers": options.consumers, "groups": options.groups, "queues": options.queues}


async def wait(options: argparse.Namespace) -> None:
    """All consumers in one process, each with connections of its own."""

    async def handle(message: ReceivedMessage) -> None:
        raise AssertionError(f"nobody sent {message.message_id}")

    async with contextlib.AsyncExitStack() as stack:
        for number in range(options.consumers):
            group = f"{TOPIC}-{number % options.groups}"
            consumer = PushConsumer(group, namesrv=options.namesrv, **journal())
            consumer.subscribe(group, handle)
            await stack.enter_async_context(consumer)
        print("ready", flush=True)
        await asyncio.sleep(SETTLE_S + options.seconds)


# stuck


async def stuck(options: argparse.Namespace) -> Report:
    """When the consumer has taken what it may: what it keeps of its own, MiB, and percent of a core from then on."""
    topics = dict.fromkeys(names(options.topics), options.queues)
    async with cluster(topics) as servers:
        async with clients(servers, __file__, given(options, "fill")) as filling:
            await filling["fill"].wait()
        async with clients(servers, __file__, given(options, "hold")) as processes:
            process = processes["hold"]
            assert process.stdout is not None
            before = core_seconds(process.pid)
            await process.stdout.readline()
            first_s, own_mib = core_seconds(process.pid) - before, memory_mib(process.pid)
            cost = await core_percent({"consumer": process.pid}, options.seconds)
            return {
                "own_mib": rounded(own_mib), "first_core_s": rounded(first_s), "core_percent": cost["consumer"],
                "bodies_mib": int(await process.stdout.readline()) >> 20, "topics": options.topics,
                "queues": options.queues, "messages": options.messages,
            }  # fmt: skip


async def fill(options: argparse.Namespace) -> None:
    """Messages of 1 KiB to all topics in turn."""
    turns = itertools.cycle(names(options.topics))
    async with Producer("footprint", namesrv=options.namesrv, **journal()) as producer:
        for begin in range(0, options.messages, FILL):
            for _ in range(min(FILL, options.messages - begin)):
                producer.submit(Message(next(turns), bytes(1024)))
            await producer.flush()


async def hold(options: argparse.Namespace) -> None:
    """Take what may be taken and come to no end with it."""
    never = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await never.wait()

    consumer = PushConsumer(
        "footprint", namesrv=options.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, shutdown_mode="rocketmq",
        **journal(),
    )  # fmt: skip
    for topic in names(options.topics):
        consumer.subscribe(topic, handle)
    async with consumer:
        await asyncio.sleep(SETTLE_S)
        print("taken", flush=True)
        await asyncio.sleep(options.seconds)
        print(sum(queue.cached_msg_bytes for queue in consumer.statistics().queues.values()), flush=True)


def given(options: argparse.Namespace, *parts: str) -> dict[str, list[str]]:
    """The arguments of these parts in processes of their own."""
    of_parts = ("seconds", "consumers", "groups", "topics", "messages")
    arguments = [f"--{name}={getattr(options, name)}" for name in of_parts]
    return dict.fromkeys(parts, arguments)


def names(topics: int) -> list[str]:
    """Those of so many topics."""
    return [f"{TOPIC}-{number}" for number in range(topics)]


async def core_percent(pids: Mapping[str, int], seconds: float) -> dict[str, float]:
    """What each process takes from now on, for so long."""
    before, began = {name: core_seconds(pid) for name, pid in pids.items()}, time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    return {name: rounded(100 * (core_seconds(pid) - before[name]) / passed) for name, pid in pids.items()}


def rounded(value: float) -> float:
    return round(value, 3)


MEASURES = {"start": start, "memory": memory, "idle": idle, "stuck": stuck}
CLIENTS = {"flood": flood, "consume": consume, "wait": wait, "fill": fill, "hold": hold}

if __name__ == "__main__":
    sys.exit(main())
