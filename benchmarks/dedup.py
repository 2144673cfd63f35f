"""What it costs that a broker knows the ids of messages: floods of an idempotent and of a plain producer, alternated.

Both send to one broker with windows. A plain producer sends to a broker without windows too, which shows what the
feature costs whoever does not use it. Brokers are processes of their own. Rates are of the clock. Core time is that of
producer and broker; its ratios are of the quiet rounds, the third with least core time, since other work on the machine
makes the caches cold. Exit status 1: a ratio is above 1.05.
"""

import argparse
import asyncio
import contextlib
import gc
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from dejamq import Message, Producer, SendStatus
from dejamq_lab import Cluster
from dejamq_lab.bench.client.own import flood
from dejamq_lab.cluster.process import ServerProcess
from store_common import Figure, report

TOPIC, QUEUES = "bench", 4
KINDS = {"idempotent": (True, True), "plain": (False, True), "plain, no windows": (False, False)}
"""Whether the producer asks for it, and whether the broker keeps windows."""
RATIOS = {"on": ("idempotent", "plain"), "off": ("plain", "plain, no windows")}
UNASKED = 1_000_000
GOAL = 1.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=36)
    parser.add_argument("--messages", type=int, default=50_000, help="of a flood")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="where the stores go")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    figures = asyncio.run(measured(options))
    report(figures, options.directory, options.output)
    sys.exit(any(figure.median > GOAL for figure in figures if figure.what.startswith("cost")))


async def measured(options: argparse.Namespace) -> list[Figure]:
    """All brokers stand all the time; rounds go through all orders of the floods."""
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cores: dict[str, list[float]] = {kind: [] for kind in KINDS}
    body = (bytes(range(256)) * (options.body_bytes // 256 + 1))[: options.body_bytes]
    async with brokers(options.directory) as (on, off), contextlib.AsyncExitStack() as stack:
        producers = {}
        for kind, (idempotent, windows) in KINDS.items():
            cluster = on if windows else off
            sender = await stack.enter_async_context(cluster.producer("bench", idempotent=idempotent))
            assert (await sender.send(Message(TOPIC, b"first"))).status is SendStatus.SEND_OK
            producers[kind] = sender, cluster
        gc.freeze()
        gc.set_threshold(50_000)
        orders = itertools.cycle(itertools.permutations(KINDS))
        for number, order in zip(range(-1, options.rounds), orders, strict=False):  # one to get warm
            for kind in order:
                rate, core_us = await flooded(*producers[kind], body, options.messages)
                if number >= 0:
                    rates[kind].append(rate)
                    cores[kind].append(core_us)
    found = [Figure.of(f"{kind}: flood", values, "messages/s") for kind, values in rates.items()]
    found += [Figure.of(f"{kind}: core time", values, "µs/message") for kind, values in cores.items()]
    for what, (one, other) in RATIOS.items():
        found.append(Figure.of(f"time {what}, of each round", shares(rates[other], rates[one]), "times"))
        found.append(Figure.of(f"cost {what}, in core time", [quiet(cores[one]) / quiet(cores[other])], "times"))
    return found


def shares(ones: list[float], others: list[float]) -> list[float]:
    """Of each round by itself."""
    return [one / other for one, other in zip(ones, others, strict=True)]


def quiet(values: list[float]) -> float:
    """The mean of the lowest third."""
    return statistics.fmean(sorted(values)[: -(-len(values) // 3)])


def core_ns(pid: int) -> int:
    """Processor time of all threads, as the scheduler counts it: ``/proc/PID/stat`` has it in steps of 10 ms."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat"))


@contextlib.asynccontextmanager
async def brokers(folder: Path) -> AsyncIterator[tuple[Cluster, Cluster]]:
    """A cluster of one broker with windows, and one without."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for ids in (UNASKED, 0):
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="dejamq-bench-", dir=folder))
            made.append(await stack.enter_async_context(Cluster(
                processes=True, topics={TOPIC: QUEUES}, settings={"dedup_window_ids": ids}, journal_level="audit",
                directory=directory,
            )))  # fmt: skip
        yield made[0], made[1]


async def flooded(one: Producer, cluster: Cluster, body: bytes, messages: int) -> tuple[float, float]:
    """Messages a second, all of them answered; microseconds of a core a message."""
    broker = cluster.broker("broker-a")
    assert isinstance(broker, ServerProcess)
    cores = core_ns(os.getpid()) + core_ns(broker.pid)
    began = time.perf_counter()
    await flood(one, itertools.repeat(TOPIC), body, messages)
    took = time.perf_counter() - began
    return messages / took, (core_ns(os.getpid()) + core_ns(broker.pid) - cores) / messages / 1e3


if __name__ == "__main__":
    main()
