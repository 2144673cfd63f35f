"""Reads the commit logs of store directories, ours or a real RocketMQ's, as a DataFrame."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, cast

import msgspec

from dejamq_analytics.frames import DataFrame, SparkSession, in_duckdb
from dejamq_analytics.sources.commit_log import RECORD_SCHEMA, LogFile, log_files, rows_of
from dejamq_analytics.sources.paths import BadInput


def check_business_key(business_key: str | None, stores: Sequence[str]) -> None:
    """Refuse the name of a property where there is nothing to read it from: journals have no properties."""
    if business_key and not stores:
        raise BadInput(
            "--business-key reads a property of stored messages: name --store too. What clients wrote by their setting "
            "journal_business_key counts without it"
        )


def read_records(spark: SparkSession, stores: Sequence[str], business_key: str | None = None) -> DataFrame:
    """All records of these stores, in ``RECORD_SCHEMA``. Raises BadInput for a directory that is no store."""
    return read_logs(spark, stores, business_key).where("topic IS NOT NULL")


def read_logs(spark: SparkSession, stores: Sequence[str], business_key: str | None = None) -> DataFrame:
    """All records, and a row for each file that is damaged. Raises BadInput for a directory that is no store."""
    files = [LogFile(str(store), str(file)) for store in stores for file in log_files(str(store))]
    if in_duckdb():
        columns = dict(column.split(" ") for column in RECORD_SCHEMA.split(", "))
        with NamedTemporaryFile(prefix="dejamq-audit-", suffix=".jsonl") as lines:
            for file in files:
                lines.writelines(msgspec.json.encode(row) + b"\n" for row in rows_of(file, business_key))
            lines.flush()
            read: DataFrame = cast(Any, spark).read_json(Path(lines.name), columns)
        return read
    if not files:
        return spark.createDataFrame([], RECORD_SCHEMA)
    from dejamq_analytics.sources.commit_log_source import load

    return load(spark, files, business_key)
