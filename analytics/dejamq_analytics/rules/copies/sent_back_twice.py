"""B11: one failure, two retries. The broker stored the returned message, and its answer got lost. The consumer then
sent the message to the retry topic itself.

A retry waits in the schedule topic before it is delivered, so its way is walked back. It leads from the record in the
retry topic to the place that it waited at, and from the append there to the request of the consumer's failed delivery.
"""

from dejamq_proto.names import SCHEDULE_TOPIC

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import line, line_of, lines, text
from dejamq_analytics.rules.history.deliveries import sendbacks
from dejamq_analytics.rules.identity import RECORD
from dejamq_analytics.rules.joins import beside

PLACE = {"broker_name": "broker_name", "queue_id": "place_queue", "queue_offset": "place_offset"}
"""Where a record waited, to where its retry says that it was made from."""
FAILURE = ("asker_boot", "asker_delivery")
"""Names the delivery that failed."""


def by_the_client(events: DataFrame) -> DataFrame:
    """Requests that consumers sent by themselves after a send-back without a good answer."""
    sent = sendbacks(events).where("path = 'fallback' AND outcome != 'failed'")
    return sent.select(
        sf.col("boot_id").alias("asker_boot"), sf.col("delivery_id").alias("asker_delivery"), "request_seq",
        sf.struct("process", "boot_id", "seq", "outcome").alias("fallback"),
    )  # fmt: skip


def doubled(appends: DataFrame, events: DataFrame, fallbacks: DataFrame) -> DataFrame:
    """Retry records that consumers made besides the broker's: by record, ``copy`` as ``copies.by_record`` has it."""
    waiting = appends.where(sf.col("topic") == SCHEDULE_TOPIC)
    by_broker = _of_broker(appends)
    by_client = beside(
        waiting.where("origin = 'client'"), fallbacks, {"asker_boot": "client_boot_id", "request_seq": "request_seq"},
        small=False,
    ).withColumn("asker_boot", sf.col("client_boot_id"))  # fmt: skip
    both = beside(by_client, by_broker, {name: name for name in FAILURE}, small=False)
    both = beside(both, _asked(events), {name: name for name in FAILURE}, small=False)
    twice = both.where(sf.col("broker_copy").isNotNull() & sf.col("fallback").isNotNull())
    return delivered_from(twice.select(*PLACE, _judgement().alias("copy")), appends)


def delivered_from(judged: DataFrame, appends: DataFrame) -> DataFrame:
    """By retry record: the ``copy`` of the record that waited for it in the schedule topic."""
    made = appends.where((sf.col("origin") == "schedule") & sf.col("topic").startswith("%"))
    level, offset = (sf.split("origin_ref", ":")[part].cast("bigint") for part in (0, 1))
    made = made.select(*RECORD, (level - 1).alias("place_queue"), offset.alias("place_offset"))
    return beside(made, judged, PLACE, small=False).where("copy IS NOT NULL").select(*RECORD, "copy")


def given_back(appends: DataFrame) -> DataFrame:
    """Records of send-backs that brokers stored in the schedule topic, each with the delivery that asked for it."""
    waiting = appends.where((sf.col("topic") == SCHEDULE_TOPIC) & (sf.col("origin") == "sendback"))
    delivery = sf.split("origin_ref", ":")
    return waiting.withColumns({"asker_boot": delivery[0], "asker_delivery": delivery[1].cast("bigint")})


def _of_broker(appends: DataFrame) -> DataFrame:
    """One row for each failed delivery."""
    copy = sf.struct("process", "boot_id", "seq", "broker_name")
    return given_back(appends).groupBy(*FAILURE).agg(sf.min(copy).alias("broker_copy"))


def _asked(events: DataFrame) -> DataFrame:
    """The send-back whose answer was not good."""
    sent = sendbacks(events).where("path = 'rpc' AND outcome != 'ok'")
    asked = sf.struct("process", "boot_id", "seq", "outcome")
    one = sent.select(
        sf.col("boot_id").alias("asker_boot"), sf.col("delivery_id").alias("asker_delivery"), asked.alias("asked")
    )
    return one.groupBy(*FAILURE).agg(sf.min("asked").alias("asked"))


def _judgement() -> Column:
    own, known = line("APPEND", text("by the consumer, at %s", "broker_name")), sf.col("asked").isNotNull()
    return sf.struct(
        sf.lit(0).alias("rank"),
        sf.when(known, "B11").alias("cause"),
        sf.lit("retry").alias("stage"),
        sf.when(known, text("the send-back ended %s although it was stored", "asked.outcome")).alias("trigger"),
        sf.when(~known, text("no SENDBACK by rpc of delivery %s", "asker_delivery")).alias("missing"),
        lines(
            line_of("SENDBACK", text("by rpc: %s", "asked.outcome"), "asked"),
            line_of("APPEND", text("by the send-back, at %s", "broker_copy.broker_name"), "broker_copy"),
            line_of("SENDBACK", text("by fallback: %s", "fallback.outcome"), "fallback"),
            own,
        ).alias("evidence"),
    )
