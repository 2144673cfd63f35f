"""A whole audit run: session, audit, what is written, and the exit status. It speaks only through ``say``."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dejamq_analytics import log_audit, pipeline, since
from dejamq_analytics.evidence import sources
from dejamq_analytics.evidence.translate import Evidence, Reading, translate
from dejamq_analytics.frames import DUCKDB, SPARK, DataFrame, SparkSession, in_duckdb, using
from dejamq_analytics.groups import check_group
from dejamq_analytics.report.digest import digest
from dejamq_analytics.report.evidence_scope import EvidenceScope, with_evidence
from dejamq_analytics.report.page import render
from dejamq_analytics.report.result import AuditResult
from dejamq_analytics.report.tables import TableTarget, append
from dejamq_analytics.report.verdict import Verdict, holes, judge
from dejamq_analytics.report.write import write_table, write_verdict
from dejamq_analytics.since import RunChain
from dejamq_analytics.sources.commit_log import log_bytes
from dejamq_analytics.sources.facts import Facts, both, settled
from dejamq_analytics.sources.journals import check_journals, local_bytes
from dejamq_analytics.sources.paths import BadInput, local_path
from dejamq_analytics.sources.stores import check_business_key
from dejamq_analytics.sources.workload_estimate import fits_duckdb, little_for_java
from dejamq_analytics.survey import chunks

if TYPE_CHECKING:
    from dejamq_analytics.survey.survey import Surveyed

SMALL_LOG_BYTES = 256 << 20
"""Commit logs of less are DuckDB's by default. Most of a young log is not written yet."""
CLEAN, FOUND, BAD_USE, CANNOT_TELL = 0, 1, 2, 3
FAIL_ON = ("duplicates", "lost", "out_of_order", "undetermined")
Untold = Callable[[DataFrame, str], DataFrame]
Beside = Callable[[Path, AuditResult, Facts, "Request"], None]


@dataclass(frozen=True)
class Request:
    """The journals to audit and the place for the answer. ``out`` None writes nothing."""

    journals: Sequence[str]
    stores: Sequence[str] = ()
    out: Path | None = None
    business_key: str | None = None
    group: str | None = None
    engine: str = "auto"
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    fail_on: Sequence[str] = FAIL_ON
    since: str | None = None
    reading: Reading | None = None
    """Logs, traces and other evidence of processes that have no journal."""
    made: Evidence | None = None
    """What came of the reading: its journals and stores are among the others then."""
    beside: Beside | None = None
    """Writes more into ``out``, before the verdict."""
    target: TableTarget | None = None
    """Tables to which what is new is appended."""

    @property
    def asked(self) -> dict[str, str]:
        """Limits of the findings: runs with different limits do not continue one another."""
        named = {"group": self.group, "business_key": self.business_key, "stores": shlex.join(sorted(self.stores))}
        return {name: value for name, value in named.items() if value}


def conclude(facts: Facts, run_id: str | None = None, untold: Untold = lambda table, name: table) -> AuditResult:
    """Apply all rules to what was gathered; ``untold`` leaves out of a table what earlier runs have told."""
    run = run_id or since.plan(None, None, {}, since.extents_of(facts.processes)).run.run_id
    findings, anomalies = both(
        lambda: settled(untold(pipeline.findings(facts, run), "findings")),
        lambda: settled(untold(pipeline.all_anomalies(facts, run), "anomalies")),
    )
    return AuditResult(findings, anomalies, judge(run, facts, findings, anomalies))


def run_audit(request: Request, say: Callable[[str], None]) -> tuple[int, Verdict]:
    """Audit, write ``verdict.json``, ``findings/``, ``anomalies/`` and ``report.html``, return the exit status.

    Raises BadInput for what cannot be audited and NoJava when Spark cannot start.
    """
    if request.reading is not None:
        with TemporaryDirectory(prefix="dejamq-audit-") as folder:
            return run_audit(_translated(request, request.reading, Path(folder), say), say)
    check_business_key(request.business_key, request.stores)
    if request.target is not None:
        request.target.check()
    alone = bool(request.stores) and not request.journals
    if not alone:
        check_journals(request.journals)
    elif request.since or request.group:
        raise BadInput("--since and --group are about journals: leave them out, or name a journal directory")
    if request.out is not None:
        request.out.mkdir(parents=True, exist_ok=True)
        (request.out / "verdict.json").unlink(missing_ok=True)  # an earlier run's must not pass for this one's
    verdict = _of_logs(request, say) if alone else _of_journals(request, say)
    return exit_status(verdict, request.fail_on), verdict


