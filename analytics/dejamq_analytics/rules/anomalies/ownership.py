"""Queues that two members of a group held at once, and queues that none did, through whole rounds of allocation.

A hand-over takes a moment in which both or none have the queue: that is no anomaly. Members of broadcasting groups
have every queue each, and are left out.
"""

from dejamq_proto.journal.events import Assign, PqDrop, PqOpen

from dejamq_analytics.frames import Column, DataFrame, Window
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import line, lines, text, timestamp
from dejamq_analytics.rules.history.queues import PQ, QUEUE
from dejamq_analytics.sources.needs import Needs, every
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, contract

needs = Needs(every(Assign, PqOpen, PqDrop))
UNOWNED_US = 1_000_000
"""A queue that nobody has for less is on its way from one to the next."""
LEAST_ROUNDS = 2
LASTING_US = 25_000_000
"""RocketMQ's clients allocate every 20 s."""


def holdings(events: DataFrame, processes: DataFrame) -> DataFrame:
    """One row a process queue: from ``opened_us`` to ``ended_us`` its owner held the queue."""
    opened = needs.of(events, PqOpen).where(~sf.col("source").startswith("local")).select(
        *PQ, "process", sf.col("group").alias("consumer_group"), *QUEUE[1:],
        sf.col("wall_us").alias("opened_us"), sf.col("seq").alias("opened_seq"),
    )  # fmt: skip
    dropped = needs.of(events, PqDrop).groupBy(*PQ).agg(sf.max("wall_us").alias("dropped_us"))
    ends = sf.broadcast(processes.select("boot_id", "last_wall_us"))
    whole = opened.join(dropped, list(PQ), how="left").join(ends, "boot_id", how="inner")
    ended = sf.coalesce("dropped_us", "last_wall_us").alias("ended_us")
    return whole.select(*PQ, "process", *QUEUE, "opened_us", "opened_seq", ended)


def met(held: DataFrame) -> DataFrame:
    """Each two holdings of a queue of which the second began while the first, ``older_…``, lasted."""
    names = [name for name in held.columns if name not in QUEUE]
    older = held.select(*QUEUE, *[sf.col(name).alias(f"older_{name}") for name in names])
    return older.join(held, list(QUEUE)).where(
        "older_boot_id != boot_id AND older_opened_us <= opened_us AND opened_us < older_ended_us"
    )


