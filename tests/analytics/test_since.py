"""A table that grows run by run: what each run tells, how it is named, and what it refuses to continue."""

from pathlib import Path

import pytest
from dejamq_analytics import since
from dejamq_analytics.sources.paths import BadInput
from pyspark.sql import SparkSession

ONE, MORE = {"a": 5}, {"a": 9, "b": 2}


def audited(out: Path, again: str | None, extents: dict[str, int], **asked: str) -> since.RunChain:
    chain = since.plan(out, again, asked, extents)
    since.write_run(chain.run, out)
    return chain


def test_the_same_journals_are_the_same_run_and_grown_ones_another(tmp_path: Path) -> None:
    first = since.plan(tmp_path, None, {}, ONE).run.run_id
    assert since.plan(tmp_path, None, {}, dict(ONE)).run.run_id == first
    assert since.plan(tmp_path, None, {}, MORE).run.run_id != first
    assert since.plan(tmp_path, None, {"group": "g"}, ONE).run.run_id != first


def test_a_run_continues_the_one_that_is_named_and_all_before_it(tmp_path: Path) -> None:
    first = audited(tmp_path, None, ONE).run.run_id
    second = audited(tmp_path, first, MORE).run.run_id
    third = audited(tmp_path, second, {**MORE, "c": 1})
    assert third.earlier == [second, first]
    assert len({first, second, third.run.run_id}) == 3


def test_last_is_the_newest_run_and_an_audit_of_everything_before_there_is_one(tmp_path: Path) -> None:
    first = audited(tmp_path, "last", ONE)
    assert (first.earlier, first.run.since) == ([], None)
    second = audited(tmp_path, "last", MORE)
    assert second.earlier == [first.run.run_id]


def test_last_over_unchanged_journals_continues_the_run_that_told_of_them(tmp_path: Path) -> None:
    first = audited(tmp_path, "last", ONE)
    second = audited(tmp_path, "last", MORE)
    quiet = audited(tmp_path, "last", MORE)
    assert quiet.earlier == [second.run.run_id, first.run.run_id]


def test_however_many_nights_are_quiet_they_are_one_run(tmp_path: Path) -> None:
    audited(tmp_path, "last", ONE)
    quiet = audited(tmp_path, "last", ONE)
    assert audited(tmp_path, "last", ONE) == quiet
    grown = audited(tmp_path, "last", MORE)
    assert grown.earlier == [quiet.run.run_id, *quiet.earlier]
    assert audited(tmp_path, "last", MORE).earlier == [grown.run.run_id, *grown.earlier]


def test_last_over_unchanged_journals_is_refused_when_asked_something_else(tmp_path: Path) -> None:
    audited(tmp_path, None, ONE)
    with pytest.raises(BadInput, match="was asked everything, this one group billing"):
        since.plan(tmp_path, "last", {"group": "billing"}, ONE)


def test_a_run_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    there = audited(tmp_path, None, ONE).run.run_id
    with pytest.raises(BadInput, match=f"no run run-x in .*: there are {there}"):
        since.plan(tmp_path, "run-x", {}, ONE)
    with pytest.raises(BadInput, match="--since needs --out"):
        since.plan(None, "run-x", {}, ONE)


def test_a_run_that_was_asked_something_else_is_not_continued(tmp_path: Path) -> None:
    first = audited(tmp_path, None, ONE, group="billing").run.run_id
    with pytest.raises(BadInput, match="was asked group billing, this one everything"):
        since.plan(tmp_path, first, {}, MORE)


def test_a_damaged_record_of_a_run_is_refused(tmp_path: Path) -> None:
    first = audited(tmp_path, None, ONE).run.run_id
    (tmp_path / "runs" / f"{first}.json").write_text("{")
    with pytest.raises(BadInput, match="is damaged"):
        since.plan(tmp_path, first, {}, MORE)


@pytest.mark.spark
def test_what_was_undetermined_and_is_certain_now_is_told_once_more(spark: SparkSession, tmp_path: Path) -> None:
    words = "finding_id string, cause string, expected boolean"
    before = spark.createDataFrame([("a", None, False), ("b", "O1", False), ("c", None, False)], words)
    before.write.parquet(str(tmp_path / "findings" / "run_id=run-1"))
    now = spark.createDataFrame([("a", "O7", False), ("b", "O1", False), ("c", None, False), ("d", None, False)], words)
    left = since.untold(now, "findings", tmp_path, ["run-1"])
    assert sorted(row.finding_id for row in left.collect()) == ["a", "d"]
