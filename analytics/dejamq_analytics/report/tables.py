"""Findings appended to tables of any Spark format, each once: Delta, Iceberg, Parquet, ….

A row that the table has in the same words is left out. So a run that is repeated, or goes on after a crash, appends
what is not there yet. That needs nothing of the format but reading what was written. Two audits that write to one table
at the same time do not see one another: let one end first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dejamq_analytics.frames import SPARK, DataFrame, SparkSession, using
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.report.result import AuditResult
from dejamq_analytics.sources.paths import BadInput, reader, to_spark

SAME = {"findings": ("finding_id", "cause", "expected"), "anomalies": ("anomaly_id",)}
"""Columns by which two rows say the same. A finding that was undetermined and is certain now is told once more."""
EMPTY = ("UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND")
"""Spark's words for a folder without a table, as a run leaves it that ended before its first commit."""
PARQUET = "parquet"


@dataclass(frozen=True)
class TableTarget:
    """Where findings and anomalies go: to ``PATH/findings`` and ``PATH/anomalies``, or ``TABLE_findings``, ….

    ``format`` is Spark's name of it; without one a path is Parquet, and a table is what its catalog makes.
    ``options`` are the format's own, for writing.
    """

    format: str | None = None
    path: str | None = None
    table: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raises BadInput for one that says no place, or two."""
        if (self.path is None) == (self.table is None):
            raise BadInput("say where findings are written: --write-path or --write-table, one of both")

    def place(self, name: str) -> str:
        """The folder, as Spark takes it, or the table of this name."""
        if self.path is None:
            return f"{self.table}_{name}"
        return f"{to_spark(self.path).rstrip('/')}/{name}"


def append(result: AuditResult, target: TableTarget) -> dict[str, int]:
    """Append what is not there yet. Gives the number of new rows by table.

    Raises BadInput for an audit by DuckDB, which knows no such formats, and for a target that says no place.
    """
    target.check()
    if getattr(result.findings.sparkSession, "engine", SPARK) != SPARK:
        raise BadInput("tables are written by Spark: audit with a Spark session, or --engine spark")
    tables = {"findings": result.findings, "anomalies": result.anomalies}
    with using(SPARK):
        return {name: _appended(table, target, name) for name, table in tables.items()}


def _appended(table: DataFrame, target: TableTarget, name: str) -> int:
    there = _there(table.sparkSession, target, name)
    fresh = table if there is None else _untold(table, there, SAME[name])
    count = fresh.count()
    if count or there is None:
        _write(fresh.withColumn("written_at", sf.current_timestamp()), target, name)
    return count


def _untold(table: DataFrame, there: DataFrame, words: tuple[str, ...]) -> DataFrame:
    told = there.select(*[sf.col(word).alias(f"told_{word}") for word in words])
    same = sf.lit(True)
    for word in words:
        same &= sf.col(word).eqNullSafe(sf.col(f"told_{word}"))
    return table.join(told, same, how="left_anti")


def _there(spark: SparkSession, target: TableTarget, name: str) -> DataFrame | None:
    """What was written before; None where nothing was."""
    if target.table is not None:
        table = target.place(name)
        return spark.table(table) if spark.catalog.tableExists(table) else None
    from pyspark.errors import AnalysisException

    try:
        return reader(spark, [str(target.path)]).format(target.format or PARQUET).load(target.place(name))
    except AnalysisException as error:
        if error.getCondition() in EMPTY:
            return None
        raise


def _write(table: DataFrame, target: TableTarget, name: str) -> None:
    writer = table.coalesce(1).write.mode("append").options(**target.options)
    if target.format or target.path:
        writer = writer.format(target.format or PARQUET)
    if target.path:
        writer.save(target.place(name))
    else:
        writer.saveAsTable(target.place(name))
