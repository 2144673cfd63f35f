"""``python benchmarks/audit.py``: how long an audit takes beside a bare scan and ``groupBy`` of the same journals.

The journals are as a broker and two consumers of each group leave them at level ``audit``: lines of 64 deliveries,
results and appends. The first consumer of each group is killed with a run in flight in every queue, and the second one
begins where the offsets were committed, so that there is something to explain.
``--shape skewed`` puts 90 of 100 deliveries into one queue, ``huge`` all of them into one group, ``shared`` gives each
topic two groups. With ``again`` a tenth of messages comes twice, for five causes. ``broadcast`` has a group of five.
``--run 1`` writes a line for each delivery and each result, as at level ``forensic``.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from audit_journals import RUN, SHAPES, Writer
from dejamq_analytics import audit
from dejamq_analytics.run import Request, spark_for
from dejamq_analytics.spark.session import make_session
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

DELIVERS = "event string, `group` string, delivery_ids array<bigint>, unique_keys array<string>"


def main() -> int:
    options = _parsed()
    if options.part:
        print(msgspec.json.encode(PARTS[options.part](options)).decode())
        return 0
    with tempfile.TemporaryDirectory(prefix="audit-", dir=options.directory) as name:
        writer = Writer(Path(name), options.run)
        writer.write(options.deliveries, SHAPES[options.shape])
        size = sum(file.stat().st_size for file in Path(name).iterdir())
        options.truth = [writer.again, writer.asked_for]
        before, audited, after = (_part(part, name, options) for part in ("bare", "audit", "bare"))
    first, again = (statistics.median(two) for two in zip(before["seconds"], after["seconds"], strict=True))
    [seconds] = audited["seconds"]
    report = {
        "what": "audit", "shape": options.shape, "deliveries": writer.delivered, "journal_mb": round(size / 1e6, 1),
        "seconds": round(seconds, 1), "bare_s": round(first, 1), "ratio": round(seconds / first, 2),
        "bare_again_s": round(again, 1), "ratio_again": round(seconds / again, 2),
        "deliveries_per_second": round(writer.delivered / seconds), "start_s": round(audited["start_s"], 1),
        "jvm_peak_mb": audited["jvm_peak_mb"], "processor_s": round(audited["processor_s"], 1),
        "causes": audited["causes"], "load_average": round(os.getloadavg()[0], 1),
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
    asked = [sys.executable, __file__, "--part", part, "--journals", journals, "--truth", *map(str, options.truth)]
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
    """Once, as ``dejamq audit`` does it. It must find what the journals were written for, and nothing else."""
    began = time.perf_counter()
    with spark_for(Request([options.journals], master=options.master)) as spark:
        started = time.perf_counter() - began
        verdict = audit(spark, [options.journals]).verdict
        seconds = time.perf_counter() - began - started
        assert [verdict.duplicates, verdict.expected_duplicates] == options.truth, verdict
        assert (verdict.unseen, verdict.lost, verdict.out_of_order) == (0, 0, 0), verdict
        told = {"start_s": started, "jvm_peak_mb": _peak_mb(spark), "processor_s": _processor_s(spark)}
        return told | {"seconds": [seconds], "causes": verdict.causes | verdict.expected_causes}


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


def _processor_s(spark: SparkSession) -> float:
    """Of Java with its Python workers that have ended, and of this process."""
    assert spark._jvm is not None
    fields = Path(f"/proc/{spark._jvm.ProcessHandle.current().pid()}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + time.process_time()


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
    parser.add_argument("--truth", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--master", help="the Spark master, default local[*]")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
