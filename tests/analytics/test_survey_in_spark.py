"""What large journals leave out changes nothing that an audit finds: both ways, in Spark, with the same findings."""

import random
from pathlib import Path
from typing import Any

import pytest
from dejamq_analytics import AuditResult, pipeline
from dejamq_analytics.read import BadInput
from dejamq_analytics.survey import chunks
from dejamq_analytics.survey.pick import Wanted
from dejamq_analytics.survey.readings import OfChunks
from dejamq_analytics.survey.survey import survey
from journals import History
from plain_runs import RUN, RUNS, write_remade, write_runs, write_shared
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


def rows_of(result: AuditResult) -> tuple[dict[str, dict[str, Any]], list[str], dict[str, Any]]:
    """Findings by their id, anomalies as text, and the counts of the verdict."""
    found = {row.finding_id: row.asDict(True) for row in result.findings.collect()}
    odd = sorted(str(row.asDict(True)) for row in result.anomalies.collect())
    return found, odd, {"messages": result.verdict.messages, "deliveries": result.verdict.deliveries}


def test_the_same_is_found_whether_or_not_what_came_once_is_left_out(
    audited: Auditor, journals: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "LITTLE", 0)  # as of many messages: rows in several partitions
    whole, whole_odd, whole_counts = rows_of(audited(journals=journals, run_id="one"))
    monkeypatch.undo()
    monkeypatch.setattr(pipeline, "SURVEY_BYTES", 0)
    part, part_odd, part_counts = rows_of(audited(journals=journals, run_id="one"))
    assert len([row for row in whole.values() if row["message_id"].startswith("plain-runs-")]) == RUN
    assert RUNS > 3
    assert part.keys() == whole.keys()
    assert [(whole[key], row) for key, row in part.items() if row != whole[key]] == []
    assert part_odd == whole_odd
    assert part_counts == whole_counts


def test_a_journal_that_goes_away_between_the_readings_is_told_as_such(spark: SparkSession, tmp_path: Path) -> None:
    write_runs(History(tmp_path, "plain-runs"), again=3)

    class Meanwhile(OfChunks):
        """Somebody tidies up when the first reading is done."""

        def second(self, looked: DataFrame, wanted: Wanted) -> DataFrame:
            for journal in tmp_path.glob("*.jsonl"):
                journal.unlink()
            return super().second(looked, wanted)

    with pytest.raises(BadInput, match=r"^the journal .* was replaced while it was read: audit a copy"):
        survey(Meanwhile(spark, chunks.cut([str(tmp_path)]) or [], None))
