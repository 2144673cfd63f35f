"""RocketMQ's Java client 5.3.3 with dejamq and with RocketMQ 5.3.3, in alternation.

Each round starts ``dejamq dev`` and a RocketMQ (a name server and a broker) in turn, each in an empty folder, and runs
the same client processes against it. Measured are:

- start_s: from the start of the processes until the name server names a broker
- resident_mib: memory of all server processes at that moment; after the load: own_mib, without pages of mapped files
- sync_p50_ms: one send at a time
- async: sends a second with 512 under way
- batch: messages a second, sent in batches of 32
- consume: messages a second to a push consumer that takes 32 at a time

Bodies have 1 KiB. The JVM of a producer is warm before it is measured. Prints a line for each figure, and JSON.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from dejamq_lab.bench.client.process import run_client
from dejamq_lab.bench.client.result import Job, Load
from dejamq_lab.bench.peers.rocketmq import HEAP, SOURCE
from dejamq_lab.cluster.ports import held_block
from dejamq_lab.cluster.usage import memory_mib
from dejamq_lab.machines.jars import jar_cache
from dejamq_lab.machines.rocketmq import VERSION, RocketMQ, fetched_jars, server_java
from dejamq_proto.codes import DejamqError
from dejamq_proto.remoting import requests
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting_client import connect

STARTED_S = 60
LOOK_S = 0.02
SYNC, ASYNC, BATCH, CONSUME = "sync_p50_ms", "async", "batch", "consume"
LESS_IS_BETTER = ("start_s", "resident_mib", "own_mib", SYNC)
Figures = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=60_000, help="sent asynchronously; other jobs follow from it")
    options = parser.parse_args()
    jars = fetched_jars(jar_cache("rocketmq", VERSION))
    sides: dict[str, list[Figures]] = {"dejamq": [], "rocketmq": []}
    for number in range(options.rounds):
        for side in list(sides)[:: 1 if number % 2 == 0 else -1]:
            sides[side].append(asyncio.run(_measured(dejamq if side == "dejamq" else rocketmq, jars, options.messages)))
            told = " ".join(f"{key}={value:g}" for key, value in sides[side][-1].items())
            print(f"round {number + 1} {side}: {told}", file=sys.stderr, flush=True)
    for figure in sides["dejamq"][0]:
        print(_line(figure, *([taken[figure] for taken in sides[side]] for side in sides)))
    print(msgspec.json.encode({"sides": sides, "load_average": os.getloadavg()[0]}).decode())
    return 0


def _line(figure: str, ours: list[float], real: list[float]) -> str:
    ratios = sorted(mine / other for mine, other in zip(ours, real, strict=True))
    better = "less" if figure in LESS_IS_BETTER else "more"
    return (
        f"{figure:13} dejamq {statistics.median(ours):>10,.3f}  RocketMQ {statistics.median(real):>10,.3f}  "
        f"{statistics.median(ratios):.2f} of it ({ratios[0]:.2f} to {ratios[-1]:.2f}); {better} is better"
    )


class Servers(msgspec.Struct, frozen=True):
    """Those of one side. ``pids`` are all of its processes."""

    namesrv: str
    pids: list[int]


@contextlib.asynccontextmanager
async def dejamq(folder: Path, jars: Path) -> AsyncIterator[Servers]:
    """``dejamq dev``; the jars are the other side's."""
    with held_block(2, 1) as port:
        command = [sys.executable, "-m", "dejamq_lab.dev", "--listen", f"127.0.0.1:{port}", "--store", str(folder)]
        command += ["--set", "brokerFastFailureEnable=false"]
        server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
        try:
            yield Servers(f"127.0.0.1:{port}", [server.pid])
        finally:
            server.terminate()
            await server.wait()


@contextlib.asynccontextmanager
async def rocketmq(folder: Path, jars: Path) -> AsyncIterator[Servers]:
    """RocketMQ's name server and broker, each a JVM."""
    settings = {"brokerFastFailureEnable": "false"}
    with RocketMQ(jars, folder / "store", folder / "work", settings, HEAP) as servers:
        yield Servers(servers.namesrv, servers.pids)


Side = Callable[[Path, Path], contextlib.AbstractAsyncContextManager[Servers]]


async def _measured(side: Side, jars: Path, messages: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="java-clients-", ignore_cleanup_errors=True) as name:
        folder, began = Path(name), time.monotonic()
        async with side(folder, jars) as servers:
            await _has_a_broker(servers.namesrv)
            found = {"start_s": time.monotonic() - began}
            found["resident_mib"] = sum(memory_mib(pid, "VmRSS") for pid in servers.pids)
            client = [*server_java(folder, HEAP, f"{jars}/*"), str(SOURCE)]
            for figure, load, role in _jobs(messages):
                what = "consume" if role == "consume" else "fill" if figure == CONSUME else "send"
                span = await run_client(client, Job(what, role, servers.namesrv, [f"bench_{figure}"], load))
                assert figure != SYNC or span.p50_ms is not None
                found[figure] = (span.p50_ms or 0.0) if figure == SYNC else load.messages / span.seconds
            found["own_mib"] = sum(memory_mib(pid) for pid in servers.pids)
    return {figure: round(value, 3) for figure, value in found.items()}


def _jobs(messages: int) -> list[tuple[str, Load, str]]:
    """In order. What is consumed is sent before."""
    fill = Load(messages=messages * 2, mode="batch", batch_size=32)
    return [
        (SYNC, Load(messages=max(100, messages // 20), mode="single"), "produce"),
        (ASYNC, Load(messages=messages), "produce"),
        (BATCH, Load(messages=messages * 2, mode="batch", batch_size=32), "produce"),
        (CONSUME, fill, "produce"),
        (CONSUME, fill, "consume"),
    ]


async def _has_a_broker(namesrv: str) -> None:
    """Until the name server names one, as a client's first request needs."""
    asked = Command(code=requests.GET_CLUSTER_INFO.code)
    async with asyncio.timeout(STARTED_S):
        while True:
            with contextlib.suppress(DejamqError, OSError):
                connection = await connect(namesrv, lambda command: None)
                try:
                    answer = await connection.send(asked)
                    if b'"brokerName"' in answer.body:
                        return
                finally:
                    await connection.close()
            await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main())
