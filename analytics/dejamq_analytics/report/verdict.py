"""The verdict: what verdict.json says, counted from findings and anomalies."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from dejamq_analytics.frames import Column, DataFrame, Row
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.pipeline import DELIVERED_TWICE
from dejamq_analytics.sources.facts import Counted, Facts, both

Counts = dict[str, int]

LAST_LINES_LOST = "ended without closing at journal level audit"
KEEP_LAST_LINES = (
    'journal_level="forensic" (DEJAMQ_JOURNAL_LEVEL) keeps the last lines of processes that are killed; '
    'at "audit" a kill loses up to 100 ms of them'
)


class Verdict(msgspec.Struct, kw_only=True):
    """verdict.json. ``duplicates`` = the sum of ``causes`` + ``undetermined``; what was asked for is ``expected_*``.

    ``deliveries`` counts handlers entered, ``messages`` unique keys. ``journal_gaps`` are holes in sequence
    numbers, not lines. ``by_group`` has the same counts for each group.
    """

    schema: int = 1
    run_id: str
    verdict: str
    messages: int
    deliveries: int
    duplicates: int
    unfinished_first: int
    expected_duplicates: int
    lost: int
    unseen: int
    out_of_order: int
    causes: Counts
    expected_causes: Counts
    undetermined: int
    undetermined_missing: Counts
    anomalies: Counts
    processes: int
    journal_gaps: int
    by_group: dict[str, dict[str, Any]]


class Totals(NamedTuple):
    """Counts besides findings. ``deliveries`` is by group."""

    messages: int
    deliveries: Counts
    processes: int
    journal_gaps: int


def judge(run_id: str, facts: Facts, findings: DataFrame, anomalies: DataFrame) -> Verdict:
    """Count everything in a few small jobs and weigh it."""
    unfinished = (sf.col("kind") == DELIVERED_TWICE) & sf.col("first.result").isNull()
    grouped = findings.groupBy("consumer_group", "cause", "missing", "expected", unfinished.alias("unfinished"))
    odd = anomalies.groupBy("kind").agg(sf.count("*").alias("n"))
    counted, kinds = both(
        grouped.agg(sf.count("*").alias("n")).collect, lambda: {row.kind: row.n for row in odd.collect()}
    )
    return weigh(run_id, _totals(facts), counted, kinds)


def _totals(facts: Facts) -> Totals:
    counted = facts.counted or _counted(facts)
    whole = facts.processes.agg(
        sf.count("*").alias("processes"), sf.sum(sf.size(holes())).alias("gaps")
    ).first()  # fmt: skip
    assert whole is not None
    return Totals(counted.messages, counted.deliveries, whole.processes, whole.gaps)


def holes() -> Column:
    """Of a process: the holes in its journal. One that was made of logs has a gap before its first line besides."""
    return sf.filter("gaps", lambda gap: gap["last"] > 0)


def _counted(facts: Facts) -> Counted:
    by_group = facts.deliveries.groupBy("consumer_group").agg(sf.count("*").alias("n")).collect()
    return Counted(_messages(facts), {row.consumer_group: row.n for row in by_group})


def _messages(facts: Facts) -> int:
    """Messages that somebody stored or, where no broker kept a journal, that somebody received."""
    keys = facts.appends.where("origin IN ('client', 'tx_final')").select("unique_key")
    keys = keys.unionByName(facts.deliveries.select("unique_key")).where(sf.col("unique_key").isNotNull())
    row = keys.agg(sf.count_distinct("unique_key").alias("n")).first()
    return int(row.n) if row else 0


class OneFinding(NamedTuple):
    """A group of one, beside rows of ``judge``."""

    consumer_group: str | None
    cause: str | None
    missing: str | None
    expected: bool
    unfinished: bool
    n: int = 1


def weigh(run_id: str, totals: Totals, counted: Iterable[Row | OneFinding], kinds: Counts) -> Verdict:
    """Pure arithmetic over grouped counts. Findings win over what cannot be told, that over a clean record."""
    rows = list(counted)
    whole = _summary(rows)
    groups = sorted({row.consumer_group for row in rows if row.consumer_group} | set(totals.deliveries))
    by_group = {
        group: {"deliveries": totals.deliveries.get(group, 0)}
        | _summary([r for r in rows if r.consumer_group == group])
        for group in groups
    }
    found = sum(whole["causes"].values()) + kinds.get("lost", 0) + kinds.get("out_of_order", 0)
    unknown = whole["undetermined"] + totals.journal_gaps
    return Verdict(
        run_id=run_id,
        verdict="findings" if found else "undetermined" if unknown else "clean",
        messages=totals.messages,
        deliveries=sum(totals.deliveries.values()),
        lost=kinds.get("lost", 0),
        unseen=kinds.get("unseen", 0),
        out_of_order=kinds.get("out_of_order", 0),
        anomalies=dict(sorted(kinds.items())),
        processes=totals.processes,
        journal_gaps=totals.journal_gaps,
        by_group=by_group,
        **whole,
    )


def _summary(rows: list[Row | OneFinding]) -> dict[str, Any]:
    """The same numbers for the whole run and for one group, so that the parts add up to the whole."""
    unasked = [row for row in rows if not row.expected]
    asked = [row for row in rows if row.expected]
    return {
        "duplicates": sum(row.n for row in unasked),
        "unfinished_first": sum(row.n for row in unasked if row.unfinished),
        "expected_duplicates": sum(row.n for row in asked),
        "causes": _tally((row.cause, row.n) for row in unasked if row.cause),
        "expected_causes": _tally((row.cause or "undetermined", row.n) for row in asked),
        "undetermined": sum(row.n for row in unasked if not row.cause),
        "undetermined_missing": _tally((row.missing or "unknown", row.n) for row in unasked if not row.cause),
    }


def _tally(items: Iterable[tuple[str, int]]) -> Counts:
    """Sums by name, sorted by name: two runs over the same journals write the same bytes."""
    total: Counts = {}
    for name, count in items:
        total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))


def advice(missing: Counts) -> str:
    """Settings that would supply the missing evidence next time; empty where no setting would."""
    return KEEP_LAST_LINES if any(LAST_LINES_LOST in what for what in missing) else ""
