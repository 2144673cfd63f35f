"""``python tests/analytics/prove_cluster.py``: a Spark cluster with two workers tells what one process tells.

Journals of several stories with a store beside them, journals so large that they are read twice, and commit logs
alone: each is audited twice by the same command, with ``--master`` and without. The findings must be the same rows, and
so must the verdicts. ``logs``, ``journals`` or ``large`` as arguments leave the others out.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet
import stories_brokers  # noqa: F401  # its stories register themselves
from dejamq_analytics.pipeline import is_large
from journals import History
from plain_runs import write_runs
from spark_cluster import SETTINGS, standalone
from stories import write_all

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "clean" / "store"
LARGE_RUNS = 6000
NAMES = ("o1", "o7", "p1-undelivered", "l1", "two-owners")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cluster-") as name:
        directory = Path(name)
        journal = directory / "journal"
        journal.mkdir()
        write_all(journal, NAMES)
        large = directory / "large"
        write_large(large)
        every = {
            "logs": ["--store", str(GOLDEN)], "journals": [str(journal), "--store", str(GOLDEN)], "large": [str(large)],
        }  # fmt: skip
        inputs = {what: given for what, given in every.items() if what in (sys.argv[1:] or every)}
        alone = {what: told(directory / f"{what}-alone", given) for what, given in inputs.items()}
        with standalone(directory / "spark") as url:
            conf = [part for key, value in SETTINGS.items() for part in ("--conf", f"{key}={value}")]
            by_cluster = {
                what: told(directory / f"{what}-cluster", [*given, "--master", url, *conf])
                for what, given in inputs.items()
            }
    same = [what for what in inputs if alone[what] == by_cluster[what]]
    for what in inputs:
        print(f"{what}: {len(alone[what][1])} findings, {'the same' if what in same else 'OTHERS'} by the cluster")
    return 0 if len(same) == len(inputs) and all(rows for _, rows in alone.values()) else 1


def write_large(directory: Path) -> None:
    """Among runs that came once, one that came twice, one that never came, and stories."""
    directory.mkdir()
    write_all(directory, NAMES)
    write_runs(History(directory, "plain"), unseen=7, again=3000, runs=LARGE_RUNS)
    assert is_large([str(directory)])


def told(out: Path, arguments: list[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Verdict and findings, in the order of their ids."""
    began = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "DEJAMQ_JOURNAL_DIR"}
    command = [sys.executable, "-m", "dejamq_analytics", *arguments, "--out", str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"audit exited with {done.returncode}:\n{done.stderr[-3000:]}")
    print(f"{out.name}: {time.monotonic() - began:.0f} s", flush=True)
    rows = pyarrow.parquet.read_table(out / "findings").to_pylist()
    return json.loads((out / "verdict.json").read_bytes()), sorted(rows, key=lambda row: row["finding_id"])


if __name__ == "__main__":
    sys.exit(main())
