"""What is kept of the lines that were read: all that are younger than the floor, and of older ones what still holds.

An owner may have opened its queue hours ago and a broker may have begun last week, so of old lines the last of each
kind stays for each thing it tells of. What tells of messages goes: deliveries, results, appends, sends. So the size is
bounded by the traffic of the window and by what there is now, whatever was before.
"""

from dejamq_proto.events import (
    Append,
    ClockJump,
    Deliver,
    Handout,
    Pull,
    Result,
    Sendback,
    SendEnd,
    SendResult,
    SendTry,
)
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BooleanType

from dejamq_analytics.rules.queues import PQ
from dejamq_analytics.schema import tag_of

OF_MESSAGES = tuple(
    tag_of(event) for event in (Append, Deliver, Handout, Pull, Result, Sendback, SendEnd, SendResult, SendTry)
)
THING = (
    "boot_id", "event", "pq_id", "group", "topic", "broker_name", "queue_id", "client_id", "client_boot_id", "by",
    "state", "service", "kind", "target", "change", "peer_id",
)  # fmt: skip
"""What a line tells of: the last line with the same of these stays."""
SERVERS = ("broker", "namesrv")
REACHED = ("consumer_group", "broker_name", "topic", "queue_id")
MOST_GAPS = 64


def kept(lines: DataFrame, processes: DataFrame, floor_us: int) -> DataFrame:
    """The lines to keep when everything before ``floor_us`` is told."""
    young = lines.where(sf.col("wall_us") >= floor_us)
    gone = lines.where((sf.col("event") == "PQ_DROP") & (sf.col("wall_us") < floor_us)).select(*PQ).distinct()
    here = sf.broadcast(processes.where(~_ended(floor_us)).select("boot_id"))
    old = lines.where((sf.col("wall_us") < floor_us) & ~sf.col("event").isin(*OF_MESSAGES))
    # a line of no process queue has no pq_id, and stays
    old = old.join(here, "boot_id", how="left_semi").join(sf.broadcast(gone), list(PQ), how="left_anti")
    last = Window.partitionBy(*THING).orderBy(sf.desc("seq"))
    every = sf.col("event") == tag_of(ClockJump)  # their sum puts times right
    standing = old.withColumn("nth", sf.row_number().over(last)).where(every | (sf.col("nth") == 1)).drop("nth")
    return young.unionByName(standing)


def known(before: DataFrame | None, now: DataFrame, floor_us: int) -> DataFrame:
    """``read.processes`` of all lines ever read, from that of the earlier ones and that of the new ones.

    A process that ended before the floor goes; of a client it is enough that it was silent since then.
    """
    if before is None:
        return now
    old, new = before.alias("old"), now.alias("new")
    both = old.join(new, sf.col("old.boot_id") == sf.col("new.boot_id"), how="full")
    own = {
        "boot_id": sf.coalesce("old.boot_id", "new.boot_id"),
        "lines": _sum("lines"), "torn": _sum("torn"), "gaps": _gaps(),
        "first_wall_us": sf.least("old.first_wall_us", "new.first_wall_us"),
    }  # fmt: skip
    merged = both.select(*[own.get(field.name, _later(field.name, field.dataType)).alias(field.name)
                           for field in now.schema.fields])  # fmt: skip
    return merged.where(~_ended(floor_us))


def reached(before: DataFrame | None, deliveries: DataFrame, floor_us: int) -> DataFrame:
    """How far each group had come in each queue with what was dropped: what is at or below that may have been there."""
    dropped = deliveries.where(sf.col("wall_us") < floor_us).select(*REACHED, "queue_offset")
    whole = dropped if before is None else dropped.unionByName(before)
    return whole.groupBy(*REACHED).agg(sf.max("queue_offset").alias("queue_offset"))


def _ended(floor_us: int) -> Column:
    return (sf.col("last_wall_us") < floor_us) & (sf.col("closed") | ~sf.col("role").isin(*SERVERS))


def _sum(name: str) -> Column:
    return sf.coalesce(f"old.{name}", sf.lit(0)) + sf.coalesce(f"new.{name}", sf.lit(0))


def _later(name: str, kind: object) -> Column:
    """Counts and words only grow; lists gain what is new."""
    if isinstance(kind, ArrayType):
        nothing = sf.array().cast(kind)
        return sf.array_union(sf.coalesce(f"old.{name}", nothing), sf.coalesce(f"new.{name}", nothing))
    if isinstance(kind, BooleanType):
        return sf.coalesce(f"old.{name}", sf.lit(False)) | sf.coalesce(f"new.{name}", sf.lit(False))
    return sf.greatest(f"old.{name}", f"new.{name}")


def _gaps() -> Column:
    """Those of before, and those of the new lines behind the last line of before. Many become a few wide ones."""
    nothing = sf.array().cast("array<struct<first:bigint,last:bigint>>")
    last = sf.coalesce("old.last_seq", sf.lit(0))
    behind = sf.transform(
        sf.filter(sf.coalesce("new.gaps", nothing), lambda gap: gap["last"] > last),
        lambda gap: sf.struct(sf.greatest(gap["first"], last + 1).alias("first"), gap["last"].alias("last")),
    )
    # a torn line of a process that wrote nothing else: an event stood there
    alone = sf.when(sf.col("new.last_seq").isNull() & (sf.col("new.torn") > 0), sf.array(
        sf.struct((last + 1).alias("first"), (last + 1).alias("last"))
    ))  # fmt: skip
    whole = sf.array_union(sf.concat(sf.coalesce("old.gaps", nothing), behind), sf.coalesce(alone, nothing))
    one = sf.struct(sf.array_min(whole)["first"].alias("first"), sf.array_max(whole)["last"].alias("last"))
    return sf.when(sf.size(whole) > MOST_GAPS, sf.array(one)).otherwise(whole)
