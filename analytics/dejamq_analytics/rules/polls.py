"""What no poll should do: go past messages that the group was never given, or see one before it is committed."""

from dejamq_proto.codes import Code
from dejamq_proto.events import Pull
from dejamq_proto.names import HALF_TOPIC
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from dejamq_analytics.rules.evidence import line, lines, text, timestamp
from dejamq_analytics.schema import ANOMALY_COLUMNS, contract, of


def skipped(events: DataFrame) -> DataFrame:
    """A broker sent a member forward: what it asked for is no longer there, deleted before the group had read it.

    Source: Jepsen's poll-skip; RocketMQ ``PULL_OFFSET_MOVED`` to the queue's new minimum.
    """
    forward = sf.col("next_offset") > sf.col("request_offset")
    moved = of(events, Pull).where((sf.col("code") == int(Code.PULL_OFFSET_MOVED)) & forward)
    passed = sf.col("next_offset") - sf.col("request_offset")
    return contract(
        moved.select(
            sf.lit("poll_skip").alias("kind"),
            timestamp("wall_us").alias("time"),
            sf.col("group").alias("consumer_group"),
            "broker_name", "topic", "queue_id",
            sf.col("request_offset").alias("queue_offset"),
            text("%s was sent on to offset %s, past %s", "client_id", "next_offset", passed).alias("detail"),
            lines(line("PULL", text("asked for %s, sent to %s", "request_offset", "next_offset"))).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip


def before_commit(deliveries: DataFrame) -> DataFrame:
    """A consumer was given a half message: nobody knew yet whether its transaction would be committed.

    Source: Jepsen's precommitted-read.
    """
    halves = deliveries.where(sf.col("topic") == HALF_TOPIC)
    return contract(
        halves.select(
            sf.lit("precommitted_read").alias("kind"),
            timestamp("wall_us").alias("time"),
            "consumer_group",
            sf.col("unique_key").alias("message_id"),
            "broker_name", "topic", "queue_id", "queue_offset",
            sf.lit("a half message was delivered").alias("detail"),
            lines(line("DELIVER", text("delivery %s", "delivery_id"))).alias("evidence"),
        ),
        ANOMALY_COLUMNS,
    )  # fmt: skip
