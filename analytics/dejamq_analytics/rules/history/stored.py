"""Facts from commit logs alone: stored records that repeat another one, and their origin.

A log has no journal's word of who wrote a record, but RocketMQ writes it into the record itself: the topic, the system
flag, REAL_TOPIC, ORIGIN_MESSAGE_ID, the half message's place. A record is named by (store host, log offset), which is
its offset message id; a slave's log has its master's records, which count once.
"""

from dejamq_proto import names
from dejamq_proto.records.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_MASK

from dejamq_analytics.frames import Column, DataFrame, Window
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of

ORDER = ("store_timestamp_ms", "store_host", "log_offset")
SIDE = (
    "store", "store_host", "topic", "queue_id", "queue_offset", "log_offset", "unique_key", "business_key",
    "reconsume_times", "origin_message_id", "store_timestamp_ms", "prepared_offset", "check_times", "origin",
)  # fmt: skip
SAME = ("topic", "message", "reconsume_times")
"""Records of one message, in one topic and at one step of its retries: there should be one."""


def records(logs: DataFrame) -> DataFrame:
    """Each record once, with its ``origin``: client, waiting (for its delay), due, retry, dead, half, op, final,
    replayed (by an operator), system. ``message`` names what copies have in common; retries keep it.
    """
    known = logs.where("topic IS NOT NULL").withColumn("origin", _origin())
    place = ("store_host", "log_offset", "topic", "queue_id", "queue_offset", "store_timestamp_ms", "unique_key")
    one = Window.partitionBy(*place).orderBy("store")
    once = known.withColumn("nth", sf.row_number().over(one)).where("nth = 1")
    # RocketMQ gives the messages of a batch one unique key; what they hold tells them apart
    content = sf.concat_ws("|", sf.coalesce("unique_key", "origin_message_id"), "body_crc", "keys")
    named = sf.coalesce("unique_key", "origin_message_id").isNotNull()
    return once.withColumn("message", sf.when(named, content)).drop("nth")


def _origin() -> Column:
    topic, real = sf.col("topic"), sf.col("real_topic")
    committed = sf.col("sys_flag").bitwiseAND(SYS_TRANSACTION_MASK) == SYS_TRANSACTION_COMMIT
    system = topic.isin(*names.NOT_FOR_SENDING, *names.SYSTEM_TOPICS) | sf.lower(topic).startswith(names.SYSTEM_PREFIX)
    word = sf.lit
    return first_of(
        (topic == names.HALF_TOPIC, word("half")),
        (topic == names.OP_TOPIC, word("op")),
        (topic == names.SCHEDULE_TOPIC, word("waiting")),
        (system, word("system")),
        (topic.startswith(names.DLQ_PREFIX), word("dead")),
        (topic.startswith(names.RETRY_PREFIX), word("retry")),
        (committed, word("final")),
        (sf.col("replay_of").isNotNull(), word("replayed")),
        (topic == real, word("due")),
        (word(True), word("client")),
    )


def copies(every: DataFrame) -> DataFrame:
    """(``identity``, ``first``, ``second``, ``nth``, ``waited``): each stored copy with the one before it.

    ``nth`` counts the copies of one step from 1. ``waited`` counts the records in the schedule topic for that step.
    """
    made = every.where("origin IN ('client', 'due', 'retry', 'dead', 'final') AND message IS NOT NULL")
    order = Window.partitionBy(*SAME).orderBy(*ORDER)
    ranked = made.select(
        sf.lit("I2").alias("identity"), sf.lag(_whole()).over(order).alias("first"), _whole().alias("second"), *SAME,
        sf.row_number().over(order).cast("bigint").alias("nth"),
    )  # fmt: skip
    again = ranked.where(sf.col("first").isNotNull())
    waited = every.where("origin = 'waiting'").groupBy(sf.col("real_topic").alias("topic"), *SAME[1:]).agg(
        sf.count("*").alias("waited")
    )  # fmt: skip
    counted = again.join(waited, list(SAME), how="left")
    return counted.select("identity", "first", "second", "nth", sf.coalesce("waited", sf.lit(0)).alias("waited"))


