"""``python benchmarks/audit_sizes.py``: how long ``dejamq audit`` takes as somebody types it, by size and engine.

Journals are those of ``audit.py``, a line for each delivery as at level ``forensic``. Each audit is a process of its
own that writes tables and report. The table has the medians of wall and processor time.
"""

import argparse
import ctypes
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from audit_journals import RUN, SHAPES, Writer

SIZES = (1_000, 10_000, 25_000, 50_000)
SET_CHILD_SUBREAPER = 36
"""Linux's number for it. Java outlives the audit by a moment and becomes this process's child, so its time counts."""
TOLD = (0, 1, 3)
"""Exit statuses: clean, findings, and duplicates whose cause went with a process's last lines."""
HEAD = "| deliveries | journals, MB | engine | wall, s | processor, s |\n|---|---|---|---|---|"


class Took(NamedTuple):
    """Seconds of one audit: on the clock, and of processors."""

    wall_s: float
    processor_s: float


def main() -> int:
    options = _parsed()
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)
    print(f"{os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}\n\n{HEAD}")
    for deliveries in options.deliveries:
        with tempfile.TemporaryDirectory(prefix="audit-sizes-", dir=options.directory) as name:
            journals = Path(name) / "journal"
            journals.mkdir()
            writer = Writer(journals, RUN if options.level == "audit" else 1)
            writer.write(deliveries, SHAPES[options.shape])
            size_mb = sum(file.stat().st_size for file in journals.iterdir()) / 1e6
            for engine in options.engine:
                took = [audited(journals, engine, Path(name) / engine) for _ in range(options.rounds)]
                wall_s, processor_s = (statistics.median(column) for column in zip(*took, strict=True))
                print(
                    f"| {writer.delivered:,} | {size_mb:.1f} | {engine} | {wall_s:.1f} | {processor_s:.1f} |",
                    flush=True,
                )
    return 0


def audited(journals: Path, engine: str, out: Path) -> Took:
    """One audit; it has something to tell, as consumers were killed."""
    command = [sys.executable, "-m", "dejamq_analytics", str(journals), "--engine", engine, "--out", str(out)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:  # a pipe would end with Java
        done = subprocess.run(command, stdout=said, stderr=said, check=False)
        wall_s = time.perf_counter() - began
        with suppress(ChildProcessError):  # none is left
            while True:
                os.wait()
        said.seek(0)
        words = said.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in TOLD:
        sys.exit(f"the audit ended with status {done.returncode}: {words}")
    return Took(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time of the whole command by size and engine.")
    parser.add_argument("--deliveries", type=int, nargs="+", default=SIZES)
    parser.add_argument("--engine", nargs="+", choices=("auto", "duckdb", "spark"), default=("duckdb", "spark"))
    parser.add_argument("--shape", choices=SHAPES, default="even")
    parser.add_argument("--level", choices=("forensic", "audit"), default="forensic")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="where the journals go for the time being")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
