"""What large journals leave out changes nothing that an audit finds: both ways, in Spark, with the same findings."""

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from dejamq_analytics import pipeline, run
from dejamq_analytics.frames import in_duckdb
from dejamq_analytics.report.verdict import Verdict, judge
from dejamq_analytics.run import Request, run_audit
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.survey import chunks
from dejamq_analytics.survey.pick import WantedLines
from dejamq_analytics.survey.readings import OfChunks
from dejamq_analytics.survey.survey import survey
from journals import History
from plain_runs import write_remade, write_runs, write_shared
from pyspark.sql import DataFrame, SparkSession
from told import Auditor

pytestmark = pytest.mark.spark


@pytest.fixture
def journals(stories: Path, tmp_path: Path, chance: random.Random) -> list[str]:
    """All stories, among runs of which one came twice and one never, and others that three groups had."""
    write_runs(History(tmp_path, "plain-runs"), again=3, unseen=7)
    write_shared(History(tmp_path, "shared"), chance)
    write_remade(History(tmp_path, "remade"))
    return [str(stories), str(tmp_path)]


def test_rules_run_in_duckdb_on_the_little_that_a_survey_left(
    spark: SparkSession, audited: Auditor, journals: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark.range(1).count()  # the session is the active one, which the audit takes
    whole = audited(journals=journals, run_id="one")
    monkeypatch.setattr(pipeline, "SURVEY_BYTES", 0)
    monkeypatch.setattr(run, "local_bytes", lambda journals, elsewhere: elsewhere)
    asked = list[bool]()

    def judged_and_noted(*facts: Any) -> Verdict:
        asked.append(in_duckdb())
        return judge(*facts)

    monkeypatch.setattr(run, "judge", judged_and_noted)
    _, verdict = run_audit(Request(journals, out=tmp_path / "audit"), lambda said: None)
    assert asked == [True]
    assert verdict.causes == whole.verdict.causes
    assert (verdict.messages, verdict.deliveries) == (whole.verdict.messages, whole.verdict.deliveries)
    rows = pyarrow.parquet.read_table(tmp_path / "audit" / "findings").to_pylist()
    found = {(row["finding_id"], row["cause"], row["trigger"], row["missing"], len(row["evidence"])) for row in rows}
    assert found == {
        (row.finding_id, row.cause, row.trigger, row.missing, len(row.evidence)) for row in whole.findings.collect()
    }
    assert len(found) == len(rows) > 0


def test_a_journal_that_goes_away_between_the_readings_is_told_as_such(spark: SparkSession, tmp_path: Path) -> None:
    write_runs(History(tmp_path, "plain-runs"), again=3)

    class Meanwhile(OfChunks):
        """Somebody tidies up when the first reading is done."""

        def second(self, looked: DataFrame, wanted: WantedLines) -> DataFrame:
            for journal in tmp_path.glob("*.jsonl"):
                journal.unlink()
            return super().second(looked, wanted)

    with pytest.raises(BadInput, match=r"^the journal .* was replaced while it was read: audit a copy"):
        survey(Meanwhile(spark, chunks.cut([str(tmp_path)]) or [], None))
