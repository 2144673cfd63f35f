"""The same process had the queue again: what its first ownership was at is delivered by the second one."""

from pyspark.sql import Column
from pyspark.sql import functions as sf

from dejamq_analytics.rules import jumps
from dejamq_analytics.rules.evidence import text
from dejamq_analytics.rules.stage import Stage


def stages() -> list[Stage]:
    """Before what is said of two processes that follow one another (O9): here nobody else was there."""
    again = sf.col("first.boot_id") == sf.col("second.boot_id")
    dropped = sf.col("first_queue.dropped")
    idle = again & (dropped["reason"] == "pull_idle") & _in_flight()
    # by the order of lines, which is that of events: at level audit their times are late
    overlap = sf.col("first.pq_dropped") & (sf.col("first.result_seq") > sf.col("second.seq"))
    flapped = again & (dropped["reason"] == "reassigned") & overlap
    lost = text("%s lost the queue, had it again, and its first handler still ran", "first.process")
    still = text("%s had not pulled for longer than it may", "first.process")
    return [
        Stage("b", idle & sf.col("jump_of_owner").isNotNull(), "R12", trigger=jumps.said("jump_of_owner")),
        Stage("b", idle, "R7", trigger=still),
        Stage("b", flapped, "R8", trigger=lost),
    ]


def _in_flight() -> Column:
    return sf.col("first.result").isNull() | sf.col("first.pq_dropped")
