"""``python benchmarks/audit_evidence.py``: an audit of RocketMQ's logs and traces beside a bare Spark scan of the same.

The input is made of the recorded run o1. Each machine's log grows to its share of ``--log-mb`` by lines of its own that
tell the audit nothing, as most lines of a log do. The trace records of the run are exported and repeated, with other
keys, up to ``--traces``. Both are of any size: 10 GB take ``--log-mb 9000 --traces 10000000``.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from dejamq_analytics.sources.commit_log import scan
from dejamq_analytics.spark.session import make_session
from pyspark.sql import functions as sf
from reporting import shown

RUN = Path(__file__).parents[1] / "tests" / "data" / "rocketmq" / "o1"
ENDED_WELL = (0, 1, 3)
"""Clean, findings, undetermined."""
BLOCK = 10_000


def main() -> int:
    options = _parsed()
    with tempfile.TemporaryDirectory(prefix="evidence-", dir=options.directory) as name:
        folder, out = Path(name, "incident"), Path(name, "out")
        size = _made(folder, options.log_mb * 1_000_000, options.traces)
        bare_s = _bare(folder)
        audited_s, cores_s, peak_mb, verdict = _audited(folder, out)
    report = {
        "what": "audit_evidence", "input_mb": round(size / 1e6), "traces": options.traces,
        "seconds": round(audited_s, 1), "core_seconds": round(cores_s, 1), "peak_mb": peak_mb,
        "bare_s": round(bare_s, 1), "ratio": round(audited_s / bare_s, 2), "verdict": verdict,
        "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    print(shown(report, options.output))
    return 0


def _made(folder: Path, log_bytes: int, traces: int) -> int:
    """Its size in bytes."""
    logs = sorted(RUN.rglob("*.log"))
    for log in logs:
        into = folder / log.relative_to(RUN)
        into.parent.mkdir(parents=True, exist_ok=True)
        _grown(log, into, log_bytes // len(logs))
    _traced(folder / "trace" / "exported.txt", traces)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _grown(log: Path, into: Path, size: int) -> None:
    """The log, with a line of no use repeated after its first line until it is so long."""
    first, rest = log.read_bytes().split(b"\n", 1)
    idle = first[:23] + b" INFO AThread_1 - nothing that an audit needs, in so many words as a line usually has\n"
    with into.open("wb") as file:
        file.write(first + b"\n")
        for _ in range(max(0, size - len(rest)) // (len(idle) * BLOCK)):
            file.write(idle * BLOCK)
        file.write(rest)


def _traced(into: Path, traces: int) -> None:
    """Bodies of trace messages, each repeated with message ids of its own."""
    (store,) = RUN.rglob("commitlog/*")
    bodies = [record.body.decode() for record, _ in scan(store) if record.topic == "RMQ_SYS_TRACE_TOPIC"]
    keys = sorted({word for body in bodies for word in body.split("\x01") if len(word) == 32 and word.isalnum()})
    of_round = sum(body.count("\x02") for body in bodies)
    into.parent.mkdir(parents=True, exist_ok=True)
    with into.open("w") as file:
        for number in range(max(1, traces // of_round)):
            text = "\n".join(bodies)
            for key in keys if number else []:
                text = text.replace(key, f"{key[:24]}{(int(key[24:], 16) + number * 4096) % (1 << 32):08X}")
            file.write(f"{text}\n")


def _bare(folder: Path) -> float:
    """What Spark takes to read every line and count those with a message id."""
    with make_session(None) as spark:
        began = time.perf_counter()
        lines = spark.read.option("recursiveFileLookup", "true").text(str(folder))
        found = lines.select(sf.regexp_extract("value", "([0-9A-F]{32})", 1).alias("key")).groupBy("key").count()
        assert found.count()
        return time.perf_counter() - began


def _audited(folder: Path, out: Path) -> tuple[float, float, int, str]:
    """Seconds by the clock, of cores, the most memory in MB, and the verdict."""
    command = [sys.executable, "-m", "dejamq_cli", "audit", "--evidence", str(folder), "--out", str(out)]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in ENDED_WELL:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    cores = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    verdict = msgspec.json.decode((out / "verdict.json").read_bytes())
    return seconds, cores, after.ru_maxrss // 1024, f"{verdict['verdict']}, {verdict['deliveries']} deliveries"


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time of an audit of logs and traces beside a bare scan of them.")
    parser.add_argument("--log-mb", type=int, default=200, help="size of all logs together (200)")
    parser.add_argument("--traces", type=int, default=200_000, help="trace records (200000)")
    parser.add_argument("--directory", help="where the input goes for the time being")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
