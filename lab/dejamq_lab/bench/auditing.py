"""How long ``dejamq audit`` takes: the whole command, Spark's start included, over the journals of real traffic."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from dejamq_proto.journal import lines
from dejamq_proto.journal.events import Deliver
from dejamq_proto.loose_json import BAD_JSON

from dejamq_lab.bench.client.result import BenchResult, Load
from dejamq_lab.bench.client.target import own_cluster
from dejamq_lab.bench.measure import Bench
from dejamq_lab.errors import ClusterFailed

COMMAND = (sys.executable, "-m", "dejamq_analytics")


async def measure_audit(load: Load) -> BenchResult:
    """Send and consume the messages on a cluster of one broker, then audit its journals.

    The baseline is a plain reading of the same journals, without any rule. Raises ClusterFailed when the audit does
    not see every message: then the time says nothing.
    """
    bench = Bench(load)
    with tempfile.TemporaryDirectory(prefix="dejamq-bench-") as directory:
        async with own_cluster(load, bench.topics, directory) as target:
            await bench.consume_on(target)
        journals = Path(directory) / "journal"
        ground = await asyncio.to_thread(_read_plainly, journals)
        began = time.perf_counter()
        seen = await _audit(journals)
        seconds = time.perf_counter() - began
    if seen != load.messages:
        raise ClusterFailed(f"the audit saw {seen} of {load.messages} messages")
    return BenchResult(
        what="audit", messages=load.messages, body_bytes=load.body_bytes, seconds=round(seconds, 4),
        messages_per_second=round(load.messages / seconds, 1), baseline=ground,
        settings={"journal_level": load.journal_level, "queues": load.queues, "master": "local[*]"},
    )  # fmt: skip


async def _audit(journals: Path) -> int:
    """How many messages it saw."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, str(journals), "-o", "json", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    told, errors = await process.communicate()
    try:
        return int(msgspec.json.decode(told)["messages"])
    except (KeyError, *BAD_JSON):
        lines = errors.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        raise ClusterFailed(f"the audit gave no verdict: {lines[-1]}") from None


def _read_plainly(journals: Path) -> dict[str, float]:
    began, deliveries, size = time.perf_counter(), 0, 0
    for path in journals.glob("*.jsonl"):
        size += path.stat().st_size
        deliveries += sum(len(event.delivery_ids) for event in lines.events([path], Deliver))
    seconds = time.perf_counter() - began
    return {
        "journal_mb": round(size / 1e6, 3),
        "plain_reading_deliveries_per_second": round(deliveries / seconds, 1),
    }