def same_business(every: DataFrame) -> DataFrame:
    """As ``copies``: messages, each with the one before it of the same business key and topic."""
    sent = every.where("origin IN ('client', 'due', 'final') AND message IS NOT NULL AND business_key IS NOT NULL")
    one = Window.partitionBy("topic", "message").orderBy(*ORDER)
    firsts = sent.withColumn("nth", sf.row_number().over(one)).where("nth = 1")
    order = Window.partitionBy("topic", "business_key").orderBy(*ORDER)
    ranked = firsts.select(
        sf.lit("I3").alias("identity"), sf.lag(_whole()).over(order).alias("first"), _whole().alias("second"),
        sf.row_number().over(order).cast("bigint").alias("nth"), sf.lit(0).cast("bigint").alias("waited"),
    )  # fmt: skip
    return ranked.where(sf.col("first").isNotNull())


def retries(every: DataFrame) -> DataFrame:
    """(``first``, ``second``): each step of a retry chain, with what came before it where a log has that.

    A doubled step is a copy and told of as such.
    """
    chain = Window.partitionBy("topic", "message").orderBy("reconsume_times", *ORDER)
    step = Window.partitionBy(*SAME).orderBy(*ORDER)
    steps = every.where("origin = 'retry' AND message IS NOT NULL").select(
        "message", sf.lag(_whole()).over(chain).alias("before"), _whole().alias("whole"),
        sf.row_number().over(step).alias("nth"),
    )  # fmt: skip
    sent = every.where("origin IN ('client', 'due', 'final') AND message IS NOT NULL")
    originals = sent.groupBy("message").agg(sf.min_by(_whole(), sf.struct(*ORDER)).alias("original"))
    known = steps.where("nth = 1").join(originals, "message", how="left")
    pairs = known.select(sf.coalesce("before", "original").alias("first"), sf.col("whole").alias("second"))
    return pairs.where(sf.col("first").isNotNull())


def with_halves(pairs: DataFrame, every: DataFrame) -> DataFrame:
    """Beside two commits: the half message of each, ``first_half`` and ``second_half``, and ``mark``.

    ``mark`` is the op message between the two commits: the first one's half message has ended.

    All lie within one log, because brokers that never met may have had one address.
    """
    half = sf.struct("store", "log_offset", "queue_offset", "check_times")
    halves = every.where("origin = 'half'").select(sf.col("store").alias("log"), sf.col("log_offset").alias("at"),
                                                   half.alias("half"))  # fmt: skip
    frame = pairs
    for side in ("first", "second"):
        there = (sf.col("log") == sf.col(f"{side}.store")) & (sf.col("at") == sf.col(f"{side}.prepared_offset"))
        named = halves.withColumnRenamed("half", f"{side}_half")
        frame = frame.join(named, there, how="left").drop("log", "at")
    one = (sf.col("mark.store") == sf.col("first.store")) & (sf.col("mark.store") == sf.col("second.store"))
    one &= sf.col("ended") == sf.col("first_half.queue_offset")
    one &= (sf.col("mark.log_offset") > sf.col("first.log_offset")) & (
        sf.col("mark.log_offset") < sf.col("second.log_offset")
    )
    beside = frame.join(_marks(every), one, how="left").groupBy(*frame.columns)
    return beside.agg(sf.min("mark").alias("mark"))


def _marks(every: DataFrame) -> DataFrame:
    """One row for each half message that an op message names."""
    ops = every.where("origin = 'op' AND marked IS NOT NULL")
    named = ops.select(sf.struct("log_offset", "store").alias("mark"), sf.explode(sf.split("marked", ",")).alias("one"))
    return named.select("mark", sf.col("one").try_cast("bigint").alias("ended"))


def _whole() -> Column:
    return sf.struct(*SIDE)
