"""What each message of a line is about, as a few numbers a message: lines that belong together have equal ones.

Numbers are hashes of one engine in one process. Two things of one number only make more lines belong together.
"""

from dejamq_proto.journal.events import Result
from dejamq_proto.journal.lines import tag_of

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.declared import BY_PARTS, about_messages
from dejamq_analytics.rules.history import appends, deliveries
from dejamq_analytics.rules.history.queues import MARKS, QUEUE, is_settled
from dejamq_analytics.rules.joins import united
from dejamq_analytics.sources.needs import columns

LINE = ("boot_id", "seq", "wall_us")


def of_a_rule(lines: DataFrame) -> DataFrame:
    """Lines that a rule of a following audit reads: not those that need whole journals."""
    return BY_PARTS.taken(lines)


def about_no_message(lines: DataFrame) -> DataFrame:
    """Lines that all rules see in every step."""
    return lines.where(~sf.col("event").isin(*about_messages()))


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
    return deliveries.entered(lines).select(
        *LINE, _name(), _own_delivery(),
        sf.when(sf.col("business_key").isNotNull(), sf.xxhash64("business_key")).alias("business"),
        sf.xxhash64("broker_name", "topic", "queue_id", "queue_offset").alias("place"),
        sf.xxhash64(*QUEUE).alias("queue"), _pq(), "queue_offset", "topic",
    )  # fmt: skip


def _results(lines: DataFrame) -> DataFrame:
    reached = sf.when(is_settled(columns(Result)), sf.col(MARKS[tag_of(Result)]))
    return deliveries.results(lines).select(*LINE, _own_delivery(), _pq(), reached.alias("reached"))


def _sent_back(lines: DataFrame) -> DataFrame:
    return deliveries.sendbacks(lines).select(*LINE, _own_delivery())


def _appends(lines: DataFrame) -> DataFrame:
    return appends.records(lines).select(*LINE, _name())


def _sends(lines: DataFrame) -> list[DataFrame]:
    own = sf.xxhash64("boot_id", sf.concat_ws(":", sf.lit("request"), "request_seq")).alias("own")
    name = sf.when(sf.col("unique_key") != "", sf.xxhash64("unique_key")).alias("name")
    return [appends.tries(lines).select(*LINE, name, own), appends.answers(lines).select(*LINE, own)]


def _name() -> Column:
    """A message without a unique key is known by its place in the log."""
    record = sf.concat_ws("|", "broker_name", "topic", "queue_id", "log_offset")
    return sf.xxhash64(sf.coalesce("unique_key", record)).alias("name")


def _own_delivery() -> Column:
    return sf.xxhash64("boot_id", sf.concat_ws(":", sf.lit("delivery"), "delivery_id")).alias("own")


def _pq() -> Column:
    return sf.xxhash64("boot_id", "pq_id").alias("pq")
