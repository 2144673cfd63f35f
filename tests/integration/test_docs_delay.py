"""The examples of docs/delay-and-retry.md, run as written and in their order; its table is the broker's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_broker.store import StoreConfig
from dejamq_lab import Cluster

PAGE = (Path(__file__).parents[2] / "docs/delay-and-retry.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.process
def test_the_examples_retry_give_up_and_replay(tmp_path: Path) -> None:
    told = []
    with Cluster(directory=tmp_path / "cluster") as cluster:
        for number, block in enumerate((*BLOCKS, BLOCKS[1])):
            script = tmp_path / f"example_{number}.py"
            script.write_text(block)
            done = subprocess.run(
                [sys.executable, str(script)], env=os.environ | {"DEJAMQ_NAMESRV": cluster.namesrv},
                capture_output=True, text=True, timeout=50, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            told.append(done.stdout.splitlines())
    retried, first, second = told
    assert retried == ["charged order-17 after 1 failure"]
    dead = "orders unreadable failed 1 times, dead letter: no such format"
    assert first == [dead, "sent again %RETRY%billing"]
    assert second == [dead, "was sent again before %RETRY%billing"]


def test_the_table_of_levels_is_the_brokers_default() -> None:
    cells = re.search(r"\| 1 s .*", PAGE)
    assert cells is not None
    table = " ".join(cell.strip().replace(" ", "") for cell in cells[0].strip("|").split("|"))
    assert table == StoreConfig().message_delay_level
