"""The demo as a user runs it, with fewer orders."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_lab.demo.ledger import ChargeLedger


def demo(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dejamq_lab.demo", "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)


@pytest.mark.process
@pytest.mark.timeout(180)
def test_the_demo_explains_every_double_charge(tmp_path: Path) -> None:
    done = demo(tmp_path / "out", "--orders", "4000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "agree, delivery by delivery" in done.stdout
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert verdict["duplicates"] == sum(verdict["causes"].values()) + verdict["undetermined"]
    assert verdict["undetermined"] == 0
    assert verdict["lost"] == 0
    assert set(verdict["causes"]) <= {"O1", "O2", "O7"}
    assert verdict["causes"]["O1"] > 0
    assert verdict["causes"]["O7"] > 0
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000


@pytest.mark.process
@pytest.mark.timeout(180)
def test_with_an_inbox_what_is_delivered_twice_is_charged_once(tmp_path: Path) -> None:
    done = demo(tmp_path / "out", "--orders", "2000", "--inbox")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No order was charged twice" in done.stdout
    with contextlib.closing(ChargeLedger(tmp_path / "out" / "ledger.sqlite")) as ledger:
        assert ledger.orders_charged() == sum(ledger.charged_by().values()) == 2000
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert verdict["duplicates"] > 0


def test_the_demo_does_not_delete_a_folder_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    done = demo(tmp_path)
    assert done.returncode == 1
    assert "choose another --out" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "thesis.tex").exists()
