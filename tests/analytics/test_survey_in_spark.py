"""What large journals leave out changes nothing that an audit finds: both ways, in Spark, with the same findings."""

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from dejamq_analytics import pipeline, run
from dejamq_analytics.frames import DUCKDB, SPARK, in_duckdb
from dejamq_analytics.report.verdict import Verdict, judge
from dejamq_analytics.report.write import IDS
from dejamq_analytics.run import Request, run_audit
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.survey import chunks
from dejamq_analytics.survey.pick import WantedLines
from dejamq_analytics.survey.spark_readings import FramedTexts, OfChunks
from dejamq_analytics.survey.survey import survey
from journals import History
from plain_runs import write_remade, write_runs, write_shared
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def journals(stories: Path, tmp_path: Path, chance: random.Random) -> list[str]:
    """All stories, among runs of which one came twice and one never, and others that three groups had."""
    write_runs(History(tmp_path, "plain-runs"), again=3, unseen=7)
    write_shared(History(tmp_path, "shared"), chance)
    write_remade(History(tmp_path, "remade"))
    return [str(stories), str(tmp_path)]


Tables = dict[str, list[dict[str, Any]]]
JUDGES = list[str]


@pytest.fixture
def judges(monkeypatch: pytest.MonkeyPatch) -> JUDGES:
    """The engine of each audit that is made."""
    asked = JUDGES()

    def judged_and_noted(*facts: Any) -> Verdict:
        asked.append(DUCKDB if in_duckdb() else SPARK)
        return judge(*facts)

    monkeypatch.setattr(run, "judge", judged_and_noted)
    return asked


def told(out: Path, journals: list[str], engine: str = "auto") -> tuple[Verdict, Tables]:
    """What it tells, with its tables in the order in which they are written."""
    verdict = run_audit(Request(journals, out=out / engine, engine=engine), lambda said: None)[1]
    return verdict, {name: pyarrow.parquet.read_table(out / engine / name).to_pylist() for name in IDS}


def answer(monkeypatch: pytest.MonkeyPatch, *answers: bool) -> None:
    """To the questions whether DuckDB has enough memory, one after the other."""
    waiting = iter(answers)
    monkeypatch.setattr(run, "fits_duckdb", lambda size: next(waiting))


def test_rules_run_in_duckdb_on_the_little_that_spark_took_of_journals_elsewhere(
    spark: SparkSession, journals: list[str], judges: JUDGES, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark.range(1).count()  # the session is the active one, which the audit takes
    whole = told(tmp_path, journals, DUCKDB)
    monkeypatch.setattr(pipeline, "SURVEY_BYTES", 0)
    monkeypatch.setattr(chunks, "cut", lambda journals: None)
    answer(monkeypatch, False, True)
    assert told(tmp_path, journals) == whole
    assert judges == [DUCKDB, DUCKDB]


@pytest.mark.slow
def test_rules_run_in_spark_on_the_much_that_processes_of_this_machine_left(
    spark: SparkSession, judges: JUDGES, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark.range(1).count()
    write_runs(History(tmp_path, "plain-runs"), again=3, unseen=7)
    journals = [str(tmp_path)]
    whole = told(tmp_path, journals, DUCKDB)
    answer(monkeypatch, False, False, False)
    assert told(tmp_path, journals) == whole
    assert judges == [DUCKDB, SPARK]


def test_a_journal_that_goes_away_between_the_readings_is_told_as_such(spark: SparkSession, tmp_path: Path) -> None:
    write_runs(History(tmp_path, "plain-runs"), again=3)

    class Meanwhile(OfChunks):
        """Somebody tidies up when the first reading is done."""

        def second(self, wanted: WantedLines, *, with_kept: bool) -> FramedTexts:
            for journal in tmp_path.glob("*.jsonl"):
                journal.unlink()
            return super().second(wanted, with_kept=with_kept)

    with pytest.raises(BadInput, match=r"^the journal .* was replaced while it was read: audit a copy"):
        survey(Meanwhile(spark, chunks.cut([str(tmp_path)]) or [], None))
