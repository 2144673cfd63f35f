"""What the audit's command line means, and its words at the end. Without Spark."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from dejamq_analytics.__main__ import _engine_error, _parser, _request, _summary, main
from dejamq_analytics.frames import SPARK
from dejamq_analytics.report.tables import TableTarget
from dejamq_analytics.report.verdict import Totals, Verdict, weigh
from dejamq_analytics.report.write import write_verdict
from dejamq_analytics.run import FAIL_ON, Request, engine_of
from dejamq_analytics.sources.paths import BadInput
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import Row


def request(*arguments: str) -> Request:
    return _request(_parser().parse_args(list(arguments)))


def verdict(*rows: Row, gaps: int = 0) -> Verdict:
    return weigh("run-1", Totals(messages=10, deliveries={"g": 12}, processes=3, journal_gaps=gaps), rows, {})


def counted(
    cause: str | None, n: int, group: str | None = "g", expected: bool = False, missing: str = "no journal of broker-a",
    unfinished: bool = False,
) -> Row:  # fmt: skip
    lacking = None if cause else missing
    return Row(consumer_group=group, cause=cause, missing=lacking, expected=expected, unfinished=unfinished, n=n)


def test_everything_that_is_found_fails_unless_told_otherwise() -> None:
    assert tuple(request("journals").fail_on) == FAIL_ON


def test_never_minds_nothing() -> None:
    assert request("journals", "--fail-on", "never").fail_on == ()


def test_only_what_is_named_is_minded() -> None:
    assert request("journals", "--fail-on", "lost,duplicates").fail_on == ("lost", "duplicates")


@pytest.mark.parametrize("value", ["everything", "lost,", "never,lost"])
def test_a_word_that_is_none_is_refused_with_those_there_are(value: str) -> None:
    with pytest.raises(BadInput, match="duplicates, lost, out_of_order, undetermined or never"):
        request("journals", "--fail-on", value)


@pytest.mark.parametrize("value", ["spark.driver.memory", "=4g", ""])
def test_a_spark_setting_needs_a_key_and_a_value(value: str) -> None:
    with pytest.raises(BadInput, match="KEY=VALUE"):
        request("journals", "--conf", value)


def test_a_spark_setting_may_hold_further_equals_signs() -> None:
    made = request("journals", "--conf", "spark.driver.extraJavaOptions=-Da=b")
    assert made.conf == {"spark.driver.extraJavaOptions": "-Da=b"}


def test_several_journals_and_stores_are_taken_in_their_order() -> None:
    made = request("one", "two", "--store", "a", "--store", "b")
    assert (list(made.journals), list(made.stores)) == (["one", "two"], ["a", "b"])


def test_a_named_journal_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAMQ_JOURNAL_DIR", "from-environment")
    assert list(request("named").journals) == ["named"]
    assert list(request().journals) == ["from-environment"]


def test_without_any_journal_the_list_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEJAMQ_JOURNAL_DIR", raising=False)
    assert list(request().journals) == []


def test_the_summary_names_causes_and_what_is_missing() -> None:
    told = _summary(verdict(counted("O7", 2), counted("O1", 3), counted(None, 4)))
    assert "findings: 10 messages, 12 deliveries, 9 duplicates (O1 3, O7 2)" in told
    assert "  4 undetermined: no journal of broker-a" in told


@pytest.mark.parametrize(("level", "advised"), [("audit", True), ("forensic", False)])
def test_the_summary_says_how_the_last_lines_of_a_killed_process_are_kept(level: str, advised: bool) -> None:
    lost = f"the last 100 ms of billing-1, which ended without closing at journal level {level}"
    told = _summary(verdict(counted(None, 4, missing=lost)))
    assert ('journal_level="forensic" (DEJAMQ_JOURNAL_LEVEL) keeps the last lines' in told) == advised


def test_the_summary_says_what_each_cause_means() -> None:
    assert "  O1: the consumer ended before its offset left" in _summary(verdict(counted("O1", 3))).splitlines()


def test_the_summary_says_of_how_many_duplicates_the_first_handler_had_not_ended() -> None:
    told = _summary(verdict(counted("O1", 3), counted("O1", 2, unfinished=True)))
    assert "  the first handler had not ended: 2 of these duplicates" in told.splitlines()


def test_of_a_failed_call_into_java_the_reason_is_told_and_not_which_call_it_was() -> None:
    class OfJava(Py4JJavaError):  # type: ignore[misc]  # py4j ships no types
        def __init__(self) -> None: ...

        def __str__(self) -> str:
            return "An error occurred while calling o7.parquet.\n: java.io.IOException: No space left\n\tat Files\n"

    assert _engine_error(OfJava()) == "Spark failed: java.io.IOException: No space left"
    assert _engine_error(Py4JError("the connection is closed\nhere")) == "Spark failed: the connection is closed"


def test_what_fails_in_duckdb_is_told_in_one_line_and_other_faults_are_ours() -> None:
    assert _engine_error(duckdb.OutOfMemoryException("no memory\nat all")) == "DuckDB failed: no memory"
    assert _engine_error(ValueError("a fault")) is None


def test_a_clean_summary_has_no_empty_brackets() -> None:
    assert "()" not in _summary(verdict())


def test_causes_are_summed_over_groups_and_told_by_group() -> None:
    told = verdict(counted("O1", 3), counted("O1", 2, group="h"))
    assert told.causes == {"O1": 5}
    assert (told.by_group["g"]["causes"], told.by_group["h"]["causes"]) == ({"O1": 3}, {"O1": 2})


def test_a_group_that_only_has_findings_is_told_with_no_deliveries() -> None:
    assert verdict(counted("O1", 1, group="h")).by_group["h"]["deliveries"] == 0


def test_a_finding_of_no_group_counts_in_the_whole_only() -> None:
    told = verdict(counted("P1", 1, group=None))
    assert told.duplicates == 1
    assert list(told.by_group) == ["g"]


def test_duplicates_are_always_the_causes_and_the_undetermined() -> None:
    told = verdict(counted("O1", 3), counted("P5", 1), counted(None, 4), counted("L1", 9, expected=True))
    assert told.duplicates == sum(told.causes.values()) + told.undetermined == 8


def test_the_same_verdict_writes_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for rows in ([counted("O1", 3), counted("P5", 1)], [counted("P5", 1), counted("O1", 3)]):
        written.append(write_verdict(verdict(*rows), tmp_path).read_bytes())
    assert written[0] == written[1]
    assert written[0].endswith(b"}\n")


def test_logs_take_a_zone_for_all_and_one_for_a_part() -> None:
    reading = request("--logs", "a", "--trace", "b", "--zone", "+02:00", "--zone", "billing=-0530").reading
    assert reading is not None
    assert reading.folders == ["a", "b"]
    assert reading.zones == {"": timedelta(hours=2), "billing": -timedelta(hours=5, minutes=30)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--logs", "a", "--follow"], "--follow is about journals"),
        (["--logs", "a", "--zone", "Berlin"], "a time zone is told as"),
        (["--logs", "a", "--log-pattern", "%msg"], "--log-pattern needs"),
    ],
)
def test_what_logs_cannot_take_is_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        request(*arguments)


def test_sources_are_explained_without_an_audit(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = Path(__file__).parents[1] / "data" / "rocketmq" / "p5"
    assert main(["--evidence", str(recorded), "--explain-sources"]) == 0
    told = capsys.readouterr().out
    assert "P5  the application sent it twice: trace records of the producer (enableTrace) (there), " in told
    assert "O2  the offset was sent and got lost: decided from journals only" in told


def test_sources_are_explained_of_evidence_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "--explain-sources"]) == 2
    assert "--explain-sources is about --logs" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--explain-sources"]])
def test_output_that_nobody_reads_is_no_failure_of_the_audit(options: list[str]) -> None:
    run = str(Path(__file__).parent.parent / "data" / "rocketmq" / "o1")
    command = [sys.executable, "-m", "dejamq_analytics", "--evidence", run, *options]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    os.close(writing)
    assert "pipe" not in done.stderr.lower()
    assert done.returncode == (141 if options else 1)


def test_tables_have_a_format_a_place_and_options_of_their_own() -> None:
    given = request("journals", "--write-format", "delta", "--write-path", "lake", "--write-option", "mergeSchema=true")
    assert given.target == TableTarget("delta", path="lake", options={"mergeSchema": "true"})
    assert request("journals", "--write-table", "lake.audit").target == TableTarget(table="lake.audit")
    assert request("journals").target is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--write-format", "delta"], "--write-path or --write-table, one of both"),
        (["--write-path", "a", "--write-table", "b"], "--write-path or --write-table, one of both"),
        (["--write-path", "a", "--write-option", "x"], "--write-option takes KEY=VALUE, not 'x'"),
        (["--write-path", "a", "--follow"], "--follow writes Parquet only"),
    ],
)
def test_tables_that_cannot_be_written_are_bad_use(more: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        request("journals", *more)


def test_tables_are_written_by_spark() -> None:
    assert engine_of(request("journals", "--write-path", "lake")) == SPARK
    with pytest.raises(BadInput, match="--engine duckdb reads local journals and has no --write-table"):
        engine_of(request("journals", "--engine", "duckdb", "--write-table", "lake.audit"))
