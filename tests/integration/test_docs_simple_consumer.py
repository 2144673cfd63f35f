"""The example of docs/simple-consumer.md, run as written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_lab import Cluster

PAGE = (Path(__file__).parents[2] / "docs/simple-consumer.md").read_text()


@pytest.mark.process
@pytest.mark.timeout(120)
def test_the_example_packs_each_parcel_once_and_one_of_them_at_the_second_try(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(block)
    with Cluster(directory=tmp_path / "cluster") as cluster:
        done = subprocess.run(
            [sys.executable, str(script)], env=os.environ | {"DEJAMQ_NAMESRV": cluster.namesrv},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "packed parcel 0, failed before: 0", "packed parcel 1, failed before: 1", "packed parcel 2, failed before: 0",
    ]  # fmt: skip
