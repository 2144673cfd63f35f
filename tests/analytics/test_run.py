"""The audit as people run it: what it prints, what it writes, how it exits."""

import json
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pyarrow.parquet
import pytest
from dejamq_analytics import audit
from dejamq_analytics.__main__ import main
from dejamq_analytics.run import Request
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, FINDING_COLUMNS
from journals import TOPIC, History
from py4j import java_gateway  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import SparkSession
from stories import STORIES

VERDICT_KEYS = [
    "schema", "run_id", "verdict", "messages", "deliveries", "duplicates", "unfinished_first", "expected_duplicates",
    "lost", "unseen", "out_of_order", "causes", "expected_causes", "undetermined", "undetermined_missing", "anomalies",
    "processes", "journal_gaps", "by_group",
]  # fmt: skip
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def audited_out(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """One run over several stories, twice into the same directory; one group has a hostile name."""
    journal = tmp_path_factory.mktemp("run") / "journal"
    out = journal.parent / "out"
    journal.mkdir()
    for name in ("o1", "o7", "p1-undelivered", "l1", "two-owners"):
        history = History(journal, name)
        if name == "o7":
            history.group = HOSTILE
        STORIES[name](history)
        history.end()
    main([str(journal), "--out", str(out)])
    return main([str(journal), "--out", str(out)]), out


def test_a_business_key_without_a_store_is_bad_use(
    tmp_path: Path, quick: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a commit log has the properties of messages: without one the audit would leave the wish out unsaid."""
    History(tmp_path).consumer().close()
    assert main([str(tmp_path), "--business-key", "ORDER"]) == 2
    assert "--business-key reads a property of stored messages: name --store too" in capsys.readouterr().err
    assert main([str(tmp_path), "--business-key", "ORDER", "--follow", "--out", str(tmp_path / "out")]) == 2
    assert "--follow does not go with --business-key" in capsys.readouterr().err
    with pytest.raises(BadInput, match="name --store too"):
        audit(quick, [str(tmp_path)], business_key="ORDER")


def test_findings_make_the_exit_status_1(audited_out: tuple[int, Path]) -> None:
    assert audited_out[0] == 1


def test_verdict_json_has_exactly_the_documented_keys(audited_out: tuple[int, Path]) -> None:
    verdict = json.loads((audited_out[1] / "verdict.json").read_text(encoding="utf-8"))
    assert list(verdict) == VERDICT_KEYS
    assert verdict["schema"] == 1
    assert verdict["causes"] == {"O1": 2, "O7": 1, "P1": 1}
    assert verdict["expected_causes"] == {"L1": 1}


def test_a_second_run_replaces_its_findings_and_keeps_their_ids(audited_out: tuple[int, Path]) -> None:
    table = pyarrow.parquet.read_table(audited_out[1] / "findings")
    assert set(table.column_names) == set(FINDING_COLUMNS)
    rows = table.to_pylist()
    assert len(rows) == len({row["finding_id"] for row in rows}) == 6
    assert all(row["run_id"].startswith("run-") for row in rows)
    anomalies = pyarrow.parquet.read_table(audited_out[1] / "anomalies")
    assert set(anomalies.column_names) == set(ANOMALY_COLUMNS)


def test_the_report_loads_nothing_and_escapes_everything(audited_out: tuple[int, Path]) -> None:
    page = (audited_out[1] / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)\s*=|url\(|@import|https?://|<script", page)
    assert "&lt;script&gt;" in page
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == [
        "What caused it", "When", "On which queue", "Who held which queue", "Show me one", "What to change",
        "What could not be told, and why",
    ]  # fmt: skip
    assert "offset 5 was unfinished" in page


def test_a_second_run_tells_only_what_the_first_has_not(
    audited_out: tuple[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the run of test_run: one story more, and the whole table has what one audit of everything would tell."""
    journal, out = tmp_path / "journal", tmp_path / "out"
    shutil.copytree(audited_out[1].parent / "journal", journal)
    shutil.copytree(audited_out[1], out)
    earlier = pyarrow.parquet.read_table(out / "findings").to_pylist()
    history = History(journal, "o9")
    STORIES["o9"](history)
    history.end()
    capsys.readouterr()
    assert main([str(journal), "--out", str(out), "--since", "last", "-o", "json"]) == 1
    verdict = json.loads(capsys.readouterr().out)
    told = pyarrow.parquet.read_table(out / "findings" / f"run_id={verdict['run_id']}").to_pylist()
    assert [(row["cause"], row["consumer_group"]) for row in told] == [("O9", "o9")]
    assert verdict["causes"] == {"O9": 1}
    whole = pyarrow.parquet.read_table(out / "findings").to_pylist()
    assert len({row["finding_id"] for row in whole}) == len(whole) == len(earlier) + 1
    assert main([str(journal), "--out", str(out), "--since", "last", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "clean"
    assert pyarrow.parquet.read_table(out / "findings").to_pylist() == whole


def test_a_misspelt_group_is_bad_use_and_not_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = History(tmp_path, "o1")
    STORIES["o1"](history)
    history.end()
    assert main([str(tmp_path), "--group", "biling"]) == 2
    assert f"consumer group 'biling'; there are {history.group}" in capsys.readouterr().err
    assert main([str(tmp_path), "--group", history.group]) == 1


def test_of_messages_stored_twice_a_group_is_told_those_in_topics_that_it_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History(tmp_path, "p1-undelivered")
    STORIES["p1-undelivered"](history)
    for group, topic in (("concerned", TOPIC), ("elsewhere", "another-topic")):
        history.group = group
        reader = history.consumer(group)
        reader.open_queue(0, topic=topic)
        reader.close()
    history.end()
    assert [main([str(tmp_path), "--group", group]) for group in ("concerned", "elsewhere")] == [1, 0]


def test_ctrl_c_prints_nothing_of_the_call_into_java_that_it_interrupted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where in such a call the signal comes is chance; so what py4j does then is played, from its own file's name."""
    told = compile(
        "import logging; logging.exception('Exception while sending command.')", java_gateway.__file__, "exec"
    )

    def interrupted(request: Request, say: Callable[[str], None]) -> NoReturn:
        try:
            raise OSError("the socket is closed")
        except OSError:
            exec(told)
        raise KeyboardInterrupt

    monkeypatch.setattr("dejamq_analytics.__main__.run_audit", interrupted)
    assert main([str(tmp_path)]) == 130
    assert not caplog.records
    assert not logging.getLogger().filters


def test_bad_use_is_one_line_and_exit_status_2(tmp_path: Path) -> None:
    """Before anything is read: fast, and without a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "dejamq_analytics", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"dejamq audit: no journal (*.jsonl) in {tmp_path}: were the processes started with journal_dir set?"
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "no such journal directory: nowhere"),
        (["x", "--fail-on", "bugs"], "--fail-on takes"),
        (["x", "--conf", "novalue"], "--conf takes KEY=VALUE"),
    ],
)
def test_wrong_arguments_are_named(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_without_a_directory_the_environment_names_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEJAMQ_JOURNAL_DIR", raising=False)
    assert main([]) == 2
    assert "no journal directory given" in capsys.readouterr().err
