"""Actions of each replica of a broker: masters, slaves, slaves that were made masters, and what they copied.

All replicas of a broker have one name. A slave that was started as master has the process name that its master had:
only boot ids tell them apart, and the line REPLICA ``promoted``.
"""

from typing import Any, NamedTuple

from dejamq_proto.journal.events import Boot, OffSet, ReplicaEvent

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.history.queues import QUEUE
from dejamq_analytics.rules.joins import beside, united
from dejamq_analytics.sources.needs import Needs, every, highest, those

MASTER = 0
SYNC = "slave-sync"


def is_copied(offset: Any) -> Any:
    """Of an OFF_SET: a slave took its master's."""
    return offset.by == SYNC


def is_promotion(replica: Any) -> Any:
    """Of a REPLICA: a slave was made the master."""
    return replica.change == "promoted"


needs = Needs(
    every(Boot), those(ReplicaEvent, is_promotion),
    highest(OffSet, ("group", *QUEUE[1:]), ("new", "wall_us", "seq"), is_copied),
)  # fmt: skip


class Replicas(NamedTuple):
    """``ids``: a row a start of a broker, ``promotions``: a broker name, ``copied``: a queue of a group."""

    ids: DataFrame
    promotions: DataFrame
    copied: DataFrame


def replicas(events: DataFrame) -> Replicas:
    """The replicas, by the journals of brokers."""
    started = needs.of(events, Boot).groupBy("boot_id").agg(sf.max("broker_id").alias("broker_id"))
    highest = sf.struct("new", "wall_us", "seq", "process", "boot_id")
    copied = (
        needs.of(events, OffSet)
        .withColumnRenamed("group", "consumer_group")
        .groupBy(*QUEUE)
        .agg(sf.max(highest).alias("copied"))
    )
    return Replicas(started, promotions(events), copied.select(*QUEUE, "copied"))


def promotions(events: DataFrame) -> DataFrame:
    """``promotions``: each start of a slave of this broker as its master, in order.

    ``slave_us``: the start of the first of its slaves, null where no journal tells of one.
    """
    promoted = sf.struct("wall_us", "seq", "process", "boot_id", "log_offset")
    told = needs.of(events, ReplicaEvent).select("broker_name", promoted.alias("one"))
    slaves = (
        needs.of(events, Boot)
        .where(sf.col("broker_id") > MASTER)
        .select("broker_name", sf.col("wall_us").alias("began"))
    )
    both = united([told, slaves]).groupBy("broker_name")
    return both.agg(sf.array_sort(sf.collect_list("one")).alias("promotions"), sf.min("began").alias("slave_us"))


def with_replicas(frame: DataFrame, known: Replicas) -> DataFrame:
    """Adds to pairs with ``committed`` and ``answered``: ``taken_by`` and ``told_by``, the ids of those replicas,
    ``promoted``, the last promotion between the two, ``slave_us``, and ``copied``, the highest offset that a slave
    copied.
    """
    for name, fact in (("taken_by", "committed"), ("told_by", "answered")):
        ids = known.ids.select("boot_id", sf.col("broker_id").alias(name))
        frame = beside(frame, ids, {"boot_id": f"{fact}.boot_id"})
    frame = beside(frame, known.promotions, {"broker_name": "first.broker_name"})
    frame = frame.withColumn("promoted", _between()).drop("promotions")
    return beside(frame, known.copied, {name: f"second.{name}" for name in QUEUE})


def _between() -> Column:
    begin, end = sf.col("committed.wall_us"), sf.col("answered.wall_us")
    return sf.array_max(sf.filter("promotions", lambda one: (one["wall_us"] > begin) & (one["wall_us"] < end)))
