"""Of all lines that are kept, those that what became complete now can rest on.

A row of a table is told in the step in which its time becomes complete, or in which a late line of it comes. So only
messages of which a line became complete or came late can be told, and the rules need all lines of these alone, with
every line that is not about single messages.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dejamq_proto.journal.events import Boot, Persist, PqDrop, ReplicaEvent
from dejamq_proto.journal.lines import tag_of

from dejamq_analytics.follow.entries import spot
from dejamq_analytics.follow.parts import Part
from dejamq_analytics.frames import DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import timestamp
from dejamq_analytics.rules.history import losses, queues, replicas
from dejamq_analytics.rules.history.queues import QUEUE
from dejamq_analytics.rules.joins import united
from dejamq_analytics.sources.facts import settled
from dejamq_analytics.sources.needs import columns

IDS = ("part", "boot_id", "seq")


class FollowStep(NamedTuple):
    """A step: everything up to ``before_us`` was complete, up to ``complete_us`` is now. ``fresh``: the newest part."""

    before_us: int
    complete_us: int
    fresh: int


class Chosen(NamedTuple):
    """``names``: the messages that may be told. ``reached``: how far each group was in each queue, by ``queue``."""

    events: DataFrame
    names: DataFrame
    reached: DataFrame


def choose(parts: Sequence[Part], standing: Sequence[DataFrame], now: FollowStep) -> Chosen | None:
    """None where the rules need all lines."""
    every = united([part.entries.withColumn("part", sf.lit(part.number)) for part in parts])
    context = settled(united([*standing, *(part.context for part in parts)]))
    if _log_ended(context, now) or _order_is_late(every, now):
        return None
    young = (sf.col("wall_us") > now.before_us) | (sf.col("part") == now.fresh)
    touched = settled(every.where(young & (sf.col("wall_us") <= now.complete_us)))
    names = settled(united([_some(touched, "name"), _among(every, "own", touched, "name")]).distinct())
    related = [names, _among(every, "business", touched, "name"), _among(every, "place", touched, "name")]
    mine = settled(every.join(united(related).distinct(), "name", how="left_semi"))
    owned = every.join(_some(mine, "own"), "own", how="left_semi")
    marks = settled(_marks(every, mine, context))
    blocked = every.where(sf.col("queue").isNotNull()).withColumn("spot", spot("pq", "queue_offset"))
    blockers = blocked.join(marks.select(spot("pq", "reached").alias("spot")), "spot", how="left_semi")
    best = marks.where("part IS NOT NULL")
    ids = settled(united([one.select(*IDS) for one in (mine, owned, blockers, best)]).distinct())
    wanted = {row.part for row in ids.select("part").distinct().collect()}
    lines = [part.lines.join(ids.where(sf.col("part") == part.number).select("boot_id", "seq"), ["boot_id", "seq"],
             how="left_semi") for part in parts if part.number in wanted]  # fmt: skip
    return Chosen(united([context, *lines]), names, _reached(every, now))


def with_reached(deliveries: DataFrame, reached: DataFrame, now: FollowStep) -> DataFrame:
    """With ``reached_before`` for what became complete, as ``out_of_order`` reads it: what is left out came before."""
    queue = sf.xxhash64(*QUEUE).alias("queue")
    known = reached.withColumnRenamed("queue_offset", "known")
    both = deliveries.select("*", queue).join(sf.broadcast(known), "queue", how="left")
    before = sf.when(sf.col("wall_us") > now.before_us, sf.col("known"))
    return both.withColumn("reached_before", before).select(*deliveries.columns, "reached_before")


def had_by_two(parts: Sequence[Part], topics: Sequence[str]) -> bool:
    """Whether two groups were given what stands at one place of one of these topics."""
    if not topics:
        return False
    every = united([part.entries for part in parts]).where(sf.col("topic").isin(*topics))
    places = every.groupBy("place").agg(sf.min("queue").alias("one"), sf.max("queue").alias("another"))
    return not places.where(sf.col("one") != sf.col("another")).isEmpty()


def of_these(table: DataFrame, names: DataFrame, now: FollowStep) -> DataFrame:
    """The table's rows about messages of these names, and those that became complete or are about no message."""
    known = sf.broadcast(names.withColumnRenamed("name", "chosen"))
    named = table.join(known, sf.xxhash64("message_id") == sf.col("chosen"), how="left_semi")
    young = sf.col("time") > timestamp(sf.lit(now.before_us))
    told_of_second = sf.lit("finding_id" in table.columns)
    return named.unionByName(table.where(sf.col("message_id").isNull() & (young | ~told_of_second)))


def _log_ended(context: DataFrame, now: FollowStep) -> bool:
    """A broker went on without its last records: messages of long ago may be lost with them."""
    young = sf.col("wall_us") > now.before_us
    ends = [
        losses.needs.of(context, Boot).where(losses.goes_on_after_a_crash(columns(Boot))),
        replicas.needs.of(context, ReplicaEvent).where(replicas.is_promotion(columns(ReplicaEvent))),
    ]
    return any(not frame.where(young).isEmpty() for frame in ends)


def _order_is_late(every: DataFrame, now: FollowStep) -> bool:
    """A delivery came after its time had become complete: ``reached`` says nothing about what came before it."""
    late = (sf.col("queue").isNotNull()) & (sf.col("part") == now.fresh) & (sf.col("wall_us") <= now.before_us)
    return not every.where(late).isEmpty()


def _some(frame: DataFrame, column: str) -> DataFrame:
    return frame.where(sf.col(column).isNotNull()).select(column).distinct()


def _among(every: DataFrame, key: str, frame: DataFrame, column: str) -> DataFrame:
    """``column`` of all rows that share a ``key`` with one of the frame."""
    return _some(every.join(_some(frame, key), key, how="left_semi"), column)


def _marks(every: DataFrame, mine: DataFrame, context: DataFrame) -> DataFrame:
    """How far each process queue of these messages came, with the RESULT line that says so, if one does."""
    owned = _some(mine, "pq")
    results = every.where(sf.col("reached").isNotNull()).select("pq", "reached", *IDS)
    told = [(queues.needs.of(context, event), queues.MARKS[tag_of(event)]) for event in (Persist, PqDrop)]
    others = [frame.select(sf.xxhash64("boot_id", "pq_id").alias("pq"), sf.col(name).alias("reached"))
              for frame, name in told]  # fmt: skip
    ordered = sf.struct("reached", "seq")
    best = results.join(owned, "pq", how="left_semi").groupBy("pq").agg(sf.max_by(sf.struct(*IDS, "reached"), ordered)
                                                                        .alias("best"))  # fmt: skip
    highest = united(others).join(owned, "pq", how="left_semi").groupBy("pq").agg(sf.max("reached").alias("reached"))
    return united([best.select("pq", "best.reached", *[f"best.{name}" for name in IDS]), highest])


def _reached(every: DataFrame, now: FollowStep) -> DataFrame:
    before = every.where((sf.col("queue").isNotNull()) & (sf.col("wall_us") <= now.before_us))
    return before.groupBy("queue").agg(sf.max("queue_offset").alias("queue_offset"))
