"""Audits many runs as one history, for trials: a run of its own for each would cost Spark minutes of planning.

Each run's folder gets the ``verdict.json``, ``findings/`` and ``anomalies/`` that an audit of its journals alone would
give; only the ids of findings are others. Stores are not read: what a journal loses is in question here, not what a
commit log still has of it.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema

from dejamq_analytics import joined, pipeline
from dejamq_analytics.facts import Facts
from dejamq_analytics.verdict import Totals, weigh
from dejamq_analytics.write import write_verdict

AT_ONCE_BYTES = 48 << 20
"""Journals of one audit: about a hundred runs. Spark keeps what it read of them in memory."""
TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
TIME_COLUMNS = {"time", "delivered_at"}
JOINT = "joint"
Rows = list[dict[str, Any]]


class Run(NamedTuple):
    """Where a run's journals are, and where its audit goes."""

    journals: Path
    folder: Path

    def files(self) -> list[Path]:
        return sorted(self.journals.glob("*.jsonl"))


def audit_runs(spark: SparkSession, runs: Sequence[Run]) -> None:
    """Audit all of them, as many at once as fit."""
    for several in portions(runs):
        with tempfile.TemporaryDirectory(prefix="dejamq-trial-") as temporary:
            joined.join([run.files() for run in several], Path(temporary))
            _audit(spark, several, temporary)
        spark.catalog.clearCache()


def portions(runs: Sequence[Run], at_once_bytes: int = AT_ONCE_BYTES) -> Iterator[list[Run]]:
    """The runs in their order, in lists whose journals are together no larger than that, or one run."""
    some: list[Run] = []
    total = 0
    for run in runs:
        size = sum(file.stat().st_size for file in run.files())
        if some and total + size > at_once_bytes:
            yield some
            some, total = [], 0
        some.append(run)
        total += size
    if some:
        yield some


def _audit(spark: SparkSession, runs: Sequence[Run], journals: str) -> None:
    facts = pipeline.gather(spark, [journals], every_message=True)
    findings, anomalies = pipeline.findings(facts, JOINT), pipeline.all_anomalies(facts, JOINT)
    found, others, totals = _by_run(findings), _by_run(anomalies), _totals(facts)
    for number, run in enumerate(runs):
        rows, kinds = found.pop(number, []), others.pop(number, [])
        _write(rows, findings, run.folder / "findings")
        _write(kinds, anomalies, run.folder / "anomalies")
        of_kinds = Counter(row["kind"] for row in kinds)
        write_verdict(weigh(run.folder.name, totals[number], map(_counted, rows), of_kinds), run.folder)


def _by_run(table: DataFrame) -> dict[int, Rows]:
    """Each run's rows as the run's own audit would have them. Findings are few beside what they were found in."""
    found = defaultdict[int, Rows](list)
    for row in table.select(sf.to_json(sf.struct(*table.columns), TIMES).alias("text")).toLocalIterator():
        found[joined.run_of(row.text)].append(msgspec.json.decode(joined.plain(row.text)))
    return found


def _write(rows: Rows, like: DataFrame, folder: Path) -> None:
    """Parquet with the columns of ``like``."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([_timed(row) for row in rows], to_arrow_schema(like.schema, timezone="UTC"))
    pyarrow.parquet.write_table(table, folder / "run.parquet")


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    """With times for their texts."""
    inner = {key: _timed(value) for key, value in row.items() if isinstance(value, dict)}
    return row | inner | {key: datetime.fromisoformat(row[key]) for key in TIME_COLUMNS & row.keys()}


def _counted(finding: dict[str, Any]) -> Row:
    """A group of one, as ``weigh`` takes them."""
    unfinished = finding["kind"] == pipeline.DELIVERED_TWICE and "result" not in finding["first"]
    names = ("consumer_group", "cause", "missing", "expected")
    return Row(**{name: finding.get(name) for name in names}, unfinished=unfinished, n=1)


def _totals(facts: Facts) -> defaultdict[int, Totals]:
    """What is counted besides findings."""
    found = defaultdict[int, Totals](lambda: Totals(0, {}, 0, 0))
    whole = facts.processes.groupBy(_run("process")).agg(
        sf.count("*").alias("n"), sf.sum(sf.size("gaps")).alias("gaps")
    )
    for row in whole.collect():
        found[row.run] = Totals(0, {}, row.n, row.gaps)
    for row in facts.deliveries.groupBy("consumer_group").agg(sf.count("*").alias("n")).collect():
        found[joined.run_of(row.consumer_group)].deliveries[joined.plain(row.consumer_group)] = row.n
    keys = facts.appends.where("origin IN ('client', 'tx_final')").select("broker_name", "unique_key")
    keys = keys.unionByName(facts.deliveries.select("broker_name", "unique_key"))
    for row in keys.groupBy(_run("broker_name")).agg(sf.count_distinct("unique_key").alias("n")).collect():
        found[row.run] = found[row.run]._replace(messages=row.n)
    return found


def _run(column: str) -> Column:
    return sf.regexp_extract(column, joined.MARK.pattern, 1).cast("int").alias("run")
