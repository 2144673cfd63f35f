"""Lines that stay after reading: all lines younger than the floor, and older lines that still hold.

An owner may have opened its queue hours ago and a broker may have begun last week. So the last old line of each kind
stays for each subject. Old lines that only tell what was done go, as rules declare them (``passing``): deliveries,
results, appends, sends. So the traffic of the window and the present state bound the size, whatever was before.
"""

from dejamq_proto.journal.events import ClockJump, PqDrop

from dejamq_analytics.frames import Column, DataFrame, Window
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules import declared
from dejamq_analytics.rules.history import queues
from dejamq_analytics.rules.history.queues import PQ
from dejamq_analytics.sources import journals

THING = (
    "boot_id", "event", "pq_id", "group", "topic", "broker_name", "queue_id", "client_id", "client_boot_id", "by",
    "state", "service", "kind", "target", "change", "peer_id",
)  # fmt: skip
"""The subject of a line: the last line with equal values of these stays."""
SERVERS = ("broker", "namesrv")
REACHED = ("consumer_group", "broker_name", "topic", "queue_id")
MOST_GAPS = 64


def kept(lines: DataFrame, processes: DataFrame, floor_us: int) -> DataFrame:
    """The lines to keep when everything before ``floor_us`` is told."""
    young = lines.where(sf.col("wall_us") >= floor_us)
    gone = queues.needs.lines(lines, PqDrop).where(sf.col("wall_us") < floor_us).select(*PQ).distinct()
    here = sf.broadcast(processes.where(~_ended(floor_us)).select("boot_id"))
    old = lines.where((sf.col("wall_us") < floor_us) & ~sf.col("event").isin(*declared.passing()))
    # a line of no process queue has no pq_id, and stays
    old = old.join(here, "boot_id", how="left_semi").join(sf.broadcast(gone), list(PQ), how="left_anti")
    last = Window.partitionBy(*THING).orderBy(sf.desc("seq"))
    every = journals.needs.is_a(ClockJump)  # their sum puts times right
    standing = old.withColumn("nth", sf.row_number().over(last)).where(every | (sf.col("nth") == 1)).drop("nth")
    return young.unionByName(standing)


def known(before: DataFrame | None, now: DataFrame, floor_us: int) -> DataFrame:
    """``journals.processes`` of all lines ever read, from its results for earlier and for new lines.

    A process that ended before the floor goes, and so does a client that was silent since then.
    """
    if before is None:
        return now
    # a state of a version whose processes had fewer columns
    before = before.withColumns({name: sf.lit(None) for name in now.columns if name not in before.columns})
    old = before.withColumnsRenamed({name: f"old_{name}" for name in now.columns if name != "boot_id"})
    new = now.withColumnsRenamed({name: f"new_{name}" for name in now.columns if name != "boot_id"})
    both = old.join(new, "boot_id", how="full")
    merged = both.select("boot_id", *[_merged(name).alias(name) for name in now.columns if name != "boot_id"])
    return merged.select(*now.columns).where(~_ended(floor_us))


def reached(before: DataFrame | None, deliveries: DataFrame, floor_us: int) -> DataFrame:
    """How far each group had come in each queue with what was dropped: what is at or below that may have been there."""
    dropped = deliveries.where(sf.col("wall_us") < floor_us).select(*REACHED, "queue_offset")
    whole = dropped if before is None else dropped.unionByName(before)
    return whole.groupBy(*REACHED).agg(sf.max("queue_offset").alias("queue_offset"))


def _ended(floor_us: int) -> Column:
    return (sf.col("last_wall_us") < floor_us) & (sf.col("closed") | ~sf.col("role").isin(*SERVERS))


def _merged(name: str) -> Column:
    """Counts are added, times widen, words and the rest only grow; lists gain what is new."""
    if name == "gaps":
        return _gaps()
    old, new = sf.col(f"old_{name}"), sf.col(f"new_{name}")
    if name in ("lines", "torn"):
        return sf.coalesce(old, sf.lit(0)) + sf.coalesce(new, sf.lit(0))
    if name == "first_wall_us":
        return sf.least(old, new)
    if name == "closed":
        return sf.coalesce(old, sf.lit(False)) | sf.coalesce(new, sf.lit(False))
    if name == "opened":
        return sf.when(old.isNull(), new).when(new.isNull(), old).otherwise(sf.array_union(old, new))
    return sf.greatest(old, new)


def _gaps() -> Column:
    """Earlier gaps, and gaps of new lines behind the last earlier line. Many become a few wide ones."""
    nothing = sf.array().cast("array<struct<first:bigint,last:bigint>>")
    last = sf.coalesce("old_last_seq", sf.lit(0))
    behind = sf.transform(
        sf.filter(sf.coalesce("new_gaps", nothing), lambda gap: gap["last"] > last),
        lambda gap: sf.struct(sf.greatest(gap["first"], last + 1).alias("first"), gap["last"].alias("last")),
    )
    # a torn line of a process that wrote nothing else: an event stood there
    alone = sf.when(sf.col("new_last_seq").isNull() & (sf.col("new_torn") > 0), sf.array(
        sf.struct((last + 1).alias("first"), (last + 1).alias("last"))
    ))  # fmt: skip
    whole = sf.array_union(sf.concat(sf.coalesce("old_gaps", nothing), behind), sf.coalesce(alone, nothing))
    one = sf.struct(sf.array_min(whole)["first"].alias("first"), sf.array_max(whole)["last"].alias("last"))
    return sf.when(sf.size(whole) > MOST_GAPS, sf.array(one)).otherwise(whole)
