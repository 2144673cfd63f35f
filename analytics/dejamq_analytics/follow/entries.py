"""What each message of a line is about, as a few numbers a message: lines that belong together have equal ones.

Numbers are hashes of one engine in one process. Two things of one number only make more lines belong together.
"""

from dejamq_proto.journal.events import (
    Append,
    Deliver,
    Handout,
    Pull,
    Result,
    Sendback,
    SendEnd,
    SendResultEvent,
    SendTry,
)

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.anomalies.common import FOUND
from dejamq_analytics.rules.joins import united
from dejamq_analytics.sources.schema import of, tag_of

ABOUT_MESSAGES = tuple(tag_of(event) for event in (Append, Deliver, Result, Sendback, SendResultEvent, SendTry))
"""Of these lines only those of messages that matter go through the rules."""
OF_NO_RULE = tuple(tag_of(event) for event in (Handout, SendEnd))
"""Nor is a PULL that found what it asked for, but for anomalies that need whole journals."""
LINE = ("boot_id", "seq", "wall_us")


def of_a_rule(lines: DataFrame) -> DataFrame:
    """Without lines that no rule of a following audit reads."""
    found = (sf.col("event") == tag_of(Pull)) & (sf.coalesce("code", sf.lit(FOUND)) == FOUND)
    return lines.where(~sf.col("event").isin(*OF_NO_RULE) & ~found)


def about_no_message(lines: DataFrame) -> DataFrame:
    """Lines that all rules see in every step."""
    return lines.where(~sf.col("event").isin(*ABOUT_MESSAGES))


def entries(lines: DataFrame) -> DataFrame:
    """One row a message of each line about messages.

    ``name`` is the message, ``own`` the delivery or the request, ``business`` its business event, ``place`` its place
    in a queue, ``queue`` the group's queue, ``pq`` the process queue, ``reached`` the mark behind a result.
    """
    return united([_deliveries(lines), _results(lines), _sent_back(lines), _appends(lines), *_sends(lines)])


def spot(pq: str, offset: str) -> Column:
    """A delivery's place in a process queue."""
    return sf.xxhash64(pq, offset)


def _deliveries(lines: DataFrame) -> DataFrame:
    zipped = sf.arrays_zip("delivery_ids", "queue_offsets", "log_offsets", "unique_keys", "business_keys")
    each = of(lines, Deliver).select(*LINE, "group", "broker_name", "topic", "queue_id", "pq_id",
                                     sf.explode(zipped).alias("one"))  # fmt: skip
    business = sf.nullif("one.business_keys", sf.lit(""))
    return each.select(
        *LINE, _name(sf.col("topic"), sf.col("queue_id")), _own(sf.col("one.delivery_ids")),
        sf.when(business.isNotNull(), sf.xxhash64(business)).alias("business"),
        sf.xxhash64("broker_name", "topic", "queue_id", "one.queue_offsets").alias("place"),
        sf.xxhash64("group", "broker_name", "topic", "queue_id").alias("queue"), _pq(),
        sf.col("one.queue_offsets").alias("queue_offset"), "topic",
    )  # fmt: skip


def _results(lines: DataFrame) -> DataFrame:
    each = of(lines, Result).select("*", sf.explode("delivery_ids").alias("id"))
    reached = sf.when(~sf.col("pq_dropped"), sf.col("mem_off"))
    return each.select(*LINE, _own(sf.col("id")), _pq(), reached.alias("reached"))


def _sent_back(lines: DataFrame) -> DataFrame:
    each = of(lines, Sendback).select(*LINE, sf.explode("delivery_ids").alias("id"))
    return each.select(*LINE, _own(sf.col("id")))


def _appends(lines: DataFrame) -> DataFrame:
    zipped = sf.arrays_zip("queue_index", "log_offsets", "unique_keys")
    each = of(lines, Append).select(*LINE, "broker_name", "topics", "queue_ids", sf.explode(zipped).alias("one"))
    which = sf.col("one.queue_index").cast("int")
    return each.select(*LINE, _name(sf.get("topics", which), sf.get("queue_ids", which)))


def _sends(lines: DataFrame) -> list[DataFrame]:
    own = sf.xxhash64("boot_id", sf.concat_ws(":", sf.lit("request"), "request_seq")).alias("own")
    tries = of(lines, SendTry).select(*LINE, "request_seq", sf.explode("unique_keys").alias("key"))
    return [
        tries.select(*LINE, sf.when(sf.col("key") != "", sf.xxhash64("key")).alias("name"), own),
        of(lines, SendResultEvent).select(*LINE, own),
    ]


def _name(topic: Column, queue_id: Column) -> Column:
    """A message without a unique key is known by its place in the log."""
    record = sf.concat_ws("|", "broker_name", topic, queue_id, "one.log_offsets")
    return sf.xxhash64(sf.coalesce(sf.nullif("one.unique_keys", sf.lit("")), record)).alias("name")


def _own(delivery_id: Column) -> Column:
    return sf.xxhash64("boot_id", sf.concat_ws(":", sf.lit("delivery"), delivery_id)).alias("own")


def _pq() -> Column:
    return sf.xxhash64("boot_id", "pq_id").alias("pq")
