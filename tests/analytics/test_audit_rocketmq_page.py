"""The page about audits of RocketMQ: its command is run on a recorded incident, and tells what the page shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

HERE = Path(__file__).parents[2]
PAGE = (HERE / "docs" / "audit-rocketmq.md").read_text()
BLOCKS = re.findall(r"```(?:sh)?\n(.*?)```", PAGE, re.DOTALL)
RECORDED = HERE / "tests" / "data" / "rocketmq" / "o1"


def block(word: str) -> str:
    """The block of the page that has it."""
    (found,) = (one for one in BLOCKS if word in one)
    return str(found)


@pytest.mark.timeout(120)
@pytest.mark.process
def test_the_command_of_the_page_tells_what_the_page_shows(tmp_path: Path) -> None:
    shutil.copytree(RECORDED, tmp_path / "incident")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("DEJAMQ_JOURNAL_DIR", None)
    done = subprocess.run(
        ["bash", "-c", block("dejamq audit --evidence incident --out")], cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, block("findings: 12")), done.stderr
    assert "billing-1/rocketmq_client.log: log of a Java client, machine billing-1" in done.stderr
    (finding,) = (
        row
        for part in (tmp_path / "audit").rglob("findings/*/*.parquet")
        for row in pq.read_table(part).to_pylist()
        if row["cause"] == "O1"
    )
    told = [f"{line['event']:<10}{line['summary']}" for line in finding["evidence"]]
    assert [line for line in block("the highest offset sent").splitlines() if line not in told] == []
    assert "billing-1/rocketmq_client.log" in (tmp_path / "audit" / "report.html").read_text()


@pytest.mark.parametrize("path", [line.strip() for line in block("broker-a/store/commitlog").splitlines()[1:]])
def test_the_files_that_the_page_names_are_those_of_the_incident(path: str) -> None:
    assert (RECORDED / path).exists()
