"""Findings appended to tables: each once, however often and after whatever crash."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dejamq_analytics import AuditResult, append_findings, audit
from dejamq_analytics.report.tables import TableTarget
from dejamq_analytics.run import Request, _append
from dejamq_analytics.sources.paths import BadInput, reader, to_spark
from dejamq_analytics.sources.schema import FINDING_COLUMNS
from in_spark import in_spark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from stories import write_all

STORIES = ("o1", "l1", "o12")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("journal")
    write_all(directory, STORIES)
    return directory


@pytest.fixture(scope="module")
def result(spark: SparkSession, quick: SparkSession, journal: Path) -> AuditResult:
    """What an audit of the stories found, in Spark. DuckDB found it, which is sooner."""
    return in_spark(spark, audit(quick, [str(journal)]))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A name in a database of its own."""
    spark.sql(f"CREATE DATABASE audits LOCATION '{(tmp_path / 'warehouse').as_uri()}'")
    yield "audits.nightly"
    spark.sql("DROP DATABASE audits CASCADE")


def ids(table: DataFrame, name: str = "finding_id") -> list[str]:
    return sorted(row[0] for row in table.select(name).collect())


@pytest.mark.spark
def test_a_second_append_finds_everything_there(spark: SparkSession, result: AuditResult, tmp_path: Path) -> None:
    lake = tmp_path / "a [lake]"
    first = append_findings(result, path=str(lake))
    assert first == {"findings": 3, "anomalies": 1}
    assert append_findings(result, path=str(lake), format="parquet") == {"findings": 0, "anomalies": 0}
    written = reader(spark, [lake]).parquet(to_spark(lake / "findings"))
    assert written.columns == [*FINDING_COLUMNS, "written_at"]
    assert ids(written) == ids(result.findings)


@pytest.mark.spark
def test_a_run_that_ended_half_way_is_completed(spark: SparkSession, result: AuditResult, tmp_path: Path) -> None:
    """Before its first commit it leaves a folder without a table, later some rows, or one of the two tables."""
    (tmp_path / "findings" / "_temporary" / "0").mkdir(parents=True)
    half = AuditResult(result.findings.limit(1), result.anomalies.limit(0), result.verdict)
    assert append_findings(half, path=str(tmp_path))["findings"] == 1
    assert append_findings(result, path=str(tmp_path))["findings"] == 2
    assert ids(spark.read.parquet(str(tmp_path / "findings"))) == ids(result.findings)
    anomalies = spark.read.parquet(str(tmp_path / "anomalies"))
    assert ids(anomalies, "anomaly_id") == ids(result.anomalies, "anomaly_id")


@pytest.mark.spark
def test_a_finding_whose_cause_is_known_now_is_told_once_more(
    spark: SparkSession, result: AuditResult, tmp_path: Path
) -> None:
    before = result.findings.where("cause = 'O1'").withColumn("cause", sf.lit(None).cast("string"))
    append_findings(AuditResult(before, result.anomalies, result.verdict), path=str(tmp_path))
    for appended in (3, 0):
        assert append_findings(result, path=str(tmp_path))["findings"] == appended
    told = spark.read.parquet(str(tmp_path / "findings")).where("cause IS NULL OR cause = 'O1'").orderBy("written_at")
    assert [row.cause for row in told.collect()] == [None, "O1"]
    assert len(set(ids(told))) == 1


@pytest.mark.spark
def test_tables_of_a_catalog_are_made_and_appended_to_as_the_command_says(
    spark: SparkSession, result: AuditResult, table: str
) -> None:
    assert append_findings(result, table=table, format="parquet")["findings"] == 3
    said = list[str]()
    _append(Request([], target=TableTarget("parquet", table=table)), result, said.append)
    assert said == ["0 new findings in audits.nightly_findings", "0 new anomalies in audits.nightly_anomalies"]
    assert ids(spark.table(f"{table}_findings")) == ids(result.findings)


@pytest.mark.parametrize("places", [{}, {"path": "a", "table": "b"}])
def test_a_place_that_is_none_or_two_is_refused(places: dict[str, Any]) -> None:
    nothing: Any = None
    with pytest.raises(BadInput, match="--write-path or --write-table, one of both"):
        append_findings(AuditResult(nothing, nothing, nothing), **places)


def test_an_audit_by_duckdb_is_refused(quick: SparkSession, journal: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="tables are written by Spark: audit with a Spark session"):
        append_findings(audit(quick, [str(journal)]), path=str(tmp_path))
