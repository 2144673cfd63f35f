"""Writes findings and anomalies. A second run of the same audit replaces what the first one wrote."""

from pathlib import Path

import msgspec
from pyspark.sql import DataFrame

from dejamq_analytics.verdict import Verdict


def write_table(table: DataFrame, out: str, name: str, run_id: str) -> str:
    """Parquet in ``out/name/run_id=…``: readers of ``out/name`` see ``run_id`` as a column."""
    folder = f"{out.rstrip('/')}/{name}/run_id={run_id}"
    table.drop("run_id").coalesce(1).write.mode("overwrite").parquet(folder)
    return folder


def write_verdict(verdict: Verdict, out: Path) -> Path:
    """Give the path written. Two spaces of indentation: people read it too."""
    path = out / "verdict.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(verdict), indent=2) + b"\n")
    return path
