"""docs/monitoring.md: its example runs, and the metrics it names are those that are served."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_lab import Cluster

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()
METRICS = (Path(__file__).parents[2] / "broker" / "dejamq_broker" / "operators").glob("*.py")


@pytest.mark.process
async def test_the_example_asks_a_running_client(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(block)
    async with Cluster(directory=tmp_path / "cluster") as cluster:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=os.environ | {"DEJAMQ_NAMESRV": cluster.namesrv},
        )  # fmt: skip
        output, _ = await asyncio.wait_for(process.communicate(), 50)
    text = output.decode()
    assert process.returncode == 0, text
    assert "CONSUME_PASSIVELY" in text
    assert re.search(r"SUCCESS \d+ ms", text), text
    assert "orders 1" in text


def test_every_metric_of_a_broker_is_on_the_page() -> None:
    made = {name for file in METRICS for name in re.findall(r'"((?:rocketmq|dejamq)_[a-z_]+)"', file.read_text())}
    assert len(made) > 25
    shortened = {"rocketmq_consumer_", "rocketmq_storage_"}
    for name in made:
        tail = next((name.removeprefix(start) for start in shortened if name.startswith(start)), name)
        assert name in PAGE or f"…_{tail}" in PAGE, name
