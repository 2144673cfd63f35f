"""``python benchmarks/timer.py``: what waiting timed messages cost a broker, and how those of one second are delivered.

A broker in this process takes ``--messages`` that are due within two days, and then ``--due`` of one second.
Then it starts on what a SIGKILL would leave, after a clean stop, and once more without the wheel and the timer log,
which are made anew of the timer topic: so does a slave that becomes the master. Memory
is the process's own, without the pages of files. The longest gap is the time that the event loop was away from others
while those of one second were delivered.
"""

import argparse
import asyncio
import dataclasses
import gc
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.store import StoreConfig
from dejamq_proto.names import TIMER_TOPIC
from dejamq_proto.records.record import Outgoing, encode_properties
from dejamq_proto.wire.messages import SendRun

RUN = 500
HOUR_MS = 3_600_000
MIB = 1 << 20
TWO_DAYS_MS = 46 * HOUR_MS
FIRST = 100
STORE = StoreConfig(disk_check_enable=False, message_index_enable=False)
LOOPBACK = (0x7F000001, 1)


async def main() -> int:
    options = parsed()
    with tempfile.TemporaryDirectory(prefix="timer-") as directory:
        config = BrokerConfig(listen="127.0.0.1:0", namesrv="", store_directory=f"{directory}/store", store=STORE)
        report = await measured(options, config)
    print(msgspec.json.encode(report).decode() if options.output == "json" else table(report))
    return 0 if report["delivered"] == options.due else 1


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=20_000)
    parser.add_argument("--body-bytes", type=int, default=100)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


async def measured(options: argparse.Namespace, config: BrokerConfig) -> dict[str, float]:
    broker = await started(config)
    await send(broker, FIRST, options.body_bytes, 1_000)
    before, began = own_memory(), time.perf_counter()
    await send(broker, options.messages, options.body_bytes, TWO_DAYS_MS, waiting=True)
    store = broker.domain.store
    while broker.domain.services.timer.messages_behind or store.max_offset("later", 0) < FIRST:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    took_s, grew = time.perf_counter() - began, own_memory() - before
    killed = dataclasses.replace(config, store_directory=left_by_a_kill(config.store_directory))
    await broker.close()
    broker, killed_s, killed_cpu_s, killed_grew = await restarted(killed, options.messages)
    await broker.close()
    broker, restart_s, restart_cpu_s, restart_grew = await restarted(config, options.messages)
    await broker.close()
    for name in ("timerwheel", "timerlog"):
        at = Path(config.store_directory) / name
        shutil.rmtree(at) if at.is_dir() else at.unlink()
    broker, anew_s, anew_cpu_s, anew_grew = await restarted(config, options.messages)
    report = {
        "messages": options.messages, "taken_per_s": options.messages / took_s, "memory_mib": grew / MIB,
        "killed_s": killed_s, "killed_cpu_s": killed_cpu_s, "killed_mib": killed_grew / MIB,
        "restart_s": restart_s, "restart_cpu_s": restart_cpu_s, "restart_mib": restart_grew / MIB,
        "anew_s": anew_s, "anew_cpu_s": anew_cpu_s, "anew_mib": anew_grew / MIB,
        "waiting": broker.domain.services.timer.waiting,
    } | await delivered(broker, options)  # fmt: skip
    await broker.close()
    return report


def left_by_a_kill(directory: str) -> str:
    """A copy of the files as they are now: whatever was written, and the progress as last flushed."""
    copy = f"{directory}-killed"
    subprocess.run(["cp", "-r", "--sparse=always", directory, copy], check=True)
    (Path(copy) / "lock").unlink(missing_ok=True)
    return copy


async def restarted(config: BrokerConfig, waiting: int) -> tuple[Broker, float, float, int]:
    """Another broker on the store: seconds until so many are in its wheel, those of the processor, and the bytes of
    memory that it took.
    """
    gc.collect()
    before, began, began_cpu = own_memory(), time.perf_counter(), time.process_time()
    broker = await started(config)
    while broker.domain.services.timer.waiting < waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    took_s, took_cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    return broker, took_s, took_cpu_s, own_memory() - before


async def started(config: BrokerConfig) -> Broker:
    broker = Broker(dataclasses.replace(config, broker_fast_failure_enable=False))
    await broker.start()
    return broker


async def send(broker: Broker, count: int, body_bytes: int, within_ms: int, *, waiting: bool = False) -> None:
    """Messages that are due evenly within this time; the loop has its turn between runs.

    ``waiting``: as they lie in the timer topic, which is faster; else as clients send them.
    """
    topic, body, now_ms = TIMER_TOPIC if waiting else "later", bytes(body_bytes), round(time.time() * 1000)
    template = Outgoing.to(topic)
    for first in range(0, count, RUN):
        records = []
        for number in range(first, min(first + RUN, count)):
            due_ms = now_ms + (HOUR_MS if waiting else 1000) + within_ms * number // count
            properties = {"UNIQ_KEY": f"{time.time_ns():024X}{number:08X}", "TIMER_DELIVER_MS": str(due_ms)}
            if waiting:
                properties |= {"TIMER_OUT_MS": str(due_ms // 1000 * 1000), "REAL_TOPIC": "later", "REAL_QID": "0"}
            records.append(template.encode(0, now_ms, body, encode_properties(properties)))
        run = SendRun(
            group="p", queues=[(topic, 0)], sizes=np.array(list(map(len, records)), "<u4"), rewrite=not waiting,
            records=(b"".join(records),),
        )  # fmt: skip
        outcome = broker.domain.paths.sender.accept(run, LOOPBACK)
        assert outcome.result.code == 0, outcome.result.remark
        await asyncio.sleep(0)


async def delivered(broker: Broker, options: argparse.Namespace) -> dict[str, float]:
    """How those of one second come."""
    store = broker.domain.store
    start = store.max_offset("later", 0)
    await send(broker, options.due, options.body_bytes, 0)
    before, longest_s, last = store.max_offset("later", 0), 0.0, time.perf_counter()
    while store.max_offset("later", 0) == before:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    began = last = time.perf_counter()
    while store.max_offset("later", 0) < start + options.due and time.perf_counter() < began + 120:
        await asyncio.sleep(0)
        longest_s, last = max(longest_s, time.perf_counter() - last), time.perf_counter()
    return {
        "delivered": store.max_offset("later", 0) - start,
        "delivered_per_s": options.due / (time.perf_counter() - began), "longest_gap_ms": longest_s * 1000,
    }  # fmt: skip


def own_memory() -> int:
    """Bytes of this process that are no file's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def table(report: dict[str, float]) -> str:
    return "\n".join(f"{name:<16} {value:,.1f}" for name, value in report.items())


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
