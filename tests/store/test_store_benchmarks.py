"""Each benchmark of the store runs, on next to nothing, and tells its figures. What they are is not looked at."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TINY = {
    "store_append.py": ["--messages", "128"],
    "store_read.py": ["--log-mib", "1", "--reads", "10"],
    "store_sync.py": ["--millis", "20"],
    "store_recovery.py": ["--log-mib", "1", "--file-mib", "1"],
    "store_reput.py": ["--messages", "500"],
}


@pytest.mark.parametrize("program", TINY)
def test_a_benchmark_tells_its_figures_and_leaves_nothing_behind(tmp_path: Path, program: str) -> None:
    command = [sys.executable, str(BENCHMARKS / program), *TINY[program], "--rounds", "2", "--directory", str(tmp_path)]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=50, check=False)
    assert done.stderr == ""
    figures = json.loads(done.stdout)
    assert len(figures) > 3
    assert all(0 < figure["low"] <= figure["median"] <= figure["high"] for figure in figures)
    assert {"this machine: memory copy", "this machine: fdatasync of a page"} <= {figure["what"] for figure in figures}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("caches", [[], ["--cold"]])
def test_what_a_broker_pays_for_a_message_is_told_for_each_size_of_runs(caches: list[str]) -> None:
    given = ["--messages", "64", "--runs", "1", "50", "--rounds", "1"]
    program = [sys.executable, str(BENCHMARKS / "broker_cost.py"), *given]
    done = subprocess.run([*program, *caches], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.removeprefix("runs of").split() for line in done.stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == ["1", "50"]
    assert all(float(figure) > 0 for row in rows for figure in row[2:])


def test_what_grpc_frames_and_asyncio_cost_alone_is_told() -> None:
    given = ["--messages", "3", "--echoes", "5", "--futures", "512", "--rounds", "2"]
    program = [sys.executable, str(BENCHMARKS / "floor.py"), *given]
    done = subprocess.run(program, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.rpartition("(")[0].split() for line in done.stdout.splitlines()]
    assert len(rows) == 16
    assert all(float(row[-1]) >= 0 for row in rows)


@pytest.mark.timeout(400)
def test_a_bare_path_is_measured_in_turn_with_dejamq() -> None:
    """It starts some 20 processes one after another, most of which take a second of processor to begin."""
    given = ["--messages", "2000", "--singles", "20", "--rate", "1000", "--seconds", "1"]
    program = [sys.executable, str(BENCHMARKS / "bare_path.py"), *given, "--rounds", "1", "--queues", "1"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=350, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line[38:].split() for line in done.stdout.splitlines()[1:]]
    assert len(rows) == 5
    assert all(float(row[0]) > 0 and float(row[2]) > 0 for row in rows)
