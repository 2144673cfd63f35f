"""One place in a queue with two messages, and delayed messages that came before their time."""

from typing import Any

from dejamq_proto.journal.events import Append, Boot
from dejamq_proto.names import SCHEDULE_TOPIC

from dejamq_analytics.frames import DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import line, lines, text, timestamp
from dejamq_analytics.sources.needs import Needs, columns, every, some, those
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, contract

PLACE = ("broker_name", "topic", "queue_id", "queue_offset")
EARLY_MS = 1000
"""A journal's line is a moment younger than its event; only an earlier arrival than this counts."""


def waits(append: Any) -> Any:
    """Of an APPEND: a message begins to wait for its delay."""
    return some(append.topics, lambda topic: topic == SCHEDULE_TOPIC)


def is_due(append: Any) -> Any:
    """Of an APPEND: a delay is over."""
    return append.origin == "schedule"


needs = Needs(every(Boot), those(Append, waits), those(Append, is_due))


def two_values(deliveries: DataFrame) -> DataFrame:
    """Places at which consumers were given different records: ``seen``, each with its first delivery, in time.

    A topic that was deleted and made again counts from 0 once more, behind its old records in the log. Only a record
    that stands where the other one stood or before it shows that a log ended earlier than it had, or that two replicas
    have different ones.
    """
    first = sf.struct(
        "wall_us", "log_offset", "unique_key", "process", "boot_id", "seq", "delivery_id", "consumer_group"
    )  # fmt: skip
    values = deliveries.where("unique_key IS NOT NULL AND kind != 'direct'").groupBy(*PLACE, "unique_key")
    seen = values.agg(sf.min(first).alias("one")).groupBy(*PLACE)
    both = seen.agg(sf.array_sort(sf.collect_list("one")).alias("seen")).where("size(seen) > 1")
    older, newer = (sf.get("seen", sf.lit(index)) for index in range(2))
    return both.where(newer["log_offset"] <= older["log_offset"])


def inconsistent_offsets(places: DataFrame) -> DataFrame:
    """``two_values`` as anomalies."""
    older, newer = (sf.get("seen", sf.lit(index)) for index in range(2))
    given = [
        line("DELIVER", text("%s, log offset %s", one["unique_key"], one["log_offset"]), process=one["process"],
             boot_id=one["boot_id"], seq=one["seq"])
        for one in (older, newer)
    ]  # fmt: skip
    return contract(
        places.select(
            sf.lit("inconsistent_offsets").alias("kind"),
            timestamp(newer["wall_us"]).alias("time"),
            newer["consumer_group"].alias("consumer_group"),
            newer["unique_key"].alias("message_id"),
            *PLACE,
            text("it was %s before", older["unique_key"]).alias("detail"),
            lines(*given).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def delayed_early(events: DataFrame) -> DataFrame:
    """Delayed messages that a broker delivered before its delay had passed.

    Each start tells its delays by level. Where one start stored and delivered the message, the monotonic clock
    measured the time between, so that a wall clock that was set forward shows.
    """
    delays = needs.of(events, Boot).where("size(delay_levels_ms) > 0").groupBy("boot_id").agg(
        sf.max("delay_levels_ms").alias("delays")
    )  # fmt: skip
    stored = needs.of(events, Append).where(waits(columns(Append)))
    waited = stored.select(
        "broker_name", sf.struct("wall_us", "mono_us", "process", "boot_id", "seq").alias("begun"),
        "topics", "queue_ids", sf.explode(sf.arrays_zip("queue_index", "queue_offsets", "unique_keys")).alias("one"),
    ).withColumn("which", sf.col("one.queue_index").cast("int"))  # fmt: skip
    waited = waited.where(sf.get("topics", sf.col("which")) == SCHEDULE_TOPIC).select(
        "broker_name", "begun", sf.col("one.unique_keys").alias("unique_key"),
        sf.concat_ws(":", sf.get("queue_ids", sf.col("which")) + 1, "one.queue_offsets").alias("ref"),
    )  # fmt: skip
    came = needs.of(events, Append).where(is_due(columns(Append)) & (sf.size("origin_refs") == 1)).select(
        "broker_name", "wall_us", "mono_us", "process", "boot_id", "seq", sf.col("topics")[0].alias("topic"),
        sf.col("queue_ids")[0].alias("queue_id"), sf.col("queue_offsets")[0].alias("queue_offset"),
        sf.col("unique_keys")[0].alias("unique_key"), sf.col("origin_refs")[0].alias("ref"),
    )  # fmt: skip
    both = came.join(waited, ["broker_name", "ref", "unique_key"], how="inner").join(
        sf.broadcast(delays), "boot_id", how="inner"
    )
    one_start = sf.col("begun.boot_id") == sf.col("boot_id")
    took_us = sf.when(one_start, sf.col("mono_us") - sf.col("begun.mono_us")).otherwise(
        sf.col("wall_us") - sf.col("begun.wall_us")
    )
    level = sf.split("ref", ":")[0].cast("int")
    judged = both.withColumn("took_ms", (took_us / 1000).cast("bigint"))
    judged = judged.withColumn("delay_ms", sf.get("delays", level - 1))
    return contract(
        judged.where(sf.col("took_ms") < sf.col("delay_ms") - EARLY_MS).select(
            sf.lit("delayed_early").alias("kind"),
            timestamp("wall_us").alias("time"),
            sf.col("unique_key").alias("message_id"),
            "broker_name", "topic", "queue_id", "queue_offset",
            text("delivered after %s ms, its delay is %s ms", "took_ms", "delay_ms").alias("detail"),
            lines(
                line("APPEND", text("stored to wait, %s", "ref"), process="begun.process", boot_id="begun.boot_id",
                     seq="begun.seq"),
                line("APPEND", text("delivered from %s", "ref")),
            ).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip
