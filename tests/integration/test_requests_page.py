"""docs/requests.md: its example is run as written."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_lab import Cluster

PAGE = (Path(__file__).parents[2] / "docs" / "requests.md").read_text()


@pytest.mark.process
async def test_the_example_of_a_request_gets_its_reply(tmp_path: Path) -> None:
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
    assert output.decode() == "price of tea\n"
