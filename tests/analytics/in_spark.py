"""What DuckDB found as Spark's frames: the same rows, sooner."""

from dejamq_analytics import AuditResult
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, FINDING_COLUMNS
from pyspark.sql import DataFrame, SparkSession


def in_spark(spark: SparkSession, found: AuditResult) -> AuditResult:
    """Frames that are computed once."""
    return AuditResult(
        _framed(spark, found.findings, FINDING_COLUMNS), _framed(spark, found.anomalies, ANOMALY_COLUMNS), found.verdict
    )


def _framed(spark: SparkSession, table: DataFrame, columns: dict[str, str]) -> DataFrame:
    rows, schema = table.toArrow().combine_chunks(), ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return spark.createDataFrame(rows if rows.num_rows else [], schema).localCheckpoint()
