"""Retries and dead letters that no failure explains.

A group is judged only where the journals of all its members are here and whole: a delivery that nobody journaled would
look like one that never was.
"""

from dejamq_proto.journal.events import MemberEvent, OffGet, Pull
from dejamq_proto.names import DLQ_PREFIX

from dejamq_analytics.frames import DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, line, lines, text, timestamp
from dejamq_analytics.sources.needs import Needs, every, one
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, contract

needs_whole = Needs(every(MemberEvent, OffGet), one(Pull, ("group", "client_boot_id")))
"""Lines of brokers about each consumer of a group, with its boot id."""


def dead_letters(appends: DataFrame) -> DataFrame:
    """Records that entered a dead-letter topic."""
    return appends.where(sf.col("topic").startswith(DLQ_PREFIX) & (sf.col("origin") != "admin"))


def given_up(dead: DataFrame) -> DataFrame:
    """Every dead letter, with the try at which it was given up."""
    detail = text("given up at try %s", "reconsume_times")
    rows = dead.select(
        sf.lit("dead_letter").alias("kind"), timestamp("wall_us").alias("time"),
        sf.regexp_extract("topic", f"^{DLQ_PREFIX}(.*)$", 1).alias("consumer_group"),
        sf.col("unique_key").alias("message_id"), "broker_name", "topic", "queue_id", "queue_offset",
        detail.alias("detail"),
        lines(line("RECORD", text("log offset %s", "log_offset"), process="broker_name",
                   boot_id=sf.lit(None).cast("string"), seq="log_offset")).alias("evidence"),
    )  # fmt: skip
    return contract(rows, ANOMALY_COLUMNS)


def watched(events: DataFrame, processes: DataFrame) -> DataFrame:
    """``consumer_group``: groups whose every member that a broker knew has a whole journal here."""
    named = needs_whole.lines(events, MemberEvent, OffGet, Pull).where("client_boot_id != ''")
    members = named.select(
        sf.col("group").alias("consumer_group"), sf.col("client_boot_id").alias("boot_id")
    ).distinct()
    kept = (sf.size("gaps") == 0) & (sf.col("closed") | (sf.col("level") == "forensic"))
    known = processes.select("boot_id", kept.alias("whole"))
    joined = members.join(sf.broadcast(known), "boot_id", how="left")
    each = joined.groupBy("consumer_group").agg(sf.min(sf.coalesce("whole", sf.lit(False))).alias("whole"))
    return each.where("whole").select("consumer_group")


def without_tries(dead: DataFrame, deliveries: DataFrame, groups: DataFrame) -> DataFrame:
    """Dead letters that count more tries than the group was given the message."""
    group = sf.expr(f"substring(topic, {len(DLQ_PREFIX) + 1})")
    letters = dead.where("reconsume_times > 0 AND unique_key IS NOT NULL").withColumn("consumer_group", group)
    letters = letters.join(sf.broadcast(groups), "consumer_group", how="left_semi")
    given = deliveries.groupBy("consumer_group", "unique_key").agg(
        sf.sort_array(sf.collect_list("wall_us")).alias("given")
    )
    counted = letters.join(given, ["consumer_group", "unique_key"], how="left")
    earlier = sf.filter("given", lambda at: at <= sf.col("wall_us"))
    counted = counted.withColumn("tries", sf.coalesce(sf.size(earlier), sf.lit(0)))
    return contract(
        counted.where((sf.col("tries") < sf.col("reconsume_times")) | sf.col("given").isNull()).select(
            sf.lit("dead_letter_without_tries").alias("kind"),
            timestamp("wall_us").alias("time"),
            "consumer_group",
            sf.col("unique_key").alias("message_id"),
            "broker_name", "topic", "queue_id", "queue_offset",
            text("it counts %s tries and %s was given it %s times", "reconsume_times", "consumer_group",
                 sf.greatest("tries", sf.lit(0))).alias("detail"),
            lines(line("APPEND", text("by %s, %s tries", "origin", "reconsume_times"))).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def without_failure(given_back: DataFrame, deliveries: DataFrame, processes: DataFrame) -> DataFrame:
    """Retries of a delivery that its consumer did not ask for, or that had succeeded before the consumer did.

    The record names the delivery. A message is also given back while its handler runs past the consume time-out: no
    failure, and no anomaly of this kind either.
    """
    ref = sf.split("origin_ref", ":")
    stored = given_back.where("origin_ref IS NOT NULL").select(
        "*", ref[0].alias("asker_boot"), ref[1].cast("bigint").alias("asker_delivery")
    )
    kept = (sf.size("gaps") == 0) & (sf.col("closed") | (sf.col("level") == "forensic"))
    askers = processes.where(kept).select(sf.col("boot_id").alias("asker_boot"), sf.col("process").alias("asker"))
    asked = deliveries.select(
        sf.col("boot_id").alias("asker_boot"), sf.col("delivery_id").alias("asker_delivery"), "consumer_group",
        sf.struct("seq", "result_seq", "result", "sendback_seq", "sendback_expired").alias("one"),
    )  # fmt: skip
    joined = stored.join(sf.broadcast(askers), "asker_boot", how="inner").join(
        asked, ["asker_boot", "asker_delivery"], how="left"
    )
    one = sf.col("one")
    why = first_of(
        (one.isNull(), text("%s has no delivery %s", "asker", "asker_delivery")),
        (one["sendback_seq"].isNull(), text("%s did not ask for it: delivery %s ended with %s", "asker",
                                            "asker_delivery", one["result"])),
        (~one["sendback_expired"] & (one["result"] == "success") & (one["result_seq"] < one["sendback_seq"]),
         text("%s had handled delivery %s with success", "asker", "asker_delivery")),
    )  # fmt: skip
    return contract(
        joined.withColumn("why", why).where("why IS NOT NULL").select(
            sf.lit("retry_without_failure").alias("kind"),
            timestamp("wall_us").alias("time"),
            "consumer_group",
            sf.col("unique_key").alias("message_id"),
            "broker_name", "topic", "queue_id", "queue_offset",
            sf.col("why").alias("detail"),
            lines(
                line("APPEND", text("by sendback, for delivery %s", "origin_ref")),
                line("DELIVER", text("delivery %s", "asker_delivery"), process="asker", boot_id="asker_boot",
                     seq=one["seq"]),
                line("RESULT", text("%s", one["result"]), process="asker", boot_id="asker_boot", seq=one["result_seq"]),
            ).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip
