"""Writes findings and anomalies. A second run of the same audit replaces what the first one wrote."""

import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet

from dejamq_analytics.frames import DataFrame, in_duckdb
from dejamq_analytics.report.verdict import Verdict
from dejamq_analytics.sources.paths import to_spark

IDS = {"findings": "finding_id", "anomalies": "anomaly_id"}


def write_table(table: DataFrame, out: Path, name: str, run_id: str) -> Path:
    """Parquet in ``out/name/run_id=…``, in order of time: readers of ``out/name`` see ``run_id`` as a column."""
    order, kept = ("time", IDS[name]), table.drop("run_id")
    folder = out / name / f"run_id={run_id}"
    write_parquet(kept.orderBy(*order) if in_duckdb() else kept.coalesce(1).sortWithinPartitions(*order), folder)
    return folder


def write_parquet(table: DataFrame, folder: Path) -> None:
    """One file in this folder, in place of what was there. Its times are Spark's, by either engine."""
    if in_duckdb():
        _write_local(table.toArrow(), folder)
    else:
        table.coalesce(1).write.mode("overwrite").parquet(to_spark(folder))


def _write_local(table: pa.Table, folder: Path) -> None:
    """The file that Spark would write, made aside."""
    aside = folder.with_name(f".{folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    pyarrow.parquet.write_table(table, aside / "part-00000.snappy.parquet", use_deprecated_int96_timestamps=True)
    shutil.rmtree(folder, ignore_errors=True)
    aside.replace(folder)


def write_verdict(verdict: Verdict, out: Path) -> Path:
    """Give the path written. Two spaces of indentation: people read it too."""
    path = out / "verdict.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(verdict), indent=2) + b"\n")
    return path
