"""One row a stored record, from the brokers' journals and from their commit logs, and one a sending of a message."""

from typing import Any

from dejamq_proto.journal.events import Append, Boot, SendResultEvent, SendTry
from dejamq_proto.journal.events.producer import CLOSED_BY_A_TIMEOUT
from dejamq_proto.names import SCHEDULE_TOPIC, SYSTEM_PREFIX

from dejamq_analytics.frames import Column, DataFrame, Window
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.identity import RECORD
from dejamq_analytics.sources.needs import Needs, begins, every, of_messages, some, those

REQUEST = ("boot_id", "request_seq")
"""Names the request of a SEND_TRY and of its SEND_RESULT."""
COLUMNS = (
    *RECORD, "unique_key", "origin", "origin_ref", "reconsume_times", "client_boot_id", "request_seq", "store_host",
    "process", "boot_id", "seq", "wall_us", "position",
)  # fmt: skip


def is_of_broker(append: Any) -> Any:
    """Of an APPEND: no plain send, so that rules ask more of it than how often it came."""
    return (append.origin != "client") | some(append.topics, _is_internal)


def _is_internal(topic: Any) -> Any:
    return begins(topic, "%") | (topic == SCHEDULE_TOPIC) | begins(topic, SYSTEM_PREFIX)


needs = Needs(every(Boot), of_messages(Append, SendTry, SendResultEvent), those(Append, is_of_broker))


def appends(events: DataFrame) -> DataFrame:
    """Records that brokers journaled as they entered the log."""
    hosts = needs.of(events, Boot).groupBy("boot_id").agg(sf.max("address").alias("store_host"))
    return records(events).join(sf.broadcast(hosts), "boot_id", how="left").select(*COLUMNS)


def records(events: DataFrame) -> DataFrame:
    """One row a record of each APPEND, as far as the line itself tells."""
    varying = ("queue_index", "queue_offsets", "log_offsets", "unique_keys", "origin_refs", "reconsume_times")
    common = (
        "boot_id", "process", "seq", "wall_us", "broker_name", "origin", "client_boot_id", "request_seq", "topics",
        "queue_ids",
    )  # fmt: skip
    runs = needs.of(events, Append).select(*common, sf.posexplode(sf.arrays_zip(*varying)).alias("position", "one"))
    which = sf.col("one.queue_index").cast("int")
    return runs.select(
        "broker_name",
        sf.get("topics", which).alias("topic"),
        sf.get("queue_ids", which).alias("queue_id"),
        sf.col("one.queue_offsets").alias("queue_offset"),
        sf.col("one.log_offsets").alias("log_offset"),
        sf.nullif(sf.col("one.unique_keys"), sf.lit("")).alias("unique_key"),
        "origin",
        sf.nullif(sf.col("one.origin_refs"), sf.lit("")).alias("origin_ref"),
        sf.coalesce("one.reconsume_times", sf.lit(0)).alias("reconsume_times"),
        sf.nullif(sf.col("client_boot_id"), sf.lit("")).alias("client_boot_id"),
        "request_seq", "process", "boot_id", "seq", "wall_us", "position",
    )  # fmt: skip


def with_logs(appends: DataFrame, records: DataFrame, events: DataFrame) -> DataFrame:
    """The journaled records and those that only a commit log still has (older journals are gone, or were off).

    A commit log does not name its broker: the journals tell who listens at the records' store host.
    """
    brokers = (
        needs.of(events, Boot).groupBy(sf.col("address").alias("store_host")).agg(sf.max("broker_name").alias("named"))
    )
    logged = records.join(sf.broadcast(brokers), "store_host", how="left").select(
        sf.coalesce("named", "store").alias("broker_name"),
        "topic", "queue_id", "queue_offset", "log_offset", _own_key().alias("unique_key"),
        _origin_in_log().alias("origin"),
        "reconsume_times", "store_host",
        (sf.col("store_timestamp_ms") * 1000).alias("wall_us"),
        sf.lit(0).alias("position"),
    )  # fmt: skip
    # a slave's log has its master's records
    unknown = logged.distinct().join(appends.select(*RECORD), list(RECORD), how="left_anti")
    return appends.select(*COLUMNS).unionByName(unknown, allowMissingColumns=True).select(*COLUMNS)


def _own_key() -> Column:
    """RocketMQ gives the messages of a batch one unique key; where that is so, what they hold tells them apart."""
    content = sf.concat_ws("|", "body_crc", "keys")
    one = Window.partitionBy("store_host", "topic", "unique_key", "reconsume_times")
    batch = sf.min(content).over(one) != sf.max(content).over(one)
    return sf.when(batch & sf.col("unique_key").isNotNull(), sf.concat_ws("/", "unique_key", content)).otherwise(
        sf.col("unique_key")
    )


def _origin_in_log() -> Column:
    """The writer of a record, as far as the stored properties tell; only plain sends count as a client's."""
    delayed = sf.col("topic").startswith("SCHEDULE_TOPIC") | sf.col("real_topic").isNotNull()
    retried = sf.col("topic").startswith("%") | sf.col("retry_topic").isNotNull()
    transaction = (sf.col("sys_flag").bitwiseAND(12) != 0) | sf.col("topic").startswith("RMQ_SYS_")
    return sf.when(retried, "sendback").when(transaction, "transaction").when(delayed, "schedule").otherwise("client")


def sends(events: DataFrame) -> DataFrame:
    """One row a message of each try, with how the try ended (null: nobody knows)."""
    ended = sf.struct("seq", "outcome", "code", "definite", "reason")
    results = answers(events).groupBy(*REQUEST).agg(sf.min(ended).alias("ended"))
    return tries(events).join(results, list(REQUEST), how="left").select(
        *REQUEST, "process", "seq", "wall_us", "broker_name", "group", "unique_key", "call_id", "try_no", "mode",
        sf.col("ended.seq").alias("result_seq"),
        sf.col("ended.outcome").alias("outcome"),
        sf.col("ended.code").alias("code"),
        sf.col("ended.definite").alias("definite"),
        sf.coalesce(sf.contains("ended.reason", sf.lit(CLOSED_BY_A_TIMEOUT)), sf.lit(False)).alias("by_another"),
    )  # fmt: skip


def tries(events: DataFrame) -> DataFrame:
    """One row a message of each SEND_TRY, as far as the line itself tells."""
    runs = needs.of(events, SendTry).select(
        *REQUEST, "process", "seq", "wall_us", "broker_name", "group", "modes",
        sf.posexplode(sf.arrays_zip("unique_keys", "call_ids", "tries")).alias("place", "one"),
    )  # fmt: skip
    several = sf.when(sf.size("modes") > 1, sf.get("modes", "place")).otherwise(sf.get("modes", sf.lit(0)))
    return runs.select(
        *REQUEST, "process", "seq", "wall_us", "broker_name", "group",
        sf.col("one.unique_keys").alias("unique_key"),
        sf.col("one.call_ids").alias("call_id"),
        sf.col("one.tries").alias("try_no"),
        sf.coalesce(several, sf.lit("sync")).alias("mode"),
    )  # fmt: skip


def answers(events: DataFrame) -> DataFrame:
    """Each SEND_RESULT; ``REQUEST`` names its tries."""
    return needs.of(events, SendResultEvent)