def _translated(request: Request, reading: Reading, folder: Path, say: Callable[[str], None]) -> Request:
    """With the journals that were made of the evidence. What each file was taken for is said."""
    made = translate(replace(reading, journals=request.journals), folder)
    for line in (*made.said, *(f"to be surer: {lack}" for lack in made.lacking)):
        say(line)
    return replace(request, journals=[*request.journals, made.journals], stores=made.stores, reading=None, made=made)


def _of_logs(request: Request, say: Callable[[str], None]) -> Verdict:
    """Commit logs alone: what is stored twice, and what nobody can know without journals."""
    with session_for(request) as spark:
        result = log_audit.conclude(log_audit.gather(spark, request.stores, request.business_key), request.stores)
        _append(request, result, say)
        if request.out is not None:
            _write(request, request.out, result, log_audit.nothing_else(spark), None, say)
    return result.verdict


def _of_journals(request: Request, say: Callable[[str], None]) -> Verdict:
    with (
        _surveyed_here(request) as here, session_for(request, left=here and here.texts.size()) as spark,
        settings_for(spark, request.stores),
    ):  # fmt: skip
        taken = here or pipeline.surveyed(spark, request.journals, request.stores, request.group)
        with _for_rules(spark, request, taken) as session:
            facts = pipeline.gather(
                session, request.journals, request.stores, request.business_key, request.group, taken
            )  # fmt: skip
            if request.group is not None:
                check_group(spark, request.journals, facts.events, request.group)
            return _concluded(request, facts, say)


def _concluded(request: Request, facts: Facts, say: Callable[[str], None]) -> Verdict:
    chain = since.plan(request.out, request.since, request.asked, since.extents_of(facts.processes))
    result = conclude(facts, chain.run.run_id, _untold(request.out, chain))
    if request.made is not None:
        result = _with_sources(facts.events.sparkSession, result, request.made)
    _tell_gaps(facts, say)
    _append(request, result, say)
    if request.out is not None:
        _write(request, request.out, result, facts, chain.run, say)
    return result.verdict


@contextmanager
def _surveyed_here(request: Request) -> Iterator["Surveyed | None"]:
    """The lines of local journals that findings can rest on, read without Spark. None where DuckDB takes all lines, and
    where Spark was asked for or reads from elsewhere.
    """
    as_whole = engine_of(request) == DUCKDB or request.stores or not _may_be_duckdb(request)
    parts = None if as_whole else chunks.cut(request.journals)
    if parts is None:
        yield None
        return
    from dejamq_analytics.survey.processes import in_processes
    from dejamq_analytics.survey.survey import survey

    with TemporaryDirectory(prefix="dejamq-audit-") as folder:
        with in_processes(Path(folder), parts, request.group) as read:
            taken = survey(read, request.group)
        yield taken


@contextmanager
def _for_rules(spark: SparkSession, request: Request, taken: "Surveyed | None") -> Iterator[SparkSession]:
    """DuckDB for the little that a survey took of much, unless Spark was asked for; else the session that there is."""
    if in_duckdb() or taken is None or not _may_be_duckdb(request) or not fits_duckdb(taken.texts.size()):
        yield spark
        return
    with _duckdb() as session:
        yield session


def _with_sources(spark: SparkSession, result: AuditResult, made: Evidence) -> AuditResult:
    """Each line of evidence with the file and line that it comes from, and the verdict with what was read."""
    told = settled(sources.named(spark, result.findings, made.sources))
    scope = EvidenceScope(read=made.said, lacking=made.lacking)
    return result._replace(findings=told, verdict=with_evidence(result.verdict, scope, blind=made.blind))


def _untold(out: Path | None, chain: RunChain) -> Untold:
    if out is None or not chain.earlier:
        return lambda table, name: table
    return lambda table, name: since.untold(table, name, out, chain.earlier)


def exit_status(verdict: Verdict, fail_on: Sequence[str]) -> int:
    """A finding wins over an undetermined one. Kinds that ``fail_on`` does not name do not fail the run.

    0 clean, 1 found, 3 cannot tell. 2 is bad use and not decided here.
    """
    unexplained = verdict.undetermined if "undetermined" not in fail_on else 0
    found = {
        "duplicates": sum(verdict.causes.values()) + unexplained,
        "lost": verdict.lost,
        "out_of_order": verdict.out_of_order,
    }
    if any(found[name] for name in fail_on if name in found):
        return FOUND
    unknown = verdict.undetermined or verdict.journal_gaps
    return CANNOT_TELL if unknown and "undetermined" in fail_on else CLEAN


