"""What a slave costs: a flood of sends, and single sends, to a lone master and to masters with a slave, alternated.

Master, slave and producer are processes of their own. The flood is counted when the master has answered all of it, its
core time when the slave has it too. At last a slave that was away catches up while single sends go on.
"""

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from dejamq import BacklogFull, Message, Producer, SendStatus
from dejamq_lab import Cluster
from dejamq_lab.cluster.rpc_control import follows, runtime
from dejamq_lab.cluster.usage import core_seconds
from dejamq_lab.cluster.waiting import until_async
from store_common import Figure, report

TOPIC, QUEUES = "bench", 4
KINDS = {
    "lone master": (0, {}),
    "asynchronous slave": (1, {}),
    "synchronous slave": (1, {"broker_role": "SYNC_MASTER"}),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=100_000, help="of a flood")
    parser.add_argument("--sends", type=int, default=1000, help="one after the other")
    parser.add_argument("--behind-mib", type=int, default=256, help="that a slave catches up")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="where the stores go")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    report(asyncio.run(measured(options)), options.directory, options.output)


async def measured(options: argparse.Namespace) -> list[Figure]:
    """All clusters stand all the time, and are measured in turn, so that a busy moment is one of all of them."""
    found: dict[tuple[str, str], list[float]] = {}
    body = (bytes(range(256)) * (options.body_bytes // 256 + 1))[: options.body_bytes]
    async with contextlib.AsyncExitStack() as stack:
        producers = {kind: await stack.enter_async_context(producer(options, kind)) for kind in KINDS}
        for _ in range(options.rounds):
            for kind, (one, cluster) in producers.items():
                before = cores(cluster)
                rate = await flood(one, body, options.messages)
                found.setdefault((f"flood, {kind}", "messages/s"), []).append(rate)
                if "broker-a-s1" in before:
                    await level(cluster.broker("broker-a-s1").address)
                for name, core_s in cores(cluster).items():
                    cost = (core_s - before[name]) / options.messages * 1e6
                    found.setdefault((f"flood, {kind}: core time of {name}", "µs/message"), []).append(cost)
            for kind, (one, _cluster) in producers.items():
                found.setdefault((f"one send at a time, {kind}: p50", "ms"), []).append(
                    await single(one, body, options.sends)
                )
    found |= await catching_up(options, body)
    return [Figure.of(what, values, unit) for (what, unit), values in found.items()] + ratios(found)


def cores(cluster: Cluster) -> dict[str, float]:
    """Seconds in which each broker had a core so far: what a flood costs however busy the machine is."""
    found = {}
    for broker in cluster._brokers:
        found[broker.name] = core_seconds(broker.pid)  # type: ignore[union-attr]
    return found


async def catching_up(options: argparse.Namespace, body: bytes) -> dict[tuple[str, str], list[float]]:
    """Single sends to a master whose slave was killed, before it comes back and while it copies what it missed."""
    with tempfile.TemporaryDirectory(prefix="dejamq-bench-", dir=options.directory) as directory:
        async with cluster_of(1, {}, directory) as cluster, cluster.producer("bench") as one:
            slave = cluster.broker("broker-a-s1")
            await one.send(Message(TOPIC, b"first"))  # without it the slave would begin at the last file
            await level(slave.address)
            slave.kill()
            while (
                int((await runtime(cluster.broker("broker-a").address))["commitLogMaxOffset"])
                < options.behind_mib << 20
            ):
                await flood(one, body, 20_000)
            alone = await samples_of(one, body, options.sends)
            slave.restart()
            assert await until_async(lambda: follows(slave.address), 30)
            began, meanwhile = time.perf_counter(), list[float]()
            while not await is_level(slave.address):
                meanwhile += await samples_of(one, body, 20)
            took = time.perf_counter() - began
    what = "one send at a time, {}: {}"
    return {
        (f"a slave copies {options.behind_mib} MiB", "s"): [took],
        (what.format("its slave away", "p50"), "ms"): [statistics.median(alone)],
        (what.format("its slave away", "p99"), "ms"): [percentile(alone)],
        (what.format("its slave catching up", "p50"), "ms"): [statistics.median(meanwhile)],
        (what.format("its slave catching up", "p99"), "ms"): [percentile(meanwhile)],
    }  # fmt: skip


def percentile(samples: list[float]) -> float:
    """The 99th."""
    return sorted(samples)[int(len(samples) * 0.99)]


def cluster_of(slaves: int, settings: dict[str, str], directory: str) -> Cluster:
    """As processes, without journals."""
    return Cluster(
        slaves=slaves,
        processes=True,
        topics={TOPIC: QUEUES},
        settings=settings,
        journal_level="off",
        directory=directory,
    )


def ratios(found: dict[tuple[str, str], list[float]]) -> list[Figure]:
    """Of each round by itself."""
    figures = []
    for kind in list(KINDS)[1:]:
        for what, unit in (("flood, {}", "messages/s"), ("one send at a time, {}: p50", "ms")):
            of_kind, of_lone = found[what.format(kind), unit], found[what.format("lone master"), unit]
            shares = [one / lone for one, lone in zip(of_kind, of_lone, strict=True)]
            figures.append(Figure.of(f"{what.format(kind)}, of the lone master's", shares, "times"))
    return figures


@contextlib.asynccontextmanager
async def producer(options: argparse.Namespace, kind: str) -> AsyncIterator[tuple[Producer, Cluster]]:
    """A producer to a cluster of this kind."""
    slaves, settings = KINDS[kind]
    with tempfile.TemporaryDirectory(prefix="dejamq-bench-", dir=options.directory) as directory:
        async with cluster_of(slaves, settings, directory) as cluster, cluster.producer("bench") as one:
            assert (await one.send(Message(TOPIC, b"first"))).status is SendStatus.SEND_OK
            yield one, cluster


async def flood(one: Producer, body: bytes, messages: int) -> float:
    """Messages a second, all of them answered."""
    began, results = time.perf_counter(), []
    for number in range(messages):
        try:
            results.append(one.submit(Message(TOPIC, body)))
        except BacklogFull:
            await one.drain()
            results.append(one.submit(Message(TOPIC, body)))
        if number % 256 == 0:
            await asyncio.sleep(0)
    statuses = {result.status for result in await asyncio.gather(*results)}
    took = time.perf_counter() - began
    assert statuses == {SendStatus.SEND_OK}, statuses
    return messages / took


async def single(one: Producer, body: bytes, sends: int) -> float:
    """The median of single sends (ms)."""
    return statistics.median(await samples_of(one, body, sends))


async def samples_of(one: Producer, body: bytes, sends: int) -> list[float]:
    """How long each of these single sends took (ms)."""
    samples = []
    for _ in range(sends):
        began = time.perf_counter()
        await one.send(Message(TOPIC, body))
        samples.append((time.perf_counter() - began) * 1000)
    return samples


async def level(slave: str) -> None:
    """Wait until the slave has everything: it must not go on while another cluster is measured."""
    assert await until_async(lambda: is_level(slave), 60)


async def is_level(slave: str) -> bool:
    return (await runtime(slave)).get("lagBytes") == "0"


if __name__ == "__main__":
    main()
