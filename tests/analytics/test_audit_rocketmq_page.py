"""The page about audits of RocketMQ: its command is run on a recorded incident, and tells what the page shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from dejamq_analytics.evidence.client import MADE_UP
from less_evidence import single_losses
from recorded import NAMES, audited, truth_of

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


CLIENTS = {"Java 5.3.3": "java-5.3.3", "Java 4.9.8": "java-4.9.8", "Go 2.1.2": "go"}
ROWS = re.findall(r"^\| ([A-Z]\d+(?:, [A-Z]\d+)*) \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE)


def client_of(run: str) -> str:
    """Runs of other clients than Java's of version 5 are named after them."""
    return {"go": "go", "client4": "java-4.9.8"}.get(run.rpartition("_")[2], "java-5.3.3")


def recorded_with() -> set[tuple[str, str]]:
    """Each cause and client of which there is a recorded run."""
    return {(cause, client_of(name)) for name in NAMES for cause in truth_of(name).expected}


def test_each_cause_that_the_page_says_was_seen_with_a_client_has_a_recorded_run() -> None:
    seen = {(cause, CLIENTS[client]) for causes, clients in ROWS for cause in causes.split(", ")
            for client in clients.split(", ") if client != "–"}  # fmt: skip
    assert len(ROWS) > 20
    assert seen - recorded_with() == set()
    unnamed = {cause for causes, clients in ROWS if clients == "–" for cause in causes.split(", ")}
    assert unnamed & {cause for cause, _ in recorded_with()} == set()


def test_each_cause_that_the_page_of_causes_says_was_seen_has_a_recorded_run() -> None:
    page = (HERE / "docs" / "duplicates.md").read_text()
    seen = {
        (title, client)
        for title, text in re.findall(r"^### ([A-Z]\d+): (.*?)(?=^##)", page, re.MULTILINE | re.DOTALL)
        for told in re.findall(r"- Seen on RocketMQ 5\.3\.3: (.*?)\n- ", text, re.DOTALL)
        for client in re.findall(r"java-[\d.]+|\bgo\b", told)
    }
    assert len(seen) > 30
    assert seen - recorded_with() == set()


def test_a_member_that_no_log_names_has_a_made_up_id_as_the_page_says(tmp_path: Path) -> None:
    (without_names,) = (one for one in single_losses(RECORDED.parent / "o20") if one.what == "below WARN of billing-2")
    shutil.copytree(RECORDED.parent / "o20", tmp_path / "run")
    without_names.take(tmp_path / "run")
    verdict, _ = audited(tmp_path / "run", tmp_path / "out")
    (missing, *others) = {re.sub(r"which members .* are: ", "", one) for one in verdict.undetermined_missing}
    assert (missing, others) == ("the log of the client that has none tells (L8 or O20)", [])
    assert all(re.search(MADE_UP, one) for one in verdict.undetermined_missing)
