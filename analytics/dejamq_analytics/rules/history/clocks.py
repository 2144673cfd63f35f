"""Machines whose clocks disagree. Between two machines only their clocks say which of two deliveries came first, so a
clock that is wrong would exchange owners and blame the wrong one.

A broker's lines about a client bound the client's clock: a client started before any broker knew it, and opens a
queue after a broker told it where to begin. A line that stands on the wrong side shows by how much its clock is wrong,
at the least. A jump that a journal tells of itself is another thing, and put right.
"""

from dejamq_proto.journal.events import MemberEvent, OffGet, PqOpen, State

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, text
from dejamq_analytics.rules.history.queues import QUEUE
from dejamq_analytics.rules.joins import beside, united
from dejamq_analytics.sources.needs import Needs, every

AGREE_US = 1_000_000
"""Clocks of one machine, and of machines that keep time, agree far better."""
needs = Needs(every(MemberEvent, OffGet, PqOpen, State))
ASKED = ("boot_id", "group", "topic", "broker_name", "queue_id", "value")


def with_skew(processes: DataFrame, events: DataFrame) -> DataFrame:
    """Processes with ``skew_ms``: how far a client is ahead of a broker (behind: below 0); null where nothing shows."""
    return beside(processes, _skewed(events, processes), {"boot_id": "boot_id"})


def _skewed(events: DataFrame, processes: DataFrame) -> DataFrame:
    """``boot_id``, ``skew_ms``: of clients whose clock is wrong, the most that shows."""
    ms = (sf.col("skew_us") / 1000).cast("bigint")
    every = united([_ahead(events, processes), _behind(events), _told(events)])
    one = every.groupBy("boot_id").agg(sf.max_by("skew_us", sf.abs("skew_us")).alias("skew_us"))
    return one.select("boot_id", ms.alias("skew_ms"))


def _ahead(events: DataFrame, processes: DataFrame) -> DataFrame:
    """It says that it began after a broker had known it. Only where its first line is there."""
    known = needs.lines(events, MemberEvent, OffGet).groupBy(sf.col("client_boot_id").alias("boot_id"))
    whole = processes.where(_from_its_first_line()).select("boot_id", "first_wall_us")
    both = known.agg(sf.min("wall_us").alias("known_us")).join(sf.broadcast(whole), "boot_id", how="inner")
    ahead = both.withColumn("skew_us", sf.col("first_wall_us") - sf.col("known_us"))
    return ahead.where(sf.col("skew_us") > AGREE_US).select("boot_id", "skew_us")


def _told(events: DataFrame) -> DataFrame:
    """A process that was made of logs says it: its trace messages have its own time and the broker's."""
    skew_ms = sf.regexp_extract("reason", r"\bskew_ms=(-?\d+)", 1)
    started = needs.of(events, State).where("state = 'started'")
    told = started.where(skew_ms != "").select("boot_id", (skew_ms.cast("bigint") * 1000).alias("skew_us"))
    return told.distinct()


def _from_its_first_line() -> Column:
    return (sf.size("gaps") == 0) | (sf.get("gaps", sf.lit(0))["first"] > 1)


def _behind(events: DataFrame) -> DataFrame:
    """It says that it opened a queue before a broker had first told it where to begin."""
    told = needs.of(events, OffGet).drop("boot_id", "process").withColumnRenamed("client_boot_id", "boot_id")
    told = told.groupBy(*ASKED).agg(sf.min("wall_us").alias("told_us"))
    opened = needs.of(events, PqOpen).where("source = 'broker'").withColumnRenamed("start_offset", "value")
    opened = opened.groupBy(*ASKED).agg(sf.max("wall_us").alias("opened_us"))
    behind = opened.join(told, list(ASKED), how="inner").withColumn("skew_us", sf.col("opened_us") - sf.col("told_us"))
    return behind.where(sf.col("skew_us") < -AGREE_US).select("boot_id", "skew_us")


def hole() -> Column:
    """Of a pair with both owners: whose clock is wrong, where two processes delivered."""
    two = sf.col("first.boot_id") != sf.col("second.boot_id")
    wrong = [(two & (sf.abs(f"{side}_owner.skew_ms") > 0), _words(side)) for side in ("first", "second")]
    return first_of(*wrong)


def _words(side: str) -> Column:
    skew_ms = sf.col(f"{side}_owner.skew_ms")
    where = sf.when(skew_ms > 0, "ahead of").otherwise("behind")
    return text("the clock of %s is %s ms %s that of a broker", f"{side}.process", sf.abs(skew_ms), where)


def in_time(deliveries: DataFrame, processes: DataFrame) -> DataFrame:
    """Without queues that a process with a wrong clock delivered from: nobody knows the order there."""
    wrong = processes.where("skew_ms IS NOT NULL").select("boot_id")
    if wrong.isEmpty():
        return deliveries
    queues = deliveries.join(sf.broadcast(wrong), "boot_id", how="left_semi").select(*QUEUE).distinct()
    return deliveries.join(sf.broadcast(queues), list(QUEUE), how="left_anti")