def two_owners(events: DataFrame, both: DataFrame) -> DataFrame:
    """Of holdings that ``met``: a round of the older member kept the queue while the newer one held it."""
    kept = _taken(events).join(both, [*QUEUE, "older_boot_id"]).where(
        "turn_us > opened_us AND turn_us <= ended_us AND turn_us <= older_ended_us"
    )  # fmt: skip
    first = kept.groupBy(*QUEUE, "older_process", "process").agg(
        sf.min(sf.struct("turn_us", "turn_seq", "older_boot_id", "boot_id", "opened_seq")).alias("one"),
        sf.count_distinct("boot_id", "pq_id").alias("times"),
    )
    detail = text("%s opened it %s times while %s held it and kept it", "process", "times", "older_process")
    return contract(
        first.select(
            sf.lit("two_owners").alias("kind"), timestamp("one.turn_us").alias("time"), *QUEUE, detail.alias("detail"),
            lines(
                line("PQ_OPEN", text("by %s", "process"), boot_id="one.boot_id", seq="one.opened_seq"),
                line("ASSIGN", text("%s keeps it", "older_process"), process="older_process",
                     boot_id="one.older_boot_id", seq="one.turn_seq"),
            ).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def two_owners_for_long(processes: DataFrame, both: DataFrame) -> DataFrame:
    """The same where logs tell only of rounds that changed something: both had it for longer than rounds are apart."""
    whole = processes.where(sf.contains(sf.concat(sf.lit(","), "made_of", sf.lit(",")), sf.lit(",log,")))
    for side in ("older_boot_id", "boot_id"):
        both = both.join(whole.select(sf.col("boot_id").alias(side)), side, how="left_semi")
    shared_us = sf.least("older_ended_us", "ended_us") - sf.col("opened_us")
    detail = text("%s held it while %s opened it and held it too, for %s ms", "older_process", "process",
                  (shared_us / 1000).cast("bigint"))  # fmt: skip
    return contract(
        both.where(shared_us > LASTING_US).select(
            sf.lit("two_owners").alias("kind"), timestamp("opened_us").alias("time"), *QUEUE, detail.alias("detail"),
            lines(
                line("PQ_OPEN", text("by %s", "older_process"), process="older_process", boot_id="older_boot_id",
                     seq="older_opened_seq"),
                line("PQ_OPEN", text("by %s", "process"), seq="opened_seq"),
            ).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def _taken(events: DataFrame) -> DataFrame:
    """One row for each queue of each round."""
    turns = needs.of(events, Assign).select(
        sf.col("group").alias("consumer_group"), "topic", sf.col("boot_id").alias("older_boot_id"),
        sf.col("wall_us").alias("turn_us"), sf.col("seq").alias("turn_seq"), sf.explode("queues").alias("queue"),
    )  # fmt: skip
    parts = sf.regexp_extract("queue", r"^(.*):\d+$", 1), sf.regexp_extract("queue", r":(\d+)$", 1).cast("bigint")
    return turns.withColumn("broker_name", parts[0]).withColumn("queue_id", parts[1]).drop("queue")


def no_owner(events: DataFrame, between: DataFrame) -> DataFrame:
    """Of ``gaps``: every member of the group that looked did so twice or more, and none took the queue."""
    turns = needs.of(events, Assign).groupBy(sf.col("group").alias("consumer_group"), "topic", "boot_id").agg(
        sf.collect_list("wall_us").alias("turns")
    )  # fmt: skip
    looked = between.join(sf.broadcast(turns), ["consumer_group", "topic"]).withColumn("looked", _within("turns"))
    fewest = sf.min(sf.when(sf.col("looked") > 0, sf.col("looked")))
    left = looked.groupBy(*QUEUE, "from_us", "to_us").agg(fewest.alias("fewest"), sf.max("last").alias("last"))
    found = left.where(sf.col("fewest") >= LEAST_ROUNDS)
    ms = ((sf.col("to_us") - sf.col("from_us")) / 1000).cast("bigint")
    return contract(
        found.select(
            sf.lit("no_owner").alias("kind"), timestamp("from_us").alias("time"), *QUEUE,
            text("no member of %s had it for %s ms", "consumer_group", ms).alias("detail"),
            lines(
                line("PQ_OPEN", text("by its last owner %s", "last.process"), process="last.process",
                     boot_id="last.boot_id", seq="last.opened_seq"),
            ).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def gaps(held: DataFrame) -> DataFrame:
    """Times without owner after each holding: until the next one, or until the group holds nothing of the topic.

    ``last`` held the queue before.
    """
    before = Window.partitionBy(*QUEUE).orderBy("opened_us", "boot_id", "pq_id")
    owner = sf.struct("ended_us", "process", "boot_id", "opened_seq")
    reached = held.withColumn("last", sf.max(owner).over(before.rowsBetween(Window.unboundedPreceding, 0)))
    ends_us = sf.max("ended_us").over(Window.partitionBy("consumer_group", "topic"))
    until = sf.coalesce(sf.lead("opened_us").over(before), ends_us)
    between = reached.select(*QUEUE, "last", sf.col("last.ended_us").alias("from_us"), until.alias("to_us"))
    return between.where(sf.col("to_us") - sf.col("from_us") > UNOWNED_US)


def _within(turns: str) -> Column:
    return sf.size(sf.filter(turns, lambda at: (at > sf.col("from_us")) & (at < sf.col("to_us"))))