def engine_of(request: Request, *, bounded: bool = False, left: int | None = None) -> str:
    """DuckDB for what is here and fits in memory, where it is installed; else Spark, and where Spark is told how.

    ``bounded``: only a part of the journals is kept at a time, so their size says nothing. ``left``: so many bytes of
    them are to be judged. Raises BadInput for what the named engine cannot do.
    """
    spark_only = _only_for_spark(request)
    far = [name for name in request.journals if local_path(name) is None]
    if request.engine == DUCKDB:
        if spark_only or far:
            raise BadInput(f"--engine duckdb reads local journals and has no --{', --'.join(spark_only or ['master'])}")
        if not has_duckdb():
            raise BadInput("--engine duckdb needs DuckDB: pip install 'dejamq[analytics]'")
        return DUCKDB
    if far or not _may_be_duckdb(request):
        return SPARK
    if bounded:
        return DUCKDB
    size = local_bytes(request.journals, elsewhere=0) if left is None else left
    fits = fits_duckdb(size) and log_bytes(request.stores) < SMALL_LOG_BYTES
    return DUCKDB if fits else SPARK


def _only_for_spark(request: Request) -> list[str]:
    tables = "write-path" if request.target and request.target.path else "write-table"
    return [name for name in ("master", "conf") if getattr(request, name)] + ([tables] if request.target else [])


def _may_be_duckdb(request: Request) -> bool:
    """Whether nobody asked for Spark, and DuckDB is installed."""
    asked = request.engine == SPARK or _only_for_spark(request) or "SPARK_ENV_LOADED" in os.environ
    return not asked and has_duckdb()


def has_duckdb() -> bool:
    """Whether DuckDB is installed, without importing it."""
    return find_spec("duckdb") is not None


@contextmanager
def session_for(request: Request, *, bounded: bool = False, left: int | None = None) -> Iterator[SparkSession]:
    """A database in this process, or Spark: a session of our own, unless this process already has one."""
    if engine_of(request, bounded=bounded, left=left) == SPARK:
        with spark_for(request) as spark:
            yield spark
        return
    with _duckdb() as session:
        yield session


@contextmanager
def _duckdb() -> Iterator[SparkSession]:
    from dejamq_analytics.duck.session import DuckSession

    with closing(DuckSession()) as session, using(DUCKDB):
        yield session  # type: ignore[misc]  # it has what the audit asks a session for


def settings_for(spark: SparkSession, stores: Sequence[str]) -> AbstractContextManager[None]:
    """Settings of Spark for many small steps."""
    if in_duckdb():
        return nullcontext()
    from dejamq_analytics.spark.session import for_journals

    return for_journals(spark, stores)


@contextmanager
def spark_for(request: Request) -> Iterator[SparkSession]:
    """A session that this process already has is its owner's to stop."""
    from pyspark.sql import SparkSession

    from dejamq_analytics.spark.interrupts import stopped
    from dejamq_analytics.spark.session import make_session

    existing = SparkSession.getActiveSession()
    spark = existing or make_session(
        request.master, request.conf, quick=little_for_java(request.journals, request.stores)
    )
    if existing is not None:
        yield spark
        return
    with stopped(spark):
        yield spark


def _tell_gaps(facts: Facts, say: Callable[[str], None]) -> None:
    """One line for each process whose journal has holes, in the order of their names."""
    incomplete = facts.processes.withColumn("gaps", holes()).where("size(gaps) > 0")
    for row in incomplete.orderBy("process").collect():
        missing = ", ".join(f"{gap.first}-{gap.last}" for gap in row.gaps[:3]) + (", …" if len(row.gaps) > 3 else "")
        torn = f"; {row.torn} of its lines cannot be read" if row.torn else ""
        whose = row.process or row.boot_id
        say(f"journal of {whose}: lines {missing} are missing{torn}; what happened there is unknown")


def _append(request: Request, result: AuditResult, say: Callable[[str], None]) -> None:
    """To the tables, before anything else is written: who sees verdict.json finds everything."""
    if request.target is not None:
        for name, count in append(result, request.target).items():
            say(f"{count} new {name} in {request.target.place(name)}")


def _write(
    request: Request, out: Path, result: AuditResult, facts: Facts, made: since.RecordedRun | None,
    say: Callable[[str], None],
) -> None:  # fmt: skip
    """Write the verdict last: a reader that sees verdict.json finds everything else there as well."""
    write_table(result.findings, out, "findings", result.verdict.run_id)
    write_table(result.anomalies, out, "anomalies", result.verdict.run_id)
    if made is not None:
        since.write_run(made, out)
    report = out / "report.html"
    told = digest(result.findings, result.anomalies, facts)
    lines = {(line.boot_id, line.seq) for row in told.examples for line in row.evidence or []}
    moments = sources.moments(request.made.sources, lines) if request.made is not None else {}
    report.write_text(render(result.verdict, told, moments), encoding="utf-8")
    if request.beside is not None:
        request.beside(out, result, facts, request)
    for path in (write_verdict(result.verdict, out), out / "findings", out / "anomalies", report):
        say(str(path))
