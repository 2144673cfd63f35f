"""Takes chunk after chunk: what is known now, what of it is complete, and which findings that makes certain.

A finding is told when every journal has been read for ``delay`` beyond it, or nothing grows any more: until then a line
may come, or be read, that changes what is said of it. Told once, it is never told again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from dejamq_proto.events import ClockJump
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from dejamq_analytics import pipeline, read
from dejamq_analytics.facts import Facts, settled
from dejamq_analytics.follow import window
from dejamq_analytics.follow.chunks import STEP, TORN, Step
from dejamq_analytics.follow.state import Meta, State
from dejamq_analytics.rules import identity, scheduled, transactions
from dejamq_analytics.rules.evidence import timestamp
from dejamq_analytics.schema import ANOMALY_COLUMNS, FINDING_COLUMNS, UNREADABLE, tag_of

SURE = ("lost", "out_of_order", "offset_regression", "two_owners", "two_holders", "inconsistent_offsets",
        "delayed_early", "poll_skip", "precommitted_read")  # fmt: skip
"""Anomalies that no later line can take back, and no dropped one would have."""


class Pace(NamedTuple):
    """``delay_us``: how long after a line another one may come that belongs to its story. ``window_us``: how far back
    a message is remembered, before what is told."""

    delay_us: int
    window_us: int


class News(NamedTuple):
    """What one chunk made certain."""

    findings: DataFrame
    anomalies: DataFrame


class NotTaken(Exception):
    """A batch was not taken."""


class Follower:
    """Called by Spark with each micro-batch; ``tell`` gets every table that was put into ``out``, once."""

    def __init__(self, state: State, out: Path, pace: Pace, tell: Callable[[Path], None]) -> None:
        self._state, self._out, self._pace, self._tell = state, out, pace, tell
        self.failed: Exception | None = None

    def take(self, batch: DataFrame, number: int) -> None:
        """``foreachBatch``. A batch that comes again after a crash finds its version written, and is only published.

        Raises NotTaken, and keeps what it came from in ``failed``: Spark looks through the whole text of what was
        raised by a pattern, and of one as long as those of Java its stack overflows.
        """
        try:
            self._take(batch)
        except Exception as error:
            self.failed = error
            raise NotTaken(type(error).__name__) from None

    def _take(self, batch: DataFrame) -> None:
        step = _step(batch)
        if step is not None and step.number > self._state.meta.step.number:
            self._advance(batch, step)
        self.publish()

    def publish(self) -> None:
        """Also at the start: a crash may have come between the version and its tables."""
        for path in self._state.publish(self._out):
            self._tell(path)

    def _advance(self, batch: DataFrame, step: Step) -> None:
        spark, before = batch.sparkSession, self._state.meta
        old_lines, old = self._state.table(spark, "lines"), self._state.table(spark, "processes")
        fresh = settled(_steady(_fresh(batch), old_lines))
        lines = read.readable(fresh)
        # the state may be of a version whose events had fewer fields: these are then as where a line has none
        every = lines if old_lines is None else old_lines.unionByName(lines, allowMissingColumns=True)
        events = settled(every)
        processes = settled(window.known(old, read.processes(fresh), before.floor_us))
        meta = self._meta(step, events)
        facts = pipeline.facts_of(events, processes)
        news = self._news(facts, meta)
        told = news.findings.select(sf.col("finding_id").alias("id"), "time").unionByName(
            news.anomalies.select(sf.col("anomaly_id").alias("id"), "time")
        )
        earlier = self._state.table(spark, "told")
        if earlier is not None:
            told = told.unionByName(earlier.where(sf.unix_micros("time") >= meta.floor_us))
        self._state.write(meta, {
            "lines": window.kept(events, processes, meta.floor_us), "processes": processes, "told": told,
            "reached": window.reached(self._state.table(spark, "reached"), facts.deliveries, meta.floor_us),
        } | {name: table.drop("run_id") for name, table in news._asdict().items() if not table.isEmpty()})  # fmt: skip
        spark.catalog.clearCache()

    def _meta(self, step: Step, events: DataFrame) -> Meta:
        """How far everything is complete now. It never goes back, whatever a clock does."""
        before = self._state.meta
        row = events.agg(sf.min("wall_us").alias("oldest"), sf.max("wall_us").alias("newest")).first()
        oldest, newest = (row.oldest or 0, max(before.newest_us, row.newest or 0)) if row else (0, before.newest_us)
        read_us = newest if step.unread_us is None else min(newest, step.unread_us)
        complete = newest if step.quiet else read_us - self._pace.delay_us
        complete = before.complete_us if complete < oldest else max(before.complete_us, complete)
        return msgspec.structs.replace(
            before, version=before.version + 1, step=step, newest_us=newest, complete_us=complete,
            floor_us=max(before.floor_us, complete - self._pace.window_us),
        )  # fmt: skip

    def _news(self, facts: Facts, meta: Meta) -> News:
        spark = facts.events.sparkSession
        complete = sf.col("time") <= timestamp(sf.lit(meta.complete_us))
        earlier, passed = self._state.table(spark, "told"), self._state.table(spark, "reached")
        before_us = self._state.meta.complete_us
        if meta.complete_us == before_us:
            return _no_news(spark)
        if _any_twice(facts, before_us, meta.complete_us):
            findings = pipeline.findings(facts, meta.run_id)
        else:
            findings = _no_news(spark).findings
        findings = _above(findings, passed, "second.", sf.col("identity") == "I1").where(complete)
        anomalies = pipeline.all_anomalies(facts, meta.run_id).where(sf.col("kind").isin(*SURE) & complete)
        anomalies = _above(anomalies, passed, "", sf.col("kind") != "out_of_order")
        return News(_untold(findings, "finding_id", earlier), _untold(anomalies, "anomaly_id", earlier))


def _no_news(spark: SparkSession) -> News:
    schemas = (FINDING_COLUMNS, ANOMALY_COLUMNS)
    return News(*[spark.createDataFrame([], ", ".join(f"`{n}` {t}" for n, t in each.items())) for each in schemas])


def _step(batch: DataFrame) -> Step | None:
    """Of the last chunk in the batch."""
    rows = batch.where(sf.col("event") == STEP).select("reason").collect()
    steps = [msgspec.json.decode(row.reason, type=Step) for row in rows]
    return max(steps, key=lambda step: step.number, default=None)


def _fresh(batch: DataFrame) -> DataFrame:
    """Journal lines as ``read.read_lines`` has them, with unreadable ones laid to the process they are of."""
    torn = sf.col("event") == TORN
    return batch.where(sf.col("event").isNull() | (sf.col("event") != STEP)).withColumns({
        "file": sf.when(torn, sf.concat(sf.lit("torn-"), "boot_id", sf.lit(".jsonl"))).otherwise(sf.col("file")),
        UNREADABLE: sf.when(torn, sf.lit(TORN)).otherwise(sf.col(UNREADABLE)),
    })  # fmt: skip


def _steady(fresh: DataFrame, before: DataFrame | None) -> DataFrame:
    """With the times of clocks that jumped put right, in these lines or in earlier ones."""
    if before is None:
        return read.steady(fresh)
    jumps = before.where(sf.col("event") == tag_of(ClockJump))
    earlier = jumps.withColumn("_fresh", sf.lit(False))
    both = fresh.withColumn("_fresh", sf.lit(True)).unionByName(earlier, allowMissingColumns=True)
    return read.steady(both).where("_fresh").drop("_fresh")


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
    names = [f"passed_{name}" for name in passed.columns]
    same = sf.lit(True)
    for name in window.REACHED:
        column = name if name == "consumer_group" else f"{prefix}{name}"
        same &= sf.col(column) == sf.col(f"passed_{name}")
    there = same & (sf.col(f"{prefix}queue_offset") <= sf.col("passed_queue_offset"))
    return table.join(sf.broadcast(passed.toDF(*names)), there & ~unless, how="left_anti")


def _untold(table: DataFrame, name: str, earlier: DataFrame | None) -> DataFrame:
    if earlier is None:
        return settled(table)
    return settled(table.join(earlier.select(sf.col("id").alias(name)), name, how="left_anti"))
