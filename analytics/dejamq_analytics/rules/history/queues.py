"""The life of each process queue, and what brokers knew of its group's offsets.

A process queue is (boot id, ``pq_id``): opened by one owner, dropped or ended with its process.
"""

from typing import Any

from dejamq_proto.journal.events import Boot, OffGet, OffSet, Persist, PqDrop, PqOpen, Result, Unlock
from dejamq_proto.journal.lines import tag_of

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.joins import united
from dejamq_analytics.sources.needs import Needs, columns, every, highest, is_one_of, no

BUFFERED_US = 200_000
"""How long a line may wait in a journal's buffer at level audit: 100 ms, and as much again for a busy loop."""
MADE_OF_LOGS, WHOLE_SECOND_US = "logs", 1_000_000
FOREVER_US = (1 << 63) - 1
BY_OPERATORS = ("admin", "reset", "clone")
"""Sources of an offset that was set without consuming."""
QUEUE = ("consumer_group", "broker_name", "topic", "queue_id")
PQ = ("boot_id", "pq_id")


def late_us(side: str) -> Column:
    """By how much the line of a delivery (``first``, ``second``) may be later than the delivery: below level forensic
    lines of many are gathered. Servers of RocketMQ write times in whole seconds.
    """
    level = sf.col(f"{side}_owner.level")
    return sf.when(level == "forensic", 0).when(level == MADE_OF_LOGS, WHOLE_SECOND_US).otherwise(BUFFERED_US)


def is_lowered(offset: Any) -> Any:
    """Of an OFF_SET: somebody who consumes, or a replica, set the group's offset lower."""
    return (offset.new < offset.old) & no(is_one_of(offset.by, (*BY_OPERATORS, "delete", "load")))


def is_settled(result: Any) -> Any:
    """Of a RESULT: its process queue was still there, and has this mark."""
    return no(result.pq_dropped)


def is_sent(persist: Any) -> Any:
    """Of a PERSIST: the offset left for a broker."""
    return persist.outcome == "sent"


def is_unsent(persist: Any) -> Any:
    """The contrary."""
    return persist.outcome != "sent"


MARKS = {tag_of(PqDrop): "mem_off", tag_of(Result): "mem_off", tag_of(Persist): "value"}
"""Events that tell how far a process queue had come, and by which field: of a RESULT only if it ``is_settled``."""
needs = Needs(
    every(Boot, OffGet, PqDrop, PqOpen, Unlock),
    highest(Result, PQ, ("mem_off", "seq"), is_settled),
    highest(Persist, PQ, ("value", "seq"), is_sent), highest(Persist, PQ, ("value", "seq"), is_unsent),
    highest(OffSet, ("group", *QUEUE[1:], "client_boot_id", "boot_id"), ("new", "wall_us", "seq")),
)  # fmt: skip


def process_queues(events: DataFrame) -> DataFrame:
    """One row a process queue: opening, end, highest low-water mark reached, highest offset that left for a broker, and
    when its lock was given back.

    The low-water mark only rises while a queue lives, so its highest value is its last. A union and one
    grouping: four joins would shuffle four times.
    """
    frames = [_opened(events), _dropped(events), _marks(events), _persisted(events), _unlocked(events)]
    return united(frames).groupBy(*PQ).agg(
        sf.max("opened").alias("opened"),
        sf.max("dropped").alias("dropped"),
        sf.max("mark").alias("mark"),
        sf.max("persisted").alias("persisted"),
        sf.max("unsent").alias("unsent"),
        sf.max("unlocked").alias("unlocked"),
    ).select(*PQ, "opened", "dropped", "mark", "persisted", "unsent", "unlocked")  # fmt: skip


def _opened(events: DataFrame) -> DataFrame:
    opened = sf.struct("wall_us", "seq", "start_offset", "source", "process")
    return needs.of(events, PqOpen).select(*PQ, opened.alias("opened"))


def _dropped(events: DataFrame) -> DataFrame:
    dropped = sf.struct("wall_us", "seq", "reason", "mem_off", "in_flight")
    return needs.of(events, PqDrop).select(*PQ, dropped.alias("dropped"), sf.struct("mem_off", "seq").alias("mark"))


def _unlocked(events: DataFrame) -> DataFrame:
    """As the owner says; what brokers say of it has no process queue."""
    unlocked = sf.struct("wall_us", "seq", "forced")
    return needs.of(events, Unlock).where("pq_id > 0").select(*PQ, unlocked.alias("unlocked"))


def _marks(events: DataFrame) -> DataFrame:
    return needs.of(events, Result).select(*PQ, sf.struct("mem_off", "seq").alias("mark"))


