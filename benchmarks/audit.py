"""``python benchmarks/audit.py``: how long ``dejamq audit`` takes beside a bare scan and ``groupBy`` of its journals.

The command is a process of its own, as somebody types it, from its start to its report; Spark makes the scan.
The journals are as a broker and two consumers of each group leave them at level ``audit``: lines of 64 deliveries,
results and appends. The first consumer of each group is killed with a run in flight in every queue, and the second one
begins where the offsets were committed, so that there is something to explain.
``--shape skewed`` puts 90 of 100 deliveries into one queue, ``huge`` all of them into one group, ``shared`` gives each
topic two groups. With ``again`` a tenth of messages comes twice, for five causes. ``broadcast`` has a group of five.
``--run 1`` writes a line for each delivery and each result, as at level ``forensic``.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from audit_journals import RUN, SHAPES, Writer
from dejamq_analytics.spark.session import make_session
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from reporting import shown

ENDED_WELL = (0, 1, 3)
"""Clean, findings, undetermined."""
DELIVERS = "event string, `group` string, delivery_ids array<bigint>, unique_keys array<string>"


def main() -> int:
    options = _parsed()
    if options.bare:
        print(msgspec.json.encode(_bare_part(options)).decode())
        return 0
    with tempfile.TemporaryDirectory(prefix="audit-", dir=options.directory) as name:
        journals, out = Path(name, "journals"), Path(name, "out")
        journals.mkdir()
        writer = Writer(journals, options.run)
        writer.write(options.deliveries, SHAPES[options.shape])
        size = sum(file.stat().st_size for file in journals.iterdir())
        before = _bare_of(journals, options)
        verdict, seconds = _audited(journals, out, options)
        after = _bare_of(journals, options)
    assert [verdict["duplicates"], verdict["expected_duplicates"]] == [writer.again, writer.asked_for], verdict
    assert (verdict["unseen"], verdict["lost"], verdict["out_of_order"]) == (0, 0, 0), verdict
    cold, warm = (statistics.median(two) for two in zip(before, after, strict=True))
    report = {
        "what": "audit", "engine": options.engine, "shape": options.shape, "deliveries": writer.delivered,
        "journal_mb": round(size / 1e6, 1), "seconds": round(seconds, 1), "bare_s": round(cold, 1),
        "ratio": round(seconds / cold, 2), "bare_again_s": round(warm, 1), "ratio_again": round(seconds / warm, 2),
        "deliveries_per_second": round(writer.delivered / seconds),
        "causes": verdict["causes"] | verdict["expected_causes"],
        "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    print(shown(report, options.output))
    return 0


def _audited(journals: Path, out: Path, options: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """The command's verdict, and its seconds by the clock. It has an empty cache, as the first time."""
    command = [sys.executable, "-m", "dejamq_cli", "audit", str(journals), "--out", str(out)]
    command += ["--engine", options.engine]
    command += ["--master", options.master] if options.master else []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="audit-cache-") as cache:
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
            env=os.environ | {"XDG_CACHE_HOME": cache},
        )  # fmt: skip
        seconds = time.perf_counter() - began
    if done.returncode not in ENDED_WELL:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    return msgspec.json.decode((out / "verdict.json").read_bytes()), seconds


def _bare_of(journals: Path, options: argparse.Namespace) -> list[float]:
    """Seconds of the first scan and of the second, in a process with a Java of its own."""
    asked = [sys.executable, __file__, "--bare", str(journals)]
    asked += ["--master", options.master] if options.master else []
    done = subprocess.run(asked, stdout=subprocess.PIPE, check=True)
    told: list[float] = msgspec.json.decode(done.stdout.splitlines()[-1])
    return told


def _bare_part(options: argparse.Namespace) -> list[float]:
    """The first of its process, as the audit is, and once more with a Java that is warm and knows the question."""
    with make_session(options.master) as spark:
        return [_timed(_bare, spark, options.bare) for _ in range(2)]


def _timed(work: Any, spark: SparkSession, directory: str) -> float:
    began = time.perf_counter()
    work(spark, directory)
    return time.perf_counter() - began


def _bare(spark: SparkSession, directory: str) -> None:
    """What anybody would have to do at least: read the deliveries and count those of each message in each group."""
    lines = spark.read.schema(DELIVERS).json(directory).where("event = 'DELIVER'")
    each = lines.select("group", sf.explode("unique_keys").alias("key"))
    assert each.groupBy("group", "key").count().where("count > 1").count()


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time of an audit beside a bare scan and groupBy of the same files.")
    parser.add_argument("--deliveries", type=int, default=1_000_000)
    parser.add_argument("--shape", choices=SHAPES, default="even")
    parser.add_argument("--run", type=int, default=RUN, help="deliveries of one journal line")
    parser.add_argument("--directory", help="where the journals go for the time being")
    parser.add_argument("--engine", choices=("auto", "spark", "duckdb"), default="auto", help="as of `dejamq audit`")
    parser.add_argument("--bare", metavar="JOURNALS", help=argparse.SUPPRESS)
    parser.add_argument("--master", help="the Spark master, default local[*]")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
