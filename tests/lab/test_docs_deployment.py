"""The examples of docs/deployment.md, run as written."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from replica_files import assert_same_files

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
    roles = {line.split()[0]: line.split()[-3:] for line in shown.splitlines() if "running" in line}
    assert roles["broker-a"] == ["SYNC_MASTER", "-", "-"]
    assert roles["broker-a-s1"][0] == "SLAVE"
    assert all(map(str.isdecimal, roles["broker-a-s1"][1:]))
    ended = tmp_path / ".dejamq"
    assert list((ended / "broker-a-s1" / "store" / "consumequeue").glob("orders/*"))
    assert_same_files(ended / "broker-a" / "store", ended / "broker-a-s1" / "store")


@pytest.mark.process
async def test_the_cluster_of_the_example_doubles_its_message(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert "SEND_OK at broker-a and its slave" in await run(sys.executable, "-c", program, cwd=tmp_path)
