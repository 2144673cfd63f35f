"""Audits many runs as one history, for trials: for most of the rules, many little runs are as much work as one.

Each run's folder gets the ``verdict.json``, ``findings/`` and ``anomalies/`` that an audit of its journals alone would
give; only the ids of findings are others. Stores are not read: what a journal loses is in question here, not what a
commit log still has of it.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet

from dejamq_analytics import pipeline
from dejamq_analytics.frames import Column, SparkSession
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.report.verdict import OneFinding, Totals, weigh
from dejamq_analytics.report.write import write_verdict
from dejamq_analytics.sources import joined_runs
from dejamq_analytics.sources.facts import Facts, let_go

AT_ONCE_BYTES = 48 << 20
"""Journals of one audit: about a hundred runs. It keeps what it read of them in memory."""
TIME_COLUMNS = {"time", "delivered_at"}
JOINT = "joint"
Rows = list[dict[str, Any]]


class AuditedRun(NamedTuple):
    """Where a run's journals are, and where its audit goes."""

    journals: Path
    folder: Path

    def files(self) -> list[Path]:
        return sorted(self.journals.glob("*.jsonl"))


def audit_runs(session: SparkSession, runs: Sequence[AuditedRun]) -> None:
    """Audit all of them, as many at once as fit. ``session`` is Spark's, or DuckDB's in its block of ``using``."""
    for several in portions(runs):
        with tempfile.TemporaryDirectory(prefix="dejamq-trial-") as temporary:
            joined_runs.join([run.files() for run in several], Path(temporary))
            _audit(session, several, temporary)
        let_go(session)


def portions(runs: Sequence[AuditedRun], at_once_bytes: int = AT_ONCE_BYTES) -> Iterator[list[AuditedRun]]:
    """The runs in their order, in lists whose journals are together no larger than that, or one run."""
    some: list[AuditedRun] = []
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


def _audit(session: SparkSession, runs: Sequence[AuditedRun], journals: str) -> None:
    facts = pipeline.gather(session, [journals])
    findings = pipeline.findings(facts, JOINT).toArrow()
    anomalies = pipeline.all_anomalies(facts, JOINT).toArrow()
    found, others, totals = _by_run(findings), _by_run(anomalies), _totals(facts)
    for number, run in enumerate(runs):
        rows, kinds = found.pop(number, []), others.pop(number, [])
        _write(rows, findings.schema, run.folder / "findings")
        _write(kinds, anomalies.schema, run.folder / "anomalies")
        of_kinds = Counter(row["kind"] for row in kinds)
        write_verdict(weigh(run.folder.name, totals[number], map(_counted, rows), of_kinds), run.folder)


def _by_run(table: pa.Table) -> dict[int, Rows]:
    """Each run's rows as the run's own audit would have them. Findings are few beside what they were found in."""
    found = defaultdict[int, Rows](list)
    for row in table.to_pylist():
        text = msgspec.json.encode(row).decode()
        found[joined_runs.run_of(text)].append(_timed(msgspec.json.decode(joined_runs.plain(text))))
    return found


def _write(rows: Rows, schema: pa.Schema, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema), folder / "run.parquet")


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    """With times, which are UTC, for their texts."""
    inner = {key: _timed(value) for key, value in row.items() if isinstance(value, dict)}
    times = {key: datetime.fromisoformat(row[key]).replace(tzinfo=UTC) for key in TIME_COLUMNS & row.keys()}
    return row | inner | times


def _counted(finding: dict[str, Any]) -> OneFinding:
    unfinished = finding["kind"] == pipeline.DELIVERED_TWICE and finding["first"]["result"] is None
    return OneFinding(
        finding["consumer_group"], finding["cause"], finding["missing"], finding["expected"], unfinished
    )  # fmt: skip


def _totals(facts: Facts) -> defaultdict[int, Totals]:
    """Counts besides findings."""
    found = defaultdict[int, Totals](lambda: Totals(0, {}, 0, 0))
    whole = facts.processes.groupBy(_run("process")).agg(
        sf.count("*").alias("n"), sf.sum(sf.size("gaps")).alias("gaps")
    )
    for row in whole.collect():
        found[row.run] = Totals(0, {}, row.n, row.gaps)
    for row in facts.deliveries.groupBy("consumer_group").agg(sf.count("*").alias("n")).collect():
        found[joined_runs.run_of(row.consumer_group)].deliveries[joined_runs.plain(row.consumer_group)] = row.n
    keys = facts.appends.where("origin IN ('client', 'tx_final')").select("broker_name", "unique_key")
    keys = keys.unionByName(facts.deliveries.select("broker_name", "unique_key"))
    for row in keys.groupBy(_run("broker_name")).agg(sf.count_distinct("unique_key").alias("n")).collect():
        found[row.run] = found[row.run]._replace(messages=row.n)
    return found


def _run(column: str) -> Column:
    return sf.regexp_extract(column, joined_runs.MARK.pattern, 1).cast("int").alias("run")
