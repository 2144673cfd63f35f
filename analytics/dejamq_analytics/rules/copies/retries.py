"""Retries that the handler asked for (L1; L2 of a whole list): legal, so expected. RocketMQ's clients also ask in the
name of a handler that was interrupted (L5). A retry that nobody asked for stays undetermined.
"""

from dejamq_analytics.frames import Column, DataFrame, Window
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, line, lines, text
from dejamq_analytics.rules.identity import ORDER, RECORD
from dejamq_analytics.rules.joins import beside
from dejamq_analytics.rules.stage import NOT_BY_THIS_VERSION

CHAIN = ("consumer_group", "unique_key", "times")
LATER = 0
"""The rank of a record that is the later one of two copies; see ``copies.by_record``."""


def requested(deliveries: DataFrame) -> DataFrame:
    """How many times each step of a retry chain was asked for, and the failed delivery that asked first.

    Only failures ask. The consume time-out sends a message back while its handler runs (B13). If that handler fails
    after all, nothing is sent back a second time.
    """
    asked = deliveries.where(
        (sf.col("sendback_outcome") != "failed")
        & (sf.col("result").isNull() | (sf.col("result") != "success"))
        & sf.col("sendback_path").isin("rpc", "fallback")
        & (~sf.col("sendback_expired") | sf.col("failed"))
    )
    whole = ((sf.col("batch") > 1) & (sf.col("ended_together") == sf.col("batch"))).alias("whole_batch")
    by = sf.struct(
        "seq", "result_seq", "sendback_seq", "process", "boot_id", "result", "sendback_path", "delivery_id", "batch",
        whole,
    )  # fmt: skip
    return (
        asked.groupBy("consumer_group", "unique_key", (sf.col("reconsume_times") + 1).alias("times"))
        .agg(sf.count("*").alias("requests"), sf.min(by).alias("asker"))
        .select(*CHAIN, "requests", "asker")
    )


def retried(pairs: DataFrame, requests: DataFrame, unasked: DataFrame) -> DataFrame:
    """I2 pairs whose second is a retry record: expected while there are no more records than requests.

    RocketMQ counts a retry as a new record with the same unique key: it is a repetition that the handler asked
    for. Records that answer no request of their own are ``unasked`` (B1, B11), by record with their judgement.
    """
    chain = ("second.consumer_group", "second.unique_key", "second.reconsume_times")
    retry = pairs.where((sf.col("identity") == "I2") & sf.col("second.topic").startswith("%"))
    frame = beside(retry, unasked, {name: f"second.{name}" for name in RECORD})
    again = sf.coalesce(sf.col("copy.rank") == LATER, sf.lit(False))
    nth = sf.row_number().over(Window.partitionBy(*chain, again).orderBy(*[f"second.{name}" for name in ORDER]))
    frame = frame.withColumn("again", again).withColumn("nth", nth)
    frame = beside(frame, requests, dict(zip(CHAIN, chain, strict=True)), small=False)
    missing = first_of(
        (sf.col("again"), sf.col("copy.missing")),
        (sf.col("requests").isNull(), text("no SENDBACK of a failed delivery of message %s", "second.unique_key")),
        (
            (sf.col("asker.batch") > 1) & sf.col("asker.result").isNull(),
            text(
                "no RESULT of delivery %s, one of %s given to the handler at once", "asker.delivery_id", "asker.batch"
            ),
        ),
        (sf.col("nth") > sf.col("requests"), sf.lit(NOT_BY_THIS_VERSION + "more retry records than requests")),
    )
    known = missing.isNull()
    in_a_batch = sf.coalesce(sf.col("asker.whole_batch"), sf.lit(False))
    interrupted = sf.coalesce(sf.col("asker.result") == "cancelled", sf.lit(False))
    by_handler = sf.when(interrupted, "L5").when(in_a_batch, "L2").otherwise("L1")
    asked = sf.concat(
        text("handler: %s", "asker.result"), sf.when(in_a_batch, text(" of %s", "asker.batch")).otherwise("")
    )
    delivered = line(
        "DELIVER", text("delivery %s, try %s", "second.delivery_id", "second.reconsume_times"),
        process="second.process", boot_id="second.boot_id", seq="second.seq",
    )  # fmt: skip
    return frame.select(
        "identity", "first", "second",
        sf.when(known, sf.when(sf.col("again"), sf.col("copy.cause")).otherwise(by_handler)).alias("cause"),
        sf.when(sf.col("again"), sf.col("copy.stage")).otherwise("retry").alias("stage"),
        sf.when(sf.col("again"), sf.col("copy.trigger"))
        .otherwise(asked)
        .alias("trigger"),
        missing.alias("missing"),
        (known & ~sf.col("again")).alias("expected"),
        sf.when(sf.col("again"), sf.concat("copy.evidence", lines(delivered)))
        .otherwise(sf.concat(_asked(), lines(delivered))).alias("evidence"),
    )  # fmt: skip


def _asked() -> Column:
    """The failed delivery and its request."""
    return lines(
        line("DELIVER", text("delivery %s", "asker.delivery_id"), process="asker.process", boot_id="asker.boot_id",
             seq="asker.seq"),
        line("RESULT", text("%s", "asker.result"), process="asker.process", boot_id="asker.boot_id",
             seq="asker.result_seq"),
        line("SENDBACK", text("by %s", "asker.sendback_path"), process="asker.process", boot_id="asker.boot_id",
             seq="asker.sendback_seq"),
    )  # fmt: skip
