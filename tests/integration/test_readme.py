"""The README's examples, run as written."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_lab import Cluster

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
QUICKSTART = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)[0]


def test_the_readme_has_an_sdk_example_of_about_15_lines_and_a_test_example() -> None:
    assert len(BLOCKS) == 2
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 20


def test_the_readme_begins_with_an_installation_and_a_quickstart_of_five_lines_and_is_short() -> None:
    assert QUICKSTART.startswith("pip install ")
    assert len(QUICKSTART.splitlines()) == 5
    assert len(README.splitlines()) <= 120


@pytest.mark.process
async def test_the_quickstart_starts_a_cluster_sends_and_receives(tmp_path: Path) -> None:
    commands = QUICKSTART.partition("\n")[2]  # the installation is what runs this test
    process = await asyncio.create_subprocess_exec(
        "bash", "-ec", commands, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), 50)
    text = output.decode()
    assert process.returncode == 0, text
    assert "SEND_OK" in text
    assert "order-17" in text


@pytest.mark.process
async def test_the_sdk_example_sends_and_receives(tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(BLOCKS[0])
    async with Cluster(directory=tmp_path / "cluster") as cluster:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=os.environ | {"DEJAMQ_NAMESRV": cluster.namesrv},
        )  # fmt: skip
        output, _ = await asyncio.wait_for(process.communicate(), 50)
    text = output.decode()
    assert process.returncode == 0, text
    assert "SEND_OK" in text
    assert "paid order-17" in text


@pytest.mark.process
def test_the_test_example_passes(tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(BLOCKS[1])
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_the_readme_names_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target
