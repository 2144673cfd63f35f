"""Common anomalies: messages lost or never seen, order turned round, offsets lowered. One function per rule."""

from typing import Any

from dejamq_proto.journal.events import OffSet, PqOpen, Pull, Repeat

from dejamq_analytics.frames import DataFrame, Window
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import line, lines, text, timestamp
from dejamq_analytics.rules.history.queues import QUEUE, is_lowered
from dejamq_analytics.rules.identity import ORDER
from dejamq_analytics.sources.needs import Needs, every, one, those
from dejamq_analytics.sources.schema import ANOMALY_COLUMNS, contract

FOUND = 0


def leaves_out(pull: Any) -> Any:
    """Of a PULL: the answer had fewer records than places, so the group has a filter."""
    return (pull.code == FOUND) & (pull.count < pull.next_offset - pull.request_offset)


needs = Needs(those(OffSet, is_lowered))
needs_whole = Needs(every(PqOpen, Repeat), one(Pull, ("group", "topic"), leaves_out))
"""Of rules that say something only of whole journals."""


def lost(events: DataFrame, sends: DataFrame, appends: DataFrame, brokers: DataFrame) -> DataFrame:
    """Acknowledged, but in no journal of a broker and in no commit log.

    A message whose id its broker knew is acknowledged for the first one, and is stored nowhere.

    Only for brokers whose journals are whole, and not in the last moment of one that ended with lines unwritten:
    elsewhere a missing APPEND says nothing.
    """
    whole = sf.broadcast(brokers.where("whole").select("broker_name", "whole_until_us"))
    acknowledged = sends.where((sf.col("outcome") == "ok") & sf.col("unique_key").isNotNull())
    known = needs_whole.of(events, Repeat).select(sf.explode("unique_keys").alias("unique_key"))
    stored = appends.select("unique_key").unionByName(known)
    told = acknowledged.join(whole, "broker_name", how="inner").where("wall_us < whole_until_us")
    gone = told.join(stored, "unique_key", how="left_anti")
    return contract(
        gone.select(
            sf.lit("lost").alias("kind"),
            timestamp("wall_us").alias("time"),
            sf.col("unique_key").alias("message_id"),
            "broker_name",
            text("%s acknowledged it to %s and did not store it", "broker_name", "process").alias("detail"),
            lines(
                line("SEND_TRY", text("call %s", "call_id")),
                line("SEND_RESULT", text("%s", "outcome"), seq="result_seq"),
            ).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def unseen(events: DataFrame, appends: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Stored where a group of the journals was reading, at or after its first start, and never delivered to it.

    A group whose brokers left records out of its pulls has a filter and is not judged.
    """
    reading = needs_whole.of(events, PqOpen).withColumnRenamed("group", "consumer_group")
    started = reading.groupBy(*QUEUE).agg(sf.min("start_offset").alias("start"))
    filtered = (
        needs_whole.of(events, Pull)
        .groupBy(sf.col("group").alias("consumer_group"), "topic")
        .agg(sf.count("*").alias("pulls"))
    )
    judged = started.join(sf.broadcast(filtered), ["consumer_group", "topic"], how="left_anti")
    stored = appends.where(sf.col("origin").isin("client", "tx_final") & ~sf.col("topic").startswith("%"))
    candidates = stored.join(sf.broadcast(judged), list(QUEUE[1:]), how="inner").where(
        sf.col("queue_offset") >= sf.col("start")
    )
    seen = deliveries.select(*QUEUE, "queue_offset", "log_offset")
    never = candidates.join(seen, [*QUEUE, "queue_offset", "log_offset"], how="left_anti")
    return contract(
        never.select(
            sf.lit("unseen").alias("kind"),
            timestamp("wall_us").alias("time"),
            "consumer_group",
            sf.col("unique_key").alias("message_id"),
            "broker_name", "topic", "queue_id", "queue_offset",
            text("stored by %s and delivered to no member of %s", "broker_name", "consumer_group").alias("detail"),
            lines(line("APPEND", text("log offset %s", "log_offset"))).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def out_of_order(deliveries: DataFrame) -> DataFrame:
    """First deliveries of a queue's records that came after a later record's first delivery.

    ``reached_before``, if there is such a column, is what deliveries that are not among these had reached.
    """
    record = Window.partitionBy(*QUEUE, "queue_offset", "log_offset").orderBy(*ORDER)
    firsts = deliveries.withColumn("nth", sf.row_number().over(record)).where("nth = 1")
    before = Window.partitionBy(*QUEUE).orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, -1)
    reached = sf.max("queue_offset").over(before)
    if "reached_before" in deliveries.columns:
        reached = sf.greatest(reached, "reached_before")
    turned = firsts.withColumn("reached", reached).where("queue_offset < reached")
    return contract(
        turned.select(
            sf.lit("out_of_order").alias("kind"),
            timestamp("wall_us").alias("time"),
            "consumer_group",
            sf.col("unique_key").alias("message_id"),
            "broker_name", "topic", "queue_id", "queue_offset",
            text("first delivered after offset %s", "reached").alias("detail"),
            lines(line("DELIVER", text("delivery %s", "delivery_id"))).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def offset_regressions(events: DataFrame) -> DataFrame:
    """A broker let a consumer lower its group's offset; the harm shows when the queue is opened next."""
    return contract(
        needs.of(events, OffSet).select(
            sf.lit("offset_regression").alias("kind"),
            timestamp("wall_us").alias("time"),
            sf.col("group").alias("consumer_group"),
            "broker_name", "topic", "queue_id",
            sf.col("new").alias("queue_offset"),
            text("%s lowered the offset from %s to %s (%s)", "client_id", "old", "new", "by").alias("detail"),
            lines(line("OFF_SET", text("%s to %s", "old", "new"))).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip
