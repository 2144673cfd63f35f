"""docs/admin.md: its example is run as written, and what it names is there."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq import Admin
from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_lab import Cluster

PAGE = (Path(__file__).parents[2] / "docs" / "admin.md").read_text()


@pytest.mark.process
async def test_the_example_runs_as_written(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    script = tmp_path / "example.py"
    await asyncio.to_thread(script.write_text, code)
    async with Cluster(directory=tmp_path / "cluster") as cluster:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=os.environ | {"DEJAMQ_NAMESRV": cluster.namesrv},
        )  # fmt: skip
        output, _ = await asyncio.wait_for(process.communicate(), 50)
    assert process.returncode == 0, output.decode()
    assert "None -> 25 the end" in output.decode()
    assert output.decode().endswith("0 messages behind\n['broker-a'] ['broker-a']\n")


def test_every_call_that_is_named_is_there() -> None:
    called = set(re.findall(r"`([a-z_]+)\(", PAGE))
    assert {name for name in called if not hasattr(Admin, name)} == set()
    assert {"reset_offsets", "update_topic", "forbid", "update_settings"} <= called


async def test_every_setting_that_can_change_is_named(tmp_path: Path) -> None:
    config = BrokerConfig(store_directory=str(tmp_path), listen="127.0.0.1:0", namesrv="")
    broker = Broker(config)
    await broker.start()
    try:
        assert {name for name in broker.domain.services.settings.changeable if f"`{name}`" not in PAGE} == set()
    finally:
        await broker.close()
