"""``python benchmarks/growth.py queues|topics|stored|sustained``: whether throughput stays as it is while things grow.

``queues``, ``topics``: all messages are sent, then consumed, over more and more of them; the sizes take turns.
``stored``: one topic grows, and each stretch of it is timed, as it is sent and as a consumer comes to it afterwards.
``sustained``: a producer at a given rate and a consumer beside it, while retention deletes what is older than half a
minute; each 10 s are timed. But for it, memory is filled before, as in ``make bench``. ``flat`` is the slowest rate
over the fastest one, ``least`` and ``most`` are over the median. On a busy machine look at ``core_us``: the time of a
core that a message costs broker and client together.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import time
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from dejamq import BacklogFull, ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from dejamq_lab import Cluster
from dejamq_lab.bench.client.worker import collect_rarely
from dejamq_lab.bench.rounds import GivenMemory
from dejamq_lab.cluster.usage import core_seconds, memory_mib
from dejamq_lab.cluster.waiting import until
from service_common import Process, broker_of, clients, cluster, journal

SIZES = {"queues": (1, 4, 16, 64), "topics": (1, 20, 200)}
QUEUES = 4
TICK_S = 0.002
WINDOW_S = 10
SETTINGS = {"mapped_file_size_commit_log": 256 << 20}
KEPT_S = 30
RETENTION = {
    "file_reserved_time_hours": 1, "file_reserved_hour_ms": KEPT_S * 1000, "clean_resource_interval_ms": 2_000,
    "delete_when": ";".join(f"{hour:02}" for hour in range(24)),
}  # fmt: skip
"""What is older than half a minute goes, at any hour."""
FILES_MADE_S = 60
"""Within so long a broker makes the files of new queues: it writes queues out every second, and of 800 it takes longer,
where many files were deleted a minute before."""
SILENCE_S = 60
"""A consumer that gets nothing for so long waits for what never was stored."""
Times = list[float]
Report = dict[str, Any]


class Took(msgspec.Struct):
    """When each block of a part ended (s, the first: when it began), and the time of a core that it cost."""

    times: Times
    core_s: float


def main() -> int:
    options = parsed()
    if options.what in PARTS:
        before = time.process_time()
        times = asyncio.run(PARTS[options.what](options))
        print(msgspec.json.encode(Took(times, time.process_time() - before)).decode(), flush=True)
        return 0
    report: Report = asyncio.run(MEASURES[options.what](options))
    report |= {"what": options.what, "body_bytes": options.body_bytes, "load_average": os.getloadavg()[0]}
    print(msgspec.json.encode(report).decode())
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=(*MEASURES, *PARTS), help="begin, send and take are parts of the others")
    parser.add_argument("--messages", type=int, default=200_000, help="of each size; stored: in all")
    parser.add_argument("--block", type=int, default=100_000, help="stored: messages of a stretch")
    parser.add_argument("--rounds", type=int, default=3, help="queues, topics")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--seconds", type=int, default=30, help="sustained")
    parser.add_argument("--rate", type=int, default=20_000, help="sustained: messages a second; 0: as many as can be")
    for hidden in ("--topics", "--namesrv"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    return parser.parse_args()


# what is measured


async def sizes(options: argparse.Namespace) -> Report:
    """Each size a broker of its own, so that none finds what another one left. Every other round goes backwards: what
    comes later finds the machine's memory and disk otherwise than what comes first.
    """
    sent: dict[int, list[Took]] = {size: [] for size in SIZES[options.what]}
    taken: dict[int, list[Took]] = {size: [] for size in sent}
    turns = [size for number in range(options.rounds) for size in (reversed(sent) if number % 2 else sent)]
    with GivenMemory() as memory:
        for size in turns:
            topics = {f"growth-{topic}": QUEUES for topic in range(size)}
            if options.what == "queues":
                topics = {"growth": size}
            async with cluster(topics, SETTINGS) as servers:
                await part_alone(servers, "begin", options, options.messages, [*topics])
                await files_made(servers, sum(topics.values()))
                for part, rounds in (("send", sent[size]), ("take", taken[size])):
                    await memory.fill(tell)
                    rounds.append(await part_alone(servers, part, options, options.messages, [*topics]))
    messages = options.messages
    return {
        "sent": growth(sent, messages), "consumed": growth(taken, messages), "messages": messages,
        "rounds": options.rounds,
    }  # fmt: skip


async def stored(options: argparse.Namespace) -> Report:
    with GivenMemory() as memory:
        async with cluster({"growth": QUEUES}, SETTINGS) as servers:
            broker, block = broker_of(servers).pid, options.block
            rates = {}
            for part, name in (("send", "sent"), ("take", "consumed")):
                await memory.fill(tell)
                took = await part_alone(servers, part, options, block, ["growth"])
                rates[name] = spread(per_second(took.times, block)) | {"core_us": core_us([took], options.messages)}
            return rates | {"messages": options.messages, "block": block, "broker_own_mib": memory_mib(broker)}


async def sustained(options: argparse.Namespace) -> Report:
    """Bytes a second are those of bodies. The log's size is looked at each second."""
    count, block = options.rate * options.seconds, options.rate * WINDOW_S
    async with cluster({"growth": QUEUES}, SETTINGS | RETENTION) as servers:
        broker, log = broker_of(servers).pid, servers.store_dirs[0] / "commitlog"
        largest, own_mib = 0, 0.0
        arguments = arguments_of(options, count, block, ["growth"])
        async with clients(servers, __file__, {"take": arguments, "send": arguments}) as processes:
            reading = [asyncio.create_task(told_by(processes[part])) for part in ("send", "take")]
            while not all(each.done() for each in reading):
                await asyncio.wait(reading, timeout=1)
                largest = max(largest, sum(file.stat().st_size for file in log.glob("*")))
                own_mib = max(own_mib, memory_mib(broker))
            sent, taken = (spread(per_second(each.result().times, block)) for each in reading)
    return {
        "sent": sent, "consumed": taken, "wanted": options.rate, "seconds": options.seconds,
        "body_mb_per_second": round(sent["median"] * options.body_bytes / 1e6, 1), "log_most_mb": largest // 1_000_000,
        "broker_own_mib": own_mib,
    }  # fmt: skip


