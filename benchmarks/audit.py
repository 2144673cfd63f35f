"""``python benchmarks/audit.py``: how long an audit takes beside a bare scan and ``groupBy`` of the same journals.

The journals are written here by the real writer at level ``audit``, as a broker and two consumers of each group leave
them: lines of 64 deliveries, results and appends. The first consumer of each group is killed with a run in flight in
every queue, and the second one begins where the offsets were committed, so that there is something to explain.
``--shape skewed`` puts 90 of 100 deliveries into one queue, ``huge`` all of them into one group, ``shared`` gives each
topic two groups. ``--run 1`` writes a line for each delivery and each result, as at level ``forensic``.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from dejamq_analytics import audit
from dejamq_analytics.run import Request, session_for
from dejamq_analytics.session import make_session
from dejamq_proto.events import Append, Boot, Deliver, Event, OffGet, OffSet, Persist, PqOpen, Result, State
from dejamq_proto.journal import Journal, Level, journal_name
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

BROKER, QUEUES = "broker-a", 8
RUN = 64
START_S = 1_790_000_000.0
DELIVERS = "event string, `group` string, delivery_ids array<bigint>, unique_keys array<string>"


class Shape(NamedTuple):
    """How deliveries are spread: over so many groups and topics, and this share of them in one queue."""

    groups: int
    topics: int
    in_first_queue: float


SHAPES = {
    "even": Shape(8, 8, 1 / QUEUES), "skewed": Shape(8, 8, 0.9), "huge": Shape(1, 1, 1 / QUEUES),
    "shared": Shape(8, 4, 1 / QUEUES),
}  # fmt: skip


class Clock:
    """Ten microseconds a line, whoever writes."""

    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        self.now_s += 1e-5
        return self.now_s


class Writer:
    """The journals of one run in a directory; ``delivered`` counts what consumers journalled."""

    def __init__(self, directory: Path, run: int = RUN) -> None:
        self._directory, self._clock, self._size = directory, Clock(), run
        self.delivered = 0
        self.broker = self._journal("broker", BROKER)
        self.broker.write(Boot(broker_name=BROKER, broker_id=0, address="127.0.0.1:10911", clean=True))

    def write(self, deliveries: int, shape: Shape) -> None:
        for number in range(shape.groups):
            self._group(number, deliveries // shape.groups, shape)
        self._end(self.broker)

    def _group(self, number: int, deliveries: int, shape: Shape) -> None:
        """Each has a topic of its own, or shares it with another one."""
        group, topic = f"group-{number}", f"orders-{number % shape.topics}"
        first, second = (self._journal("consumer", f"{group}-c{nth}") for nth in (1, 2))
        rest = deliveries * (1 - shape.in_first_queue) / (QUEUES - 1)
        for queue_id in range(QUEUES):
            count = int(deliveries * shape.in_first_queue if queue_id == 0 else rest)
            place = {"group": group, "topic": topic, "broker_name": BROKER, "queue_id": queue_id}
            runs = max(2, count // self._size)
            if number < shape.topics:
                self._store(place, range(runs))
            self._consume(first, place, range(runs), killed=True)
            self._consume(second, place, range(runs - 1, runs), killed=False)
        first.close()
        self._end(second)

    def _consume(self, journal: Journal, place: dict[str, Any], runs: range, *, killed: bool) -> None:
        """All results but that of the last run before the kill; what was done is committed."""
        pq_id = place["queue_id"] + 1
        client: dict[str, Any] = {"client_id": journal.boot_id, "client_boot_id": journal.boot_id}
        start = runs.start * self._size
        self.broker.write(OffGet(**place, value=start, why="table", **client))
        opened = PqOpen(pq_id=pq_id, **place, client_id=journal.boot_id, start_offset=start, source="broker")
        journal.write(opened)
        for run in runs:
            for event in self._run(journal, place, pq_id, run, in_flight=killed and run == runs[-1]):
                journal.write(event)
        reached = (runs.stop - 1 if killed else runs.stop) * self._size
        journal.write(Persist(pq_id=pq_id, **place, value=reached, reason="timer"))
        self.broker.write(OffSet(**place, old=start, new=reached, by="oneway", **client))

    def _store(self, place: dict[str, Any], runs: range) -> None:
        for run in runs:
            self.broker.write(Append(
                origin="client", broker_name=BROKER, topics=[place["topic"]], queue_ids=[place["queue_id"]],
                queue_index=[0] * self._size, **self._columns(place, run),
            ))  # fmt: skip

    def _columns(self, place: dict[str, Any], run: int) -> dict[str, Any]:
        offsets = list(range(run * self._size, (run + 1) * self._size))
        queue = f"{place['topic']}{place['queue_id'] + 1:04X}"
        return {
            "queue_offsets": offsets, "log_offsets": [offset * 1024 for offset in offsets],
            "unique_keys": [f"{queue}{offset:016X}" for offset in offsets],
        }  # fmt: skip

    def _run(
        self, journal: Journal, place: dict[str, Any], pq_id: int, run: int, *, in_flight: bool
    ) -> Iterator[Event]:
        told = self._columns(place, run)
        ids = [pq_id << 40 | offset for offset in told["queue_offsets"]]
        self.delivered += self._size
        yield Deliver(pq_id=pq_id, **place, client_id=journal.boot_id, delivery_ids=ids, **told)
        if not in_flight:
            offsets = told["queue_offsets"]
            yield Result(pq_id=pq_id, **place, delivery_ids=ids, queue_offsets=offsets, status="success",
                         mem_off=offsets[-1] + 1)  # fmt: skip

    def _journal(self, role: str, name: str) -> Journal:
        boot_id = name.replace("-", "")
        path = self._directory / journal_name(role, name, boot_id)
        journal = Journal(path, role=role, process=name, boot_id=boot_id, level=Level.AUDIT, max_bytes=1 << 40,
                          wall=self._clock, mono=self._clock)  # fmt: skip
        journal.write(State(state="started", reason="level=audit"))
        return journal

    def _end(self, journal: Journal) -> None:
        journal.write(State(state="closed"))
        journal.close()


def main() -> int:
    options = _parsed()
    if options.part:
        print(msgspec.json.encode(PARTS[options.part](options)).decode())
        return 0
    with tempfile.TemporaryDirectory(prefix="audit-", dir=options.directory) as name:
        writer = Writer(Path(name), options.run)
        writer.write(options.deliveries, SHAPES[options.shape])
        size = sum(file.stat().st_size for file in Path(name).iterdir())
        before, audited, after = (_part(part, name, options) for part in ("bare", "audit", "bare"))
    first, again = (statistics.median(two) for two in zip(before["seconds"], after["seconds"], strict=True))
    [seconds] = audited["seconds"]
    report = {
        "what": "audit", "shape": options.shape, "deliveries": writer.delivered, "journal_mb": round(size / 1e6, 1),
        "seconds": round(seconds, 1), "bare_s": round(first, 1), "ratio": round(seconds / first, 2),
        "bare_again_s": round(again, 1), "ratio_again": round(seconds / again, 2),
        "deliveries_per_second": round(writer.delivered / seconds), "start_s": round(audited["start_s"], 1),
        "jvm_peak_mb": audited["jvm_peak_mb"], "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    if options.output == "json":
        print(msgspec.json.encode(report).decode())
    else:
        print("\n".join(f"{name:22} {value}" for name, value in report.items()))
    return 0


def _part(part: str, journals: str, options: argparse.Namespace) -> dict[str, Any]:
    """What it measured, in a process of its own: each has a session as it is made for it, and its own Java, which has
    no classes that earlier ones kept (``class_archive``).
    """
    asked = [sys.executable, __file__, "--part", part, "--journals", journals, "--run", str(options.run)]
    with tempfile.TemporaryDirectory(prefix="audit-cache-") as cache:
        asked += ["--master", options.master] if options.master else []
        done = subprocess.run(asked, stdout=subprocess.PIPE, check=True, env=os.environ | {"XDG_CACHE_HOME": cache})
    told: dict[str, Any] = msgspec.json.decode(done.stdout.splitlines()[-1])
    return told


def _bare_part(options: argparse.Namespace) -> dict[str, Any]:
    """The first of its process, as the audit is, and once more with a Java that is warm and knows the question."""
    with make_session(options.master) as spark:
        return {"seconds": [_timed(_bare, spark, options.journals) for _ in range(2)]}


def _audit_part(options: argparse.Namespace) -> dict[str, Any]:
    """Once, as ``dejamq audit`` does it."""
    began = time.perf_counter()
    with session_for(Request([options.journals], master=options.master)) as spark:
        started = time.perf_counter() - began
        seconds = _timed(partial(_audit, run=options.run), spark, options.journals)
        return {"seconds": [seconds], "start_s": started, "jvm_peak_mb": _peak_mb(spark)}


PARTS = {"bare": _bare_part, "audit": _audit_part}


def _timed(work: Any, spark: SparkSession, directory: str) -> float:
    began = time.perf_counter()
    work(spark, directory)
    return time.perf_counter() - began


def _bare(spark: SparkSession, directory: str) -> None:
    """What anybody would have to do at least: read the deliveries and count those of each message in each group."""
    lines = spark.read.schema(DELIVERS).json(directory).where("event = 'DELIVER'")
    each = lines.select("group", sf.explode("unique_keys").alias("key"))
    assert each.groupBy("group", "key").count().where("count > 1").count()


def _audit(spark: SparkSession, directory: str, run: int = RUN) -> None:
    """Nothing but the runs that were in flight when a consumer was killed, and each of them by its cause."""
    verdict = audit(spark, [directory]).verdict
    assert verdict.duplicates % (QUEUES * run) == 0 < verdict.duplicates, verdict
    assert (verdict.unseen, verdict.lost, verdict.out_of_order) == (0, 0, 0), verdict


def _peak_mb(spark: SparkSession) -> int:
    """The most memory that the JVM had, of itself and not of its Python workers."""
    assert spark._jvm is not None
    status = Path(f"/proc/{spark._jvm.ProcessHandle.current().pid()}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) >> 10  # type: ignore[index]


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time of an audit beside a bare scan and groupBy of the same files.")
    parser.add_argument("--deliveries", type=int, default=1_000_000)
    parser.add_argument("--shape", choices=SHAPES, default="even")
    parser.add_argument("--run", type=int, default=RUN, help="deliveries of one journal line")
    parser.add_argument("--directory", help="where the journals go for the time being")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--journals", help=argparse.SUPPRESS)
    parser.add_argument("--master", help="the Spark master, default local[*]")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
