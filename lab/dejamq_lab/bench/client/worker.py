"""``python -m dejamq_lab.bench.client.worker SYSTEM JOB``: one client process of a measurement.

It says ``ready`` on standard output when it is connected, begins when a line comes on standard input, and says what it
measured. ``RocketMQClient.java`` speaks the same way.
"""

import asyncio
import gc
import importlib
import sys

import msgspec

from dejamq_lab.bench.client.result import Job, Span

OWN = "dejamq"
COLLECTED = 50_000
"""Python's collector looks at this many new objects together, instead of 700."""


def collect_rarely() -> None:
    """Follow the advice of docs/performance.md for bulk sends: a full collection would look at all imports, too."""
    gc.freeze()
    gc.set_threshold(COLLECTED)


async def main(system: str, job: Job) -> None:
    module = "dejamq_lab.bench.client.own" if system == OWN else f"dejamq_lab.bench.peers.{system}_clients"

    async def gate() -> None:
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

    clients = importlib.import_module(module)
    collect_rarely()
    if job.role == "drop":
        await gate()
        await clients.drop(job)
        span = Span(0, 0, 0.0)
    else:
        span = await clients.run(job, gate)
    print(msgspec.json.encode(span).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Job)))
