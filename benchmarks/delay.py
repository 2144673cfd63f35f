"""``python benchmarks/delay.py``: how late delayed messages come, and what they cost the broker.

A producer sends evenly, so the messages become due evenly, a delay later; sending and delivering go on side by side. A
consumer takes what was delivered. Lateness is counted twice for each message: until the broker stored it where it
belongs, which the store tells afterwards, and until the consumer's handler was entered. All in one machine's clock.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from dejamq import ConsumeFrom, Message, ReceivedMessage, SendResult
from dejamq_broker.store.dump import DumpRange, dump
from dejamq_broker.store.files.config import StoreConfig
from dejamq_broker.store.files.paths import StorePaths
from dejamq_lab import Cluster
from dejamq_lab.cluster.process import ServerProcess
from dejamq_lab.cluster.usage import core_seconds

TOPIC, QUEUES = "later", 4
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TICK_S = 0.005
Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Run(msgspec.Struct):
    """What one run saw, by message number. Wall-clock ms; 0 where nothing came."""

    received_ms: Numbers
    early: int = 0
    twice: int = 0
    core_s: float = 0.0
    busy_s: float = 0.0


async def main() -> int:
    options = parsed()
    with tempfile.TemporaryDirectory(prefix="delay-") as directory:
        run = await measured(options, Path(directory))
        due_ms, stored_ms = times_in(Path(directory), options.messages, options.level)
    lost = int(np.count_nonzero(stored_ms == 0) + np.count_nonzero(run.received_ms == 0))
    early = int(np.count_nonzero(stored_ms < due_ms))
    report = {
        "what": "delay", "messages": options.messages, "seconds": options.seconds, "level": options.level,
        "body_bytes": options.body_bytes, "lost": lost, "early": early, "twice": run.twice,
        "stored_late": spread(stored_ms - due_ms), "received_late": spread(run.received_ms - due_ms),
        "broker_core_percent": round(100 * run.core_s / run.busy_s, 1), "load_average": os.getloadavg()[0],
    }  # fmt: skip
    print(msgspec.json.encode(report).decode() if options.output == "json" else table(report))
    return 1 if lost or early or run.twice else 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Lateness of delayed messages that become due evenly.")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60, help="over which they become due")
    parser.add_argument("--level", type=int, default=2, help="delay level, 1 to 18 (2: 5 s)")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


async def measured(options: argparse.Namespace, directory: Path) -> Run:
    """Send, wait for everything, stop the broker cleanly."""
    run = Run(np.zeros(options.messages, np.int64))
    cluster = Cluster(topics={TOPIC: QUEUES}, processes=True, directory=directory, journal_level="audit")
    async with cluster:
        broker = cluster.broker("broker-a")
        assert isinstance(broker, ServerProcess)
        consumer = cluster.push_consumer("late", consume_from=ConsumeFrom.FIRST_OFFSET)
        missing, everything = options.messages, asyncio.Event()

        async def receive(message: ReceivedMessage) -> None:
            nonlocal missing
            number = int(message.keys[0])
            run.twice += bool(run.received_ms[number])
            run.received_ms[number] = time.time_ns() // 1_000_000
            missing -= 1
            if not missing:
                everything.set()

        consumer.subscribe(TOPIC, receive)
        async with consumer:
            await consumer.wait_assigned(10_000)
            before, began = core_seconds(broker.pid), time.monotonic()
            await send(cluster, options)
            async with asyncio.timeout(120):
                await everything.wait()
            run.core_s, run.busy_s = core_seconds(broker.pid) - before, time.monotonic() - began
    return run


async def send(cluster: Cluster, options: argparse.Namespace) -> None:
    """Evenly: a late tick sends what it missed, so that the rate holds."""
    body, sent, began = b"x" * options.body_bytes, 0, time.monotonic()
    failed: list[BaseException] = []

    def ended(result: "asyncio.Future[SendResult]") -> None:
        if (error := result.exception()) is not None:
            failed.append(error)

    async with cluster.producer("bench") as producer:
        while sent < options.messages:
            await asyncio.sleep(TICK_S)
            now = min(options.messages, int((time.monotonic() - began) / options.seconds * options.messages))
            for number in range(sent, now):
                message = Message(TOPIC, body, keys=str(number), delay_level=options.level)
                producer.submit(message).add_done_callback(ended)
            sent = now
            if failed:
                raise SystemExit(f"a send failed, so nothing can be said of delays: {failed[0]}")
        await producer.flush()


def times_in(directory: Path, messages: int, level: int) -> tuple[Numbers, Numbers]:
    """When each message was due and when it was stored where it belongs, from the log; 0 where it is not."""
    (store,) = [path.parent for path in directory.rglob("commitlog")]
    delay_ms = StoreConfig().delay_levels_ms[level - 1]
    due_ms, stored_ms = np.zeros(messages, np.int64), np.zeros(messages, np.int64)
    for line in dump(StorePaths(store), "log", DumpRange()):
        if line.get("topic") in (SCHEDULE, TOPIC):
            number, at_ms = int(line["properties"]["KEYS"]), line["store_timestamp"]
            if line["topic"] == SCHEDULE:
                due_ms[number] = at_ms + delay_ms
            else:
                stored_ms[number] = at_ms
    return due_ms, stored_ms


def spread(late_ms: Numbers) -> dict[str, float]:
    """Median, 99th percentile and worst, ms."""
    return {
        "median_ms": float(np.median(late_ms)), "p99_ms": float(np.percentile(late_ms, 99)),
        "max_ms": float(late_ms.max()),
    }  # fmt: skip


def table(report: dict[str, Any]) -> str:
    lines = [f"{report['messages']} messages due over {report['seconds']:g} s at level {report['level']}"]
    for what in ("stored_late", "received_late"):
        late = report[what]
        lines.append(f"{what}: median {late['median_ms']:.0f} ms, p99 {late['p99_ms']:.0f}, max {late['max_ms']:.0f}")
    lines.append(f"broker: {report['broker_core_percent']} % of a core, load average {report['load_average']:.1f}")
    lines.append(f"lost {report['lost']}, early {report['early']}, twice {report['twice']}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