async def part_alone(servers: Cluster, part: str, options: argparse.Namespace, block: int, topics: list[str]) -> Took:
    pid = broker_of(servers).pid
    before = core_seconds(pid)
    async with clients(servers, __file__, {part: arguments_of(options, options.messages, block, topics)}) as processes:
        took = await told_by(processes[part])
    took.core_s += core_seconds(pid) - before
    return took


async def files_made(servers: Cluster, queues: int) -> None:
    """Return when each of so many queues has its file, and none is left to be made."""
    folder = servers.store_dirs[0] / "consumequeue"
    if not await until(lambda: len([*folder.glob("*/*/*")]) >= queues, FILES_MADE_S):
        sys.exit(f"the broker has not made the files of {queues} queues in {FILES_MADE_S} s")


def tell(line: str) -> None:
    print(line, file=sys.stderr)


def arguments_of(options: argparse.Namespace, count: int, block: int, topics: list[str]) -> list[str]:
    rate = options.rate if options.what == "sustained" else 0
    return [
        f"--messages={count}", f"--block={block}", f"--rate={rate}", f"--body-bytes={options.body_bytes}",
        f"--topics={','.join(topics)}",
    ]  # fmt: skip


async def told_by(process: Process) -> Took:
    assert process.stdout is not None
    told = await process.stdout.read()
    if not told:
        sys.exit("a part ended without its times; what it said is above")
    return msgspec.json.decode(told, type=Took)


def per_second(times: Times, block: int) -> Times:
    """From when each block ended, the first of them being the beginning."""
    return [block / (after - before) for before, after in pairwise(times)]


def growth(rounds: dict[int, list[Took]], messages: int) -> Report:
    rates = {
        size: float(np.median([per_second(took.times, messages)[0] for took in of_size]))
        for size, of_size in rounds.items()
    }
    return {
        "per_second": {str(size): round(rate) for size, rate in rates.items()},
        "core_us": {str(size): core_us(of_size, messages) for size, of_size in rounds.items()},
    } | evenness(list(rates.values()))


def core_us(rounds: list[Took], messages: int) -> float:
    return round(float(np.median([took.core_s for took in rounds])) / messages * 1e6, 2)


def spread(rates: Times) -> Report:
    """``drift``: the median of the last third over that of the first."""
    third = max(1, len(rates) // 3)
    drift = float(np.median(rates[-third:]) / np.median(rates[:third]))
    return {"median": round(float(np.median(rates))), "drift": round(drift, 3), "blocks": len(rates)} | evenness(rates)


def evenness(rates: Times) -> Report:
    median = float(np.median(rates))
    least, most = min(rates), max(rates)
    return {"flat": round(least / most, 3), "least": round(least / median, 3), "most": round(most / median, 3)}


# its parts, in processes of their own


async def begin(options: argparse.Namespace) -> Times:
    """A message to each queue: the broker makes its file then."""
    async with Producer("growth", namesrv=options.namesrv, send_msg_timeout_ms=60_000, **journal()) as producer:
        for topic in options.topics.split(","):
            queues = await producer.publish_queues(topic)
            await asyncio.gather(*(producer.send(Message(topic, b"first"), queue=queue) for queue in queues))
    return []


async def send(options: argparse.Namespace) -> Times:
    """Over all topics in turn, at the rate or as fast as may be. When each block was acknowledged.

    Connections and routes are made before.
    """
    topics, body = options.topics.split(","), b"x" * options.body_bytes
    clock, sent = [0.0], 0
    async with Producer("growth", namesrv=options.namesrv, send_msg_timeout_ms=60_000, **journal()) as producer:
        await asyncio.gather(*(producer.send(Message(topic, body)) for topic in topics))
        collect_rarely()
        began = clock[0] = time.monotonic()
        while sent < options.messages:
            room = min(256, options.messages - sent, options.block - sent % options.block)
            if options.rate:
                room = min(room, int((time.monotonic() - began) * options.rate) - sent)
            try:
                for _ in range(room):
                    last = producer.submit(Message(topics[sent % len(topics)], body))
                    sent += 1
            except BacklogFull:
                await producer.drain()
            if room > 0 and sent % options.block == 0:
                await producer.flush()
                last.result()
                clock.append(time.monotonic())
            await asyncio.sleep(TICK_S if options.rate and room < 256 else 0)
    return clock


async def take(options: argparse.Namespace) -> Times:
    """Consume from the beginning; when each block had come, from the first message on."""
    topics, clock, taken = options.topics.split(","), [], 0
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        nonlocal taken
        assert message.body
        if taken % options.block == 0 and taken < options.messages:
            clock.append(time.monotonic())
        taken += 1
        if taken == options.messages:
            clock.append(time.monotonic())
            done.set()

    consumer = PushConsumer("growth", namesrv=options.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, **journal())
    for topic in topics:
        consumer.subscribe(topic, handle)
    async with consumer:
        while not done.is_set():
            before = taken
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), SILENCE_S)
            if taken == before:
                sys.exit(f"{taken} of {options.messages} messages came, and none for {SILENCE_S} s: sends were lost")
    return clock


MEASURES = {"queues": sizes, "topics": sizes, "stored": stored, "sustained": sustained}
PARTS = {"begin": begin, "send": send, "take": take}

if __name__ == "__main__":
    sys.exit(main())
