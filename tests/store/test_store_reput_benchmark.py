"""The benchmark of reput runs, and measures what it says."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "store_reput.py"


def test_the_reput_benchmark_measures_each_way_of_reading_the_log_back() -> None:
    command = [sys.executable, str(SCRIPT), "--messages", "500", "--rounds", "1", "-o", "json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (result["messages"], result["rounds"]) == (500, 1)
    assert [row["what"] for row in result["rows"]] == ["bare copy", "queues", "queues and index"]
    assert all(row["messages_per_cpu_second"] > 0 for row in result["rows"])
