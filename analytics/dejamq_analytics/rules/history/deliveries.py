"""One row a delivery: a handler was entered with a message, and how that ended."""

from typing import Any

from dejamq_proto.journal.events import Deliver, Result, Sendback

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.sources.needs import Needs, of_messages, those

DELIVERY_KEY = ("boot_id", "delivery_id")


def is_direct(delivery: Any) -> Any:
    """Of a DELIVER: an operator gave it to one member."""
    return delivery.kind == "direct"


needs = Needs(of_messages(Deliver, Result, Sendback), those(Deliver, is_direct))


def deliveries(events: DataFrame) -> DataFrame:
    """Every delivery with its result and its request for a retry; ``result`` is null when none was journaled.

    A delivery is named by (boot id, delivery id). ``position`` is its place in the journal line that told of
    its run: with the line's ``seq`` it orders the deliveries of one process. ``batch`` messages were given to one call
    of the handler, and ``ended_together`` of them had this result.
    """
    joined = (
        entered(events)
        .join(_ended(events), list(DELIVERY_KEY), how="left")
        .join(_sent_back(events), list(DELIVERY_KEY), how="left")
    )
    return joined.select(
        "boot_id", "process", "seq", "wall_us", "position",
        "delivery_id", "consumer_group", "client_id", "pq_id", "broker_name", "topic", "queue_id", "queue_offset",
        "log_offset", "unique_key", "business_key", "reconsume_times", "kind", "store_host", "batch",
        sf.col("ended.together").alias("ended_together"),
        sf.col("ended.status").alias("result"),
        sf.col("ended.seq").alias("result_seq"),
        sf.col("ended.mem_off").alias("result_mem_off"),
        sf.col("ended.wall_us").alias("result_wall_us"),
        sf.coalesce("ended.pq_dropped", sf.lit(False)).alias("pq_dropped"),
        sf.col("sent_back.outcome").alias("sendback_outcome"),
        sf.col("sent_back.path").alias("sendback_path"),
        sf.col("sent_back.seq").alias("sendback_seq"),
        sf.coalesce(sf.col("sent_back.reason") == "expired", sf.lit(False)).alias("sendback_expired"),
        sf.coalesce("ended.failed", sf.lit(False)).alias("failed"),
    )  # fmt: skip


def entered(events: DataFrame) -> DataFrame:
    """One row a message of each DELIVER, as far as the line itself tells."""
    varying = (
        "delivery_ids", "queue_offsets", "log_offsets", "unique_keys", "reconsume_times", "business_keys",
        "store_hosts", "batches",
    )  # fmt: skip
    common = (
        "boot_id", "process", "seq", "wall_us", "client_id", "pq_id", "broker_name", "topic", "queue_id", "kind"
    )  # fmt: skip
    # the number of messages of one handler call; runs of single messages have no batch id, and a damaged line's sizes
    # are not replaced
    batch = sf.when(sf.col("batch_id") > 0, sf.size("delivery_ids")).otherwise(1)
    told = sf.aggregate("batch_sizes", sf.lit(0).cast("bigint"), lambda total, size: total + size)
    sizes = sf.when(told == sf.size("delivery_ids"), sf.col("batch_sizes")).otherwise(sf.array().cast("array<bigint>"))
    batches = sf.flatten(sf.transform(sizes, lambda size: sf.array_repeat(size, size.cast("int"))))
    runs = (
        needs.of(events, Deliver)
        .withColumn("batches", batches)
        .select(
            *common,
            sf.col("group").alias("consumer_group"),
            batch.alias("only_batch"),
            sf.when(sf.size("store_hosts") == 1, sf.get("store_hosts", sf.lit(0))).alias("host_of_all"),
            sf.posexplode(sf.arrays_zip(*varying)).alias("position", "one"),
        )
    )
    return runs.select(
        *common, "consumer_group", "position",
        sf.coalesce("one.batches", "only_batch").alias("batch"),
        sf.col("one.delivery_ids").alias("delivery_id"),
        sf.col("one.queue_offsets").alias("queue_offset"),
        sf.col("one.log_offsets").alias("log_offset"),
        _text_or_null("one.unique_keys").alias("unique_key"),
        _text_or_null("one.business_keys").alias("business_key"),
        sf.coalesce("one.reconsume_times", sf.lit(0)).alias("reconsume_times"),
        sf.coalesce("host_of_all", "one.store_hosts").alias("store_host"),
    )  # fmt: skip


def results(events: DataFrame) -> DataFrame:
    """One row a ``delivery_id`` of each RESULT."""
    return needs.of(events, Result).select("*", sf.explode("delivery_ids").alias("delivery_id"))


def sendbacks(events: DataFrame) -> DataFrame:
    """One row a ``delivery_id`` of each SENDBACK."""
    return needs.of(events, Sendback).select("*", sf.explode("delivery_ids").alias("delivery_id"))


def _ended(events: DataFrame) -> DataFrame:
    """The first result of each delivery: a later one could only repeat it, and must not multiply the row."""
    runs = results(events)
    together = sf.size("delivery_ids").alias("together")
    # what took longer than the consume time-out has its own status, and the handler's word in the reason
    failed = ~sf.col("status").isin("success", "timeout") | sf.col("reason").startswith("reconsume")
    ended = sf.struct("seq", "status", "mem_off", "wall_us", "pq_dropped", together, failed.alias("failed"))
    return runs.groupBy(*DELIVERY_KEY).agg(sf.min(ended).alias("ended"))


def _sent_back(events: DataFrame) -> DataFrame:
    """The last request for a retry of each delivery, as a failed one may be repeated on another path."""
    runs = sendbacks(events)
    return runs.groupBy(*DELIVERY_KEY).agg(sf.max(sf.struct("seq", "outcome", "path", "reason")).alias("sent_back"))


def _text_or_null(name: str) -> Column:
    return sf.nullif(sf.col(name), sf.lit(""))
