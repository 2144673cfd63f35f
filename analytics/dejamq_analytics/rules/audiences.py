"""Messages that several are meant to have: all members of a broadcasting group (L8), several groups or topics (L9).

Nobody did anything twice here that was to be done once. It is reported, as expected, for readers who count effects.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from dejamq_analytics.evidence.client import MADE_UP
from dejamq_analytics.frames import Column, DataFrame, Row, Window
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import line, lines, text
from dejamq_analytics.rules.identity import ORDER, RECORD
from dejamq_analytics.rules.joins import beside, united
from dejamq_analytics.sources.overlap import Overlap

SEVERAL_GROUPS = "L9"
PAIRS = "first_group string, second_group string, pair_topic string, counted bigint"
SPOTS = "spot_broker string, spot_topic string, spot_queue bigint, first_offset bigint, last_offset bigint, counts int"


class Audiences(NamedTuple):
    """The receivers of the messages. ``shared`` are the topics that several groups read at one broker."""

    broadcasting: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


def audiences(processes: DataFrame) -> Audiences:
    """Of all process queues that were opened; a handful of rows, whatever was delivered."""
    opened = _opened(processes)
    shared = read_by_several((row.broker_name, row.topic, row.group) for row in opened)
    return Audiences(_sorted(row.group for row in opened if row.own), _sorted(shared))


def readers(processes: DataFrame) -> list[tuple[str, list[str]]]:
    """Topics at one broker that several groups read, each with these groups by name."""
    groups = defaultdict[tuple[str, str], set[str]](set)
    for row in _opened(processes):
        groups[row.broker_name, row.topic].add(row.group)
    return [(topic, sorted(those)) for (_, topic), those in groups.items() if len(those) > 1]


def _opened(processes: DataFrame) -> list[Row]:
    return processes.select(sf.explode("opened").alias("one")).select("one.*").distinct().collect()


def read_by_several(opened: Iterable[tuple[str, str, str]]) -> set[str]:
    """The topics that several groups read at one broker; of each process queue its broker, topic and group."""
    groups = defaultdict[tuple[str, str], set[str]](set)
    for broker, topic, group in opened:
        groups[broker, topic].add(group)
    return {topic for (_, topic), readers in groups.items() if len(readers) > 1}


def by_member(deliveries: DataFrame, broadcasting: tuple[str, ...]) -> DataFrame:
    """(``first``, ``second``): a message that one member of a broadcasting group had, and then another one."""
    whole = sf.struct(*deliveries.columns)
    mine = Window.partitionBy("consumer_group", "client_id", *RECORD).orderBy(*ORDER)
    once = (
        deliveries.where(sf.col("consumer_group").isin(*broadcasting))
        .withColumn("nth", sf.row_number().over(mine))
        .where("nth = 1")
    )
    ranked = once.select(
        whole.alias("second"), sf.lag(whole).over(Window.partitionBy("consumer_group", *RECORD).orderBy(*ORDER))
        .alias("first"),
    )  # fmt: skip
    pairs = ranked.where(sf.col("first").isNotNull()).select("first", "second")
    words = text("%s and %s each have all messages", "first.client_id", "second.client_id")
    meant = _meant(pairs, "L8", "I1", words)
    # a process without a log may be a member that began again with its offsets lost (O20), and then it is not clean
    unknown = sf.col("first.client_id").rlike(MADE_UP) | sf.col("second.client_id").rlike(MADE_UP)
    return (
        meant.withColumn("cause", sf.when(~unknown, sf.col("cause")))
        .withColumn("trigger", sf.when(~unknown, sf.col("trigger")))
        .withColumn("missing", sf.when(unknown, text(
            "which members %s and %s are: the log of the client that has none tells (L8 or O20)",
            "first.client_id", "second.client_id",
        )))
        .withColumn("expected", ~unknown)
    )  # fmt: skip


def by_group(deliveries: DataFrame, shared: tuple[str, ...], known: Overlap) -> DataFrame:
    """One row for a topic and each group of it but the first by name: the first message that both had, and how many."""
    entered = _deciding(deliveries.where(sf.col("topic").isin(*shared)), known)
    whole = sf.struct(*deliveries.columns)
    of_group = entered.groupBy(*RECORD, "consumer_group").agg(
        sf.min_by(whole, sf.struct(*ORDER)).alias("second"), sf.max("counts").alias("counts")
    )
    ranked = of_group.withColumn(
        "first", sf.first("second").over(Window.partitionBy(*RECORD).orderBy("consumer_group"))
    )
    both = ranked.where(sf.col("first.consumer_group") != sf.col("second.consumer_group"))
    order = sf.struct(*[f"second.{name}" for name in ORDER])
    pairs = both.groupBy("first.consumer_group", "second.consumer_group", "second.topic").agg(
        sf.min_by("first", order).alias("first"),
        sf.min_by("second", order).alias("second"),
        sf.sum("counts").alias("n"),
    )
    words = text("%s messages of %s also went to the group %s", "n", "second.topic", "first.consumer_group")
    return _meant(_with_counted(pairs, known), SEVERAL_GROUPS, "I1", words)


def _deciding(deliveries: DataFrame, known: Overlap) -> DataFrame:
    """Of topics that were counted only what decides: beside other messages one group's deliveries may be missing.
    ``counts`` is 0 for what was counted already.
    """
    if not known.topics:
        return deliveries.withColumn("counts", sf.lit(1))
    counted = sf.col("topic").isin(*known.topics)
    rows = [(*spot, 0) for spot in sorted(known.first)] + [(*spot, 1) for spot in sorted(known.uncounted)]
    spots = sf.broadcast(deliveries.sparkSession.createDataFrame(rows, SPOTS))  # a place is in one of them at most
    there = (sf.col("broker_name") == sf.col("spot_broker")) & (sf.col("topic") == sf.col("spot_topic"))
    there &= sf.col("queue_id") == sf.col("spot_queue")
    there &= sf.col("queue_offset").between(sf.col("first_offset"), sf.col("last_offset"))
    deciding = deliveries.where(counted).join(spots, there).select(*deliveries.columns, "counts")
    return united([deliveries.where(~counted).withColumn("counts", sf.lit(1)), deciding])


def _with_counted(pairs: DataFrame, known: Overlap) -> DataFrame:
    """``n`` with what was counted elsewhere."""
    if not known.counts:
        return pairs
    rows = [(*pair, count) for pair, count in sorted(known.counts.items())]
    counted = pairs.sparkSession.createDataFrame(rows, PAIRS)
    names = {
        "first_group": "first.consumer_group", "second_group": "second.consumer_group", "pair_topic": "second.topic"
    }  # fmt: skip
    both = beside(pairs.select("first", "second", "n"), counted, names)
    return both.select("first", "second", (sf.col("n") + sf.coalesce("counted", sf.lit(0))).alias("n"))


def _meant(pairs: DataFrame, cause: str, identity: str, trigger: Column) -> DataFrame:
    return pairs.select(
        sf.lit(identity).alias("identity"), "first", "second",
        sf.lit(cause).alias("cause"),
        sf.lit("model").alias("stage"),
        trigger.alias("trigger"),
        sf.lit(None).cast("string").alias("missing"),
        sf.lit(True).alias("expected"),
        lines(_delivered("first"), _delivered("second")).alias("evidence"),
    )  # fmt: skip


def _delivered(side: str) -> Column:
    words = text("to %s of group %s, queue offset %s", f"{side}.client_id", f"{side}.consumer_group",
                 f"{side}.queue_offset")  # fmt: skip
    return line("DELIVER", words, process=f"{side}.process", boot_id=f"{side}.boot_id", seq=f"{side}.seq")


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