def _persisted(events: DataFrame) -> DataFrame:
    value = sf.struct("value", "seq", "wall_us", "reason", "outcome")
    sent = is_sent(columns(Persist))
    # what was persisted was the mark: a message sent back raises it without a RESULT
    mark = sf.struct(sf.col("value").alias("mem_off"), "seq")
    return needs.of(events, Persist).select(
        *PQ, sf.when(sent, value).alias("persisted"), sf.when(~sent, value).alias("unsent"), mark.alias("mark")
    )


def committed(events: DataFrame) -> DataFrame:
    """One row a client and a queue. ``commits``: the highest offset that each start of a broker took from it, and when
    that start began. ``asks``: when a broker told it where to begin.
    """
    began = needs.of(events, Boot).groupBy("boot_id").agg(sf.min("wall_us").alias("began_us"))
    highest = sf.struct("new", "wall_us", "seq", "process", "boot_id", "by", "began_us")
    by_client = (*QUEUE, "client_boot_id")
    taken = needs.of(events, OffSet).withColumnRenamed("group", "consumer_group").join(began, "boot_id", how="left")
    by_start = taken.groupBy(*by_client, "boot_id").agg(sf.max(highest).alias("commit"))
    asked = needs.of(events, OffGet).withColumnRenamed("group", "consumer_group")
    asks = asked.select(*by_client, sf.struct("wall_us", "seq", "boot_id").alias("ask"))
    return (
        united([by_start.drop("boot_id"), asks])
        .groupBy(*by_client)
        .agg(sf.collect_list("commit").alias("commits"), sf.collect_list("ask").alias("asks"))
    )


def answered(events: DataFrame) -> DataFrame:
    """The last time a broker told one client to begin at one offset of a queue."""
    last = sf.struct("wall_us", "seq", "process", "boot_id", "why")
    return (
        needs.of(events, OffGet)
        .withColumnRenamed("group", "consumer_group")
        .groupBy(*QUEUE, "client_boot_id", "value")
        .agg(sf.max(last).alias("answered"))
        .select(*QUEUE, "client_boot_id", "value", "answered")
    )


def brokers(events: DataFrame, processes: DataFrame) -> DataFrame:
    """One row a broker name: ``whole`` if no line of its journals is missing from ``whole_from_us`` to
    ``whole_until_us``.

    Only then does a missing event mean that nothing happened. A broker that ended without closing kept its last lines
    only at level forensic; of one that runs, what was buffered at the end may be missing. Journals reach back to the
    first start of a master, or to one that found the store as a crash leaves it, when nothing tells of what crashed.
    """
    start = needs.is_a(Boot)
    boots = (
        events.where(sf.col("broker_name").isNotNull() & (sf.col("role") == "broker"))
        .groupBy("boot_id", "broker_name")
        .agg(
            sf.max(sf.when(start, ~sf.col("clean"))).alias("after_crash"),
            sf.max(sf.when(start, sf.coalesce("broker_id", sf.lit(0)) == 0)).alias("is_master"),
        )
    )
    flushed = sf.col("closed") | (sf.col("level") == "forensic")
    cut_us = sf.when(~flushed, sf.col("last_wall_us") - BUFFERED_US)
    known = boots.join(processes.drop("lines"), "boot_id", how="inner")
    starts = sf.struct("first_wall_us", "closed", "after_crash")
    return known.groupBy("broker_name").agg(
        sf.min(sf.size("gaps") == 0).alias("whole"),
        sf.max("made_of").alias("made_of"),
        sf.min(sf.when(sf.col("is_master"), sf.col("first_wall_us"))).alias("master_us"),
        sf.collect_list(starts).alias("starts"),
        sf.coalesce(sf.min(cut_us), sf.lit(FOREVER_US)).alias("whole_until_us"),
        # of several replicas and starts the one that the missing lines are of
        sf.max_by("process", sf.struct(sf.size("gaps") > 0, ~flushed, "process")).alias("process"),
    ).withColumn("orphan_us", _after_an_unknown_crash()).select(
        "broker_name", "whole", "whole_until_us", "process", "made_of",
        sf.coalesce(sf.greatest("master_us", "orphan_us"), sf.lit(FOREVER_US)).alias("whole_from_us"),
    )  # fmt: skip


def _after_an_unknown_crash() -> Column:
    """The last of ``starts`` after a crash of which there is no journal."""

    def crashed_before(start: Column) -> Column:
        return sf.exists("starts", lambda one: ~one["closed"] & (one["first_wall_us"] < start["first_wall_us"]))

    orphans = sf.filter("starts", lambda one: sf.coalesce(one["after_crash"], sf.lit(False)) & ~crashed_before(one))
    return sf.array_max(sf.transform(orphans, lambda one: one["first_wall_us"]))
