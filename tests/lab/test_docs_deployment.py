"""The examples of docs/deployment.md, run as written."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()


async def run(*command: str, cwd: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env=os.environ | {"PATH": path},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest.mark.process
async def test_the_commands_start_show_and_end_a_cluster_with_a_slave(tmp_path: Path) -> None:
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    shown = await run("bash", "-ec", commands, cwd=tmp_path)
    (slave,) = [line for line in shown.splitlines() if "broker-a-s1" in line and "running" in line]
    assert "slave" in slave


@pytest.mark.process
async def test_the_cluster_of_the_example_doubles_its_message(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert "SEND_OK at broker-a and its slave" in await run(sys.executable, "-c", program, cwd=tmp_path)
