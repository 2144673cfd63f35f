"""Takes chunk after chunk: what is known now, what of it is complete, and which findings that makes certain.

A finding is told when every journal has been read for ``delay`` beyond it. Time in which nothing grows counts as read.
Until then a line may come, or be read, that changes the finding. Told once, it is never told again.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from dejamq_proto.journal.events import ClockJump

from dejamq_analytics import pipeline
from dejamq_analytics.follow import entries, window
from dejamq_analytics.follow.choice import FollowStep, choose, had_by_two, of_these, with_reached
from dejamq_analytics.follow.chunks import STEP, TORN, ChunkStep
from dejamq_analytics.follow.parts import Part, PartRange
from dejamq_analytics.follow.state import FollowState, Meta
from dejamq_analytics.frames import Column, DataFrame, SparkSession
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules import audiences, identity
from dejamq_analytics.rules.copies import scheduled, transactions
from dejamq_analytics.rules.evidence import timestamp
from dejamq_analytics.rules.history import deliveries
from dejamq_analytics.rules.joins import united
from dejamq_analytics.sources import journals
from dejamq_analytics.sources.facts import Facts, let_go, settled
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, FINDING_COLUMNS, UNREADABLE, contract

SURE = ("lost", "out_of_order", "offset_regression", "two_owners", "two_holders", "inconsistent_offsets",
        "delayed_early", "poll_skip", "precommitted_read")  # fmt: skip
"""Anomalies that no later line can take back, and no dropped one would have."""


class FollowPace(NamedTuple):
    """``delay_us``: how long after a line another one may come that belongs to its story. ``window_us``: how far back
    a message is remembered, before what is told."""

    delay_us: int
    window_us: int


class News(NamedTuple):
    """Everything that one chunk made certain."""

    findings: DataFrame
    anomalies: DataFrame


class Follower:
    """Called with the lines of each chunk; ``tell`` gets every table that was put into ``out``, once."""

    def __init__(self, state: FollowState, out: Path, pace: FollowPace, tell: Callable[[Path], None]) -> None:
        self._state, self._out, self._pace, self._tell = state, out, pace, tell

    @property
    def taken(self) -> int:
        """The number of the last chunk that is in."""
        return self._state.meta.step.number

    def take(self, batch: DataFrame) -> None:
        """One chunk. One that comes again after a crash finds its version written, and is only published."""
        step = _step(batch)
        if step is not None and step.number > self.taken:
            self._advance(batch, step)
        self.publish()

    def publish(self) -> None:
        """Also at the start: a crash may have come between the version and its tables."""
        for path in self._state.publish(self._out):
            self._tell(path)

    def _advance(self, batch: DataFrame, step: ChunkStep) -> None:
        spark, before = batch.sparkSession, self._state.meta
        old, parts = self._state.table(spark, "processes"), self._state.parts.of(spark, before.parts)
        standing = [one for one in [self._state.table(spark, "standing")] if one is not None]
        fresh = settled(
            _steady(_fresh(batch), united([*standing, *(part.context for part in parts)] or [batch.limit(0)]))
        )
        lines = settled(entries.of_a_rule(journals.readable(fresh)))
        processes = settled(window.known(old, journals.processes(fresh), before.floor_us))
        meta = self.meta_after(step, lines)
        parts.append(self._state.parts.write(meta.parts[-1].number, lines))
        kept = _Kept(parts, standing)
        news = self._news(kept, processes, meta)
        shared = news.findings.where(_of_several_groups()).select("second.topic", "consumer_group").distinct().collect()
        meta.shared = sorted({*meta.shared, *((row.topic, row.consumer_group) for row in shared)})
        told = news.findings.select(sf.col("finding_id").alias("id"), "time").unionByName(
            news.anomalies.select(sf.col("anomaly_id").alias("id"), "time")
        )
        meta, old_lines = self._without_old(spark, meta, kept, processes)
        earlier = self._state.table(spark, "told")
        if earlier is not None:
            told = told.unionByName(earlier)
        told = told.where(sf.unix_micros("time") >= meta.told_us)
        self._state.write(meta, {"processes": processes, "told": told} | old_lines | {
            name: table.drop("run_id") for name, table in news._asdict().items() if not table.isEmpty()
        })  # fmt: skip
        let_go(spark)

    def meta_after(self, step: ChunkStep, lines: DataFrame) -> Meta:
        """How far everything is complete with these lines, a part of their own. It never goes back, whatever a clock
        does.
        """
        before = self._state.meta
        row = lines.agg(sf.min("wall_us").alias("oldest"), sf.max("wall_us").alias("newest")).first()
        first, last = (row.oldest or 0, row.newest or 0) if row else (0, 0)
        oldest, newest = min([first, *(part.first_us for part in before.parts)]), max(before.newest_us, last)
        read_us = newest if step.unread_us is None else min(newest, step.unread_us)
        complete = newest if step.quiet else read_us + step.idle_ms * 1000 - self._pace.delay_us
        complete = before.complete_us if complete < oldest else max(before.complete_us, complete)
        return msgspec.structs.replace(
            before, version=before.version + 1, step=step, newest_us=newest, complete_us=complete,
            floor_us=max(before.floor_us, complete - self._pace.window_us),
            parts=[*before.parts, PartRange(2 * before.version + 2, first, last)],
        )  # fmt: skip

    def _without_old(
        self, spark: SparkSession, meta: Meta, kept: "_Kept", processes: DataFrame
    ) -> tuple[Meta, dict[str, DataFrame]]:
        """What the next version keeps: parts that reach beyond the floor, and of older ones what still holds."""
        young = [one for one in meta.parts if one.last_us >= meta.floor_us]
        numbers = {one.number for one in young}
        old = [part.lines for part in kept.parts if part.number not in numbers]
        reached = self._state.table(spark, "reached")
        tables = {"standing": united(kept.standing)} if kept.standing else {}
        if old:
            lines = settled(united([*kept.standing, *old]))
            tables["standing"] = window.kept(lines, processes, meta.floor_us)
            reached = window.reached(reached, deliveries.deliveries(united(old)), meta.floor_us)
        if reached is not None:
            tables["reached"] = reached
        told_us = max(meta.told_us, min([meta.floor_us, *(one.first_us for one in young)]))
        parts = self._state.parts.grouped(spark, young, 2 * meta.version + 1)
        return msgspec.structs.replace(meta, parts=parts, told_us=told_us), tables

    def _news(self, kept: "_Kept", processes: DataFrame, meta: Meta) -> News:
        spark = processes.sparkSession
        now = FollowStep(self._state.meta.complete_us, meta.complete_us, kept.parts[-1].number)
        if now.complete_us == now.before_us:
            return _no_news(processes)
        complete = sf.col("time").between(timestamp(sf.lit(meta.told_us)), timestamp(sf.lit(meta.complete_us)))
        earlier, passed = self._state.table(spark, "told"), self._state.table(spark, "reached")
        facts, mine = _facts(kept, processes, now, meta.shared)
        if _any_twice(facts, now.before_us, now.complete_us):
            findings = settled(pipeline.findings(facts, meta.run_id))
        else:
            findings = _no_news(processes).findings
        findings = _above(mine(findings), passed, "second.", sf.col("identity") == "I1").where(complete)
        anomalies = settled(pipeline.all_anomalies(facts, meta.run_id).where(sf.col("kind").isin(*SURE) & complete))
        anomalies = _above(mine(anomalies), passed, "", sf.col("kind") != "out_of_order")
        return News(_untold(findings, "finding_id", earlier), _untold(anomalies, "anomaly_id", earlier))


class _Kept(NamedTuple):
    """All lines that are kept: in parts, and what still holds of older ones."""

    parts: list[Part]
    standing: list[DataFrame]


def _facts(
    kept: _Kept, processes: DataFrame, now: FollowStep, told: Sequence[tuple[str, str]]
) -> tuple[Facts, Callable[[DataFrame], DataFrame]]:
    """Facts of the lines that the news can rest on, and what leaves out rows that are no news, for which lines may
    lack. The finding that several groups read a topic is made of all lines, and once.
    """
    untold = {
        topic for topic, groups in audiences.readers(processes) if any((topic, one) not in told for one in groups[1:])
    }
    choice = None if had_by_two(kept.parts, sorted(untold)) else choose(kept.parts, kept.standing, now)
    if choice is None:
        every = settled(united([*kept.standing, *(part.lines for part in kept.parts)]))
        return pipeline.facts_of(every, processes), lambda table: table
    facts = pipeline.facts_of(settled(choice.events), processes)
    facts = facts._replace(deliveries=settled(with_reached(facts.deliveries, choice.reached, now)))

    def news(table: DataFrame) -> DataFrame:
        rows = table.where(~_of_several_groups()) if "cause" in table.columns else table
        return of_these(rows, choice.names, now)

    return facts, news


def _of_several_groups() -> Column:
    return sf.coalesce(sf.col("cause") == audiences.SEVERAL_GROUPS, sf.lit(False))


def _no_news(processes: DataFrame) -> News:
    nothing = processes.limit(0).select()
    return News(contract(nothing, FINDING_COLUMNS), contract(nothing, ANOMALY_COLUMNS))


def _step(batch: DataFrame) -> ChunkStep | None:
    """Of the last chunk in the batch."""
    rows = batch.where(sf.col("event") == STEP).select("reason").collect()
    steps = [msgspec.json.decode(row.reason, type=ChunkStep) for row in rows]
    return max(steps, key=lambda step: step.number, default=None)


def _fresh(batch: DataFrame) -> DataFrame:
    """Journal lines as ``journals.read_lines`` has them, with unreadable ones laid to the process they are of."""
    torn = sf.col("event") == TORN
    return batch.where(sf.col("event").isNull() | (sf.col("event") != STEP)).withColumns({
        "file": sf.when(torn, sf.concat(sf.lit("torn-"), "boot_id", sf.lit(".jsonl"))).otherwise(sf.col("file")),
        UNREADABLE: sf.when(torn, sf.lit(TORN)).otherwise(sf.col(UNREADABLE)),
    })  # fmt: skip


def _steady(fresh: DataFrame, before: DataFrame) -> DataFrame:
    """With the times of clocks that jumped put right, in these lines or in earlier ones."""
    jumps = journals.needs.lines(before, ClockJump)
    earlier = jumps.withColumn("_fresh", sf.lit(False))
    both = fresh.withColumn("_fresh", sf.lit(True)).unionByName(earlier, allowMissingColumns=True)
    return journals.steady(both).where("_fresh").drop("_fresh")


def _any_twice(facts: Facts, after_us: int, until_us: int) -> bool:
    """Whether anything came again in what became complete: a few readings of small frames instead of all rules."""
    twice = [
        identity.pairs(facts.deliveries), identity.stored_twice(facts.appends),
        scheduled.scheduled_twice(facts.appends), transactions.committed_twice(facts.appends),
    ]  # fmt: skip
    at = sf.col("second.wall_us")
    return any(not frame.where((at > after_us) & (at <= until_us)).isEmpty() for frame in twice)


def _above(table: DataFrame, passed: DataFrame | None, prefix: str, unless: Column) -> DataFrame:
    """Without rows at places where the group may have been before, with what was dropped: they may say too much."""
    if passed is None:
        return table
    passed = passed.withColumnsRenamed({name: f"passed_{name}" for name in passed.columns})
    same = sf.lit(True)
    for name in window.REACHED:
        column = name if name == "consumer_group" else f"{prefix}{name}"
        same &= sf.col(column) == sf.col(f"passed_{name}")
    there = same & (sf.col(f"{prefix}queue_offset") <= sf.col("passed_queue_offset"))
    return table.join(sf.broadcast(passed), there & ~unless, how="left_anti")


def _untold(table: DataFrame, name: str, earlier: DataFrame | None) -> DataFrame:
    if earlier is None:
        return settled(table)
    return settled(table.join(earlier.select(sf.col("id").alias(name)), name, how="left_anti"))
