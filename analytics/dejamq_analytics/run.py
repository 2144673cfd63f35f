"""A whole audit run: session, audit, what is written, and the exit status. It speaks only through ``say``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from dejamq_analytics import AuditResult, log_audit, pipeline, since
from dejamq_analytics.digest import digest
from dejamq_analytics.facts import Facts, both, settled
from dejamq_analytics.groups import check_group
from dejamq_analytics.interrupts import stopped
from dejamq_analytics.outlook import little_for_java
from dejamq_analytics.read import BadInput, check_journals
from dejamq_analytics.report import render
from dejamq_analytics.session import for_journals, make_session
from dejamq_analytics.since import Chain
from dejamq_analytics.verdict import Verdict, judge
from dejamq_analytics.write import write_table, write_verdict

CLEAN, FOUND, BAD_USE, CANNOT_TELL = 0, 1, 2, 3
FAIL_ON = ("duplicates", "lost", "out_of_order", "undetermined")
Untold = Callable[[DataFrame, str], DataFrame]


@dataclass(frozen=True)
class Request:
    """What to audit and where to put the answer. ``out`` None writes nothing."""

    journals: Sequence[str]
    stores: Sequence[str] = ()
    out: Path | None = None
    business_key: str | None = None
    group: str | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    fail_on: Sequence[str] = FAIL_ON
    since: str | None = None

    @property
    def asked(self) -> dict[str, str]:
        """What limits the findings: runs that were asked different things do not continue one another."""
        named = {"group": self.group, "business_key": self.business_key, "stores": " ".join(sorted(self.stores))}
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


def _of_logs(request: Request, say: Callable[[str], None]) -> Verdict:
    """Commit logs alone: what is stored twice, and what nobody can know without journals."""
    with session_for(request) as spark:
        result = log_audit.conclude(log_audit.gather(spark, request.stores, request.business_key), request.stores)
        if request.out is not None:
            _write(request.out, result, log_audit.nothing_else(spark), None, say)
    return result.verdict


def _of_journals(request: Request, say: Callable[[str], None]) -> Verdict:
    with session_for(request) as spark, for_journals(spark, request.stores):
        facts = pipeline.gather(spark, request.journals, request.stores, request.business_key, request.group)
        if request.group is not None:
            check_group(spark, request.journals, facts.events, request.group)
        chain = since.plan(request.out, request.since, request.asked, since.extents_of(facts.processes))
        result = conclude(facts, chain.run.run_id, _untold(request.out, chain))
        _tell_gaps(facts, say)
        if request.out is not None:
            _write(request.out, result, facts, chain.run, say)
    return result.verdict


def _untold(out: Path | None, chain: Chain) -> Untold:
    if out is None or not chain.earlier:
        return lambda table, name: table
    return lambda table, name: since.untold(table, name, out, chain.earlier)


def exit_status(verdict: Verdict, fail_on: Sequence[str]) -> int:
    """What was found wins over what cannot be told; ``fail_on`` without a word means that nobody minds it.

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


@contextmanager
def session_for(request: Request) -> Iterator[SparkSession]:
    """Of our own, unless this process already has one: that is its owner's to stop."""
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
    for row in facts.processes.where("size(gaps) > 0").orderBy("process").collect():
        holes = ", ".join(f"{gap.first}-{gap.last}" for gap in row.gaps[:3]) + (", …" if len(row.gaps) > 3 else "")
        torn = f"; {row.torn} of its lines cannot be read" if row.torn else ""
        say(f"journal of {row.process or row.boot_id}: lines {holes} are missing{torn}; what happened there is unknown")


def _write(out: Path, result: AuditResult, facts: Facts, made: since.Run | None, say: Callable[[str], None]) -> None:
    """The verdict comes last: whoever sees verdict.json finds everything else there as well."""
    write_table(result.findings, out.resolve().as_uri(), "findings", result.verdict.run_id)
    write_table(result.anomalies, out.resolve().as_uri(), "anomalies", result.verdict.run_id)
    if made is not None:
        since.write_run(made, out)
    report = out / "report.html"
    report.write_text(render(result.verdict, digest(result.findings, result.anomalies, facts)), encoding="utf-8")
    for path in (write_verdict(result.verdict, out), out / "findings", out / "anomalies", report):
        say(str(path))
