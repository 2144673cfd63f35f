"""Which deliveries repeat an earlier one, and in what sense.

I1: the same stored record again; another message may have its place, where a log lost its end. I2: another record with
the same unique key. I3: another unique key with the same business key. A delivery is the second of at most one pair,
the strongest identity first; ``first`` is the latest delivery before it with that identity, in the same group. Other
groups are no duplicates, nor are other members of a broadcasting group (``audiences``).
"""

from collections.abc import Sequence

from dejamq_analytics.frames import Column, DataFrame, Window, WindowSpec, in_duckdb
from dejamq_analytics.frames import functions as sf

RECORD = ("broker_name", "topic", "queue_id", "queue_offset", "log_offset")
ORDER = ("wall_us", "boot_id", "seq", "position")
WORTH_IT, WORTH_IT_IN_DUCKDB = 100_000, 1_000


def pairs(deliveries: DataFrame, broadcasting: Sequence[str] = ()) -> DataFrame:
    """(``identity``, ``first``, ``second``): one row for each delivery that repeats an earlier one.

    Order is by wall clock, which is what machines share; between two of them it is as good as their clocks. The
    cause is then decided by sequence numbers within one process and by what brokers said, not by this order.
    """
    receiver = _receiver(broadcasting)
    whole = sf.struct(*deliveries.columns)
    # a message without a key repeats nobody by key: its own delivery is its key, so that no partition collects them all
    alone = sf.concat_ws("-", "boot_id", "delivery_id")
    ranked = _repeating(deliveries, receiver).select(
        whole.alias("second"),
        _before(whole, receiver, *RECORD, sf.coalesce("unique_key", sf.lit(""))).alias("same_record"),
        _before(whole, receiver, sf.coalesce("unique_key", alone)).alias("same_key"),
        _before(whole, receiver, sf.coalesce("business_key", alone)).alias("same_business"),
    )
    first = sf.coalesce("same_record", "same_key", "same_business")
    identity = (
        sf.when(sf.col("same_record").isNotNull(), "I1").when(sf.col("same_key").isNotNull(), "I2").otherwise("I3")
    )
    return ranked.where(first.isNotNull()).select(identity.alias("identity"), first.alias("first"), "second")


def _repeating(deliveries: DataFrame, receiver: Column) -> DataFrame:
    """Deliveries that share a key with another one: others are neither sorted nor carried through windows.

    Few share a key, so that one grouping of small numbers takes the place of three sorts of whole rows; two keys of one
    number only make a candidate more. Not worth its own steps where there is little.
    """
    if deliveries.count() < (WORTH_IT_IN_DUCKDB if in_duckdb() else WORTH_IT):
        return deliveries
    record = sf.concat_ws("|", *RECORD)
    keyed = deliveries.withColumn("_key", sf.xxhash64(receiver, sf.coalesce("unique_key", record)))
    keyed = keyed.withColumn("_business", sf.xxhash64(receiver, "business_key"))
    in_business = keyed.where(sf.col("business_key").isNotNull())
    by_key = keyed.join(_shared(keyed, "_key"), "_key", how="left_semi")
    by_business = in_business.join(_shared(in_business, "_business"), "_business", how="left_semi")
    more = by_business.join(_shared(keyed, "_key"), "_key", how="left_anti")
    return by_key.select(*deliveries.columns).unionByName(more.select(*deliveries.columns))


def _shared(keyed: DataFrame, key: str) -> DataFrame:
    return keyed.groupBy(key).agg(sf.count("*").alias("_n")).where("_n > 1").select(key)


def stored_twice(appends: DataFrame) -> DataFrame:
    """(``first``, ``second``): copies that clients sent of one message to one topic, each with the copy before it.

    Retry and dead-letter topics are left out: a consumer's own fallback writes there.
    """
    whole = sf.struct(*appends.columns)
    # of what only a log has, its place in the log tells what came first within a millisecond
    order = Window.partitionBy("topic", "unique_key").orderBy(*ORDER, "log_offset")
    sent = appends.where(
        (sf.col("origin") == "client") & sf.col("unique_key").isNotNull() & ~sf.col("topic").startswith("%")
    )
    ranked = sent.select(whole.alias("second"), sf.lag(whole).over(order).alias("first"))
    return ranked.where(sf.col("first").isNotNull()).select("first", "second")


def _before(whole: Column, *keys: str | Column) -> Column:
    """The latest earlier delivery with these keys. A delivery that an operator asked for counts only without others.

    It opened no queue and moved no offset, so nothing later can be its doing.
    """
    earlier = _ordered(*keys).rowsBetween(Window.unboundedPreceding, -1)
    ordinary = sf.when(sf.col("kind") != "direct", whole)
    return sf.coalesce(sf.last(ordinary, ignorenulls=True).over(earlier), sf.last(whole).over(earlier))


def _receiver(broadcasting: Sequence[str]) -> Column:
    """The receiver that should have a message once: the group, or each member of it."""
    group = sf.col("consumer_group")
    if not broadcasting:
        return group
    return sf.when(group.isin(*broadcasting), sf.concat_ws("\n", group, "client_id")).otherwise(group)


def _ordered(*keys: str | Column) -> WindowSpec:
    return Window.partitionBy(*keys).orderBy(*ORDER)
