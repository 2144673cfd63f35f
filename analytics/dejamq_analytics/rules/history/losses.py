"""Messages that were stored and acknowledged, and that the broker's log ended before when it went on.

A slave that is made the master goes on from where its log ends; a master whose machine died goes on from what was on
disk. Messages behind that place are lost, whatever its journal says: always the last ones.
"""

from typing import Any

from dejamq_proto.journal.events import Boot

from dejamq_analytics.frames import DataFrame, Window
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import line, lines, text, timestamp
from dejamq_analytics.rules.history.replicas import MASTER, promotions
from dejamq_analytics.sources.needs import Needs, columns, every, no
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, contract

needs = Needs(every(Boot))
APPEND = ("broker_name", "boot_id", "seq", "position")
"""One record of a journalled APPEND."""


def cut_off(appends: DataFrame, events: DataFrame) -> DataFrame:
    """Those stored records that were lost so, each with ``end``: the start that went on without it."""
    ends = _ends(events)
    behind = (sf.col("log_offset") >= sf.col("end.log_offset")) & (sf.col("wall_us") < sf.col("end.wall_us"))
    another = (sf.col("boot_id") != sf.col("end.boot_id")) & (sf.col("broker_name") == sf.col("end_of"))
    another &= sf.coalesce(sf.col("boot_id") == sf.col("crashed"), sf.lit(True))
    found = appends.where("log_offset IS NOT NULL").join(sf.broadcast(ends), another & behind, how="inner")
    first = Window.partitionBy(*APPEND).orderBy("end.wall_us")
    return found.withColumn("nth", sf.row_number().over(first)).where("nth = 1").select(*appends.columns, "end")


def left(appends: DataFrame, gone: DataFrame) -> DataFrame:
    """Stored records without those that are ``gone``."""
    return appends.join(gone.select(*APPEND), list(APPEND), how="left_anti").select(*appends.columns)


def lost_with_their_log(sends: DataFrame, there: DataFrame, gone: DataFrame) -> DataFrame:
    """Acknowledged messages of which every stored copy is ``gone``; ``there`` are the stored records that are not."""
    kept = there.select("unique_key")
    acknowledged = sends.where((sf.col("outcome") == "ok") & sf.col("unique_key").isNotNull())
    of_gone = gone.groupBy("unique_key").agg(
        sf.min(sf.struct("wall_us", "process", "boot_id", "seq", "log_offset", "end")).alias("stored")
    )
    lost = acknowledged.join(of_gone, "unique_key", how="inner").join(kept, "unique_key", how="left_anti")
    end = sf.col("stored.end")
    where = text(
        "%s stored it at %s and went on from %s without it", "broker_name", "stored.log_offset", end["log_offset"]
    )
    stored = {name: f"stored.{name}" for name in ("process", "boot_id", "seq")}
    return contract(
        lost.select(
            sf.lit("lost").alias("kind"),
            timestamp("wall_us").alias("time"),
            sf.col("unique_key").alias("message_id"),
            "broker_name",
            where.alias("detail"),
            lines(
                line("SEND_TRY", text("call %s", "call_id")),
                line("APPEND", text("log offset %s", "stored.log_offset"), **stored),
                line("SEND_RESULT", text("%s", "outcome"), seq="result_seq"),
                line("BOOT", text("goes on from log offset %s", end["log_offset"]), process="stored.end.process",
                     boot_id="stored.end.boot_id", seq="stored.end.seq"),
            ).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def goes_on_after_a_crash(boot: Any) -> Any:
    """Of a BOOT: its log may lack what an earlier start had stored."""
    return no(boot.clean) & (boot.log_max > 0)


def _ends(events: DataFrame) -> DataFrame:
    """``end_of`` a broker's name: where a master's log ended when it went on after a crash, or as a slave's before.

    ``crashed`` is the start that had ended so; journals may tell of older stores of that name.
    """
    starts = needs.of(events, Boot).where(sf.col("broker_id") == MASTER)
    before = sf.lag("boot_id").over(Window.partitionBy("broker_name").orderBy("wall_us"))
    crashed = starts.withColumn("crashed", before).where(goes_on_after_a_crash(columns(Boot)))
    one = sf.struct("wall_us", "seq", "process", "boot_id", sf.col("log_max").alias("log_offset"))
    name = sf.col("broker_name").alias("end_of")
    at_start = crashed.where("crashed IS NOT NULL").select(name, "crashed", one.alias("end"))
    promoted = promotions(events).select(
        name, sf.lit(None).cast("string").alias("crashed"), sf.explode("promotions").alias("end")
    )
    return at_start.unionByName(promoted)
