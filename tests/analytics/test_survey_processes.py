"""Large journals of this machine are read by a few processes: no Java, nothing left behind, however it ends."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet
import pytest
from dejamq_analytics import run
from dejamq_analytics.__main__ import main
from dejamq_analytics.report.write import IDS
from journals import History
from plain_runs import RUN, write_remade, write_runs, write_shared
from stories import write_all

Tables = dict[str, list[dict[str, Any]]]
LONG = """
import sys, threading, time
from dejamq_analytics.__main__ import main
from dejamq_analytics.sources import workload_estimate
from dejamq_analytics.survey import chunks

workload_estimate.SMALL_BYTES, workload_estimate.free_memory_bytes = 0, lambda: 0
cut = chunks.cut
chunks.cut = lambda journals: cut(journals) * 500
threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
sys.exit(main([sys.argv[1]]))
"""
"""An audit whose first reading takes half a minute. Its other thread takes signals that the main one does not."""


def told(journals: list[str], out: Path, *more: str) -> Tables:
    """What it finds, in the order in which it is written."""
    assert main([*journals, *more, "--out", str(out)]) in (0, 1, 3)
    return {name: pyarrow.parquet.read_table(out / name).to_pylist() for name in IDS}


@pytest.fixture
def too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """For DuckDB as a whole, while what is left of them is not. And there is no Spark."""
    answers = iter([False, True] * 10)

    def no_spark(_: object) -> NoReturn:
        raise AssertionError("Spark is not needed")

    monkeypatch.setattr(run, "fits_duckdb", lambda size: next(answers))
    monkeypatch.setattr(run, "spark_for", no_spark)


def test_processes_find_what_duckdb_finds_in_every_line(
    tmp_path: Path, chance: random.Random, request: pytest.FixtureRequest
) -> None:
    """Histories, among runs of which one came twice and one never, and others that several groups had.

    ``test_engines`` has all histories.
    """
    journal = tmp_path / "journal"
    journal.mkdir()
    write_all(journal, ("o1", "o7", "p1-undelivered", "l1", "two-owners"))
    write_runs(History(journal, "plain-runs"), again=3, unseen=7)
    write_shared(History(journal, "shared"), chance)
    write_remade(History(journal, "remade"))
    journals = [str(journal)]
    whole = told(journals, tmp_path / "whole", "--engine", "duckdb")
    request.getfixturevalue("too_large")
    assert told(journals, tmp_path / "surveyed") == whole
    for name in ("verdict.json", "report.html"):
        assert (tmp_path / "surveyed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert len([row for row in whole["findings"] if row["message_id"].startswith("plain-runs-")]) == RUN


@pytest.mark.usefixtures("too_large")
def test_a_group_that_nothing_tells_of_is_bad_use_and_the_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        write_runs(History(tmp_path, name))
    assert main([str(tmp_path), "--group", "three"]) == 2
    assert "no line of the journals is about a consumer group 'three'; there are one, two" in capsys.readouterr().err


@contextmanager
def at_work(tmp_path: Path, *, begun: bool = True) -> Iterator[subprocess.Popen[str]]:
    """An audit amid its first reading, or while its processes begin. It has a folder of its own for what it leaves."""
    journal, temporary = tmp_path / "journal", tmp_path / "temporary"
    journal.mkdir()
    temporary.mkdir()
    write_runs(History(journal, "plain"), runs=1000)
    command = [sys.executable, "-c", LONG, str(journal)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    ) as audit:  # fmt: skip
        try:
            wait_until(lambda: any(temporary.glob("*/*.index")) if begun else workers(audit.pid), audit)
            yield audit
        finally:
            audit.kill()


def wait_until(holds: Any, audit: subprocess.Popen[str] | None = None) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert audit is None or audit.poll() is None, "it ended before"
        assert time.monotonic() < until, "it never came so far"
        time.sleep(0.01)


def workers(pid: int) -> list[int]:
    """Processes that read journals for this one."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


@pytest.mark.process
@pytest.mark.parametrize("begun", [True, False])
def test_ctrl_c_ends_all_of_it_without_a_word(tmp_path: Path, begun: bool) -> None:
    with at_work(tmp_path, begun=begun) as audit:
        os.killpg(audit.pid, signal.SIGINT)
        words, _ = audit.communicate(timeout=60)  # until its processes, too, have closed their end
    assert (audit.returncode, words) == (130, "")
    assert not any((tmp_path / "temporary").iterdir())


@pytest.mark.process
def test_when_the_audit_is_killed_its_processes_end(tmp_path: Path) -> None:
    with at_work(tmp_path) as audit:
        theirs = workers(audit.pid)
        audit.kill()
        audit.communicate(timeout=60)
        assert theirs
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in theirs))


@pytest.mark.process
def test_when_one_of_its_processes_is_killed_the_audit_says_so(tmp_path: Path) -> None:
    with at_work(tmp_path) as audit:
        os.kill(workers(audit.pid)[0], signal.SIGKILL)
        words, _ = audit.communicate(timeout=60)
    assert audit.returncode == 2
    assert words == "dejamq audit: a process that read files was killed: is there too little memory?\n"
    assert not any((tmp_path / "temporary").iterdir())
