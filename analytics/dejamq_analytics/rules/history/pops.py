"""The life of popped messages, as brokers and consumers told it: given, changed, acknowledged, tried to.

A delivery is named by the message's place and the pop time. A change gives it another pop time.
"""

from collections.abc import Callable

from dejamq_proto.journal.events import Ack, AckTry, Change, Event, Pop

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.history import losses
from dejamq_analytics.rules.joins import beside
from dejamq_analytics.sources.facts import Facts, all_of, rare, settled
from dejamq_analytics.sources.needs import Needs, every, passing

needs = Needs(passing(every(Ack, AckTry, Change, Pop)))
MESSAGE = ("consumer_group", "broker_name", "topic", "queue_id", "queue_offset")
LINES_BETWEEN = 3
"""Of a broker, from the APPEND of a check point or acknowledgement to the line about it."""
LINE = ("wall_us", "seq", "process", "boot_id")


def judged(frame: DataFrame, evidence: Column, *, asked_for: str) -> DataFrame:
    """Pairs with a ``decision``, in the columns of judged pairs. ``asked_for``: the cause that is expected."""
    return frame.select(
        "identity", "first", "second",
        sf.col("decision.cause").alias("cause"),
        sf.lit("pop").alias("stage"),
        sf.col("decision.trigger").alias("trigger"),
        sf.col("decision.missing").alias("missing"),
        sf.coalesce(sf.col("decision.cause") == asked_for, sf.lit(False)).alias("expected"),
        evidence.alias("evidence"),
    )  # fmt: skip


def with_lives(frame: DataFrame, events: DataFrame, side: str) -> DataFrame:
    """Adds what was told of the message that ``side`` (a struct with the columns of ``MESSAGE``) names, in order of
    time: ``pops``, ``changes``, ``acks`` and ``tries``.
    """
    frame = settled(frame)
    wanted = settled(frame.select(*[f"{side}.{name}" for name in MESSAGE]).distinct())
    told = {
        "pops": _each(
            events,
            Pop,
            "client_id",
            "client_boot_id",
            "request_seq",
            "pop_time",
            "invisible_ms",
            "start_offset",
            "ordered",
        ),
        "changes": _one(
            events,
            Change,
            "client_id",
            "client_boot_id",
            "request_seq",
            "pop_time",
            "new_pop_time",
            "invisible_ms",
            "how",
        ),
        "acks": _each(events, Ack, "client_id", "client_boot_id", "pop_time", "outcome", "reason"),
        "tries": _tries(events),
    }
    lists = [
        _in_order(lines.join(sf.broadcast(wanted), list(MESSAGE), how="left_semi"), name)
        for name, lines in told.items()
    ]
    for each in all_of(rare, *lists):
        frame = beside(frame, each, {key: f"{side}.{key}" for key in MESSAGE}, small=False)
    return settled(frame)


def _in_order(lines: DataFrame, name: str) -> DataFrame:
    more = [column for column in lines.columns if column not in (*MESSAGE, *LINE)]
    one = sf.struct(*LINE, *more, "topic", "queue_id")
    return lines.groupBy(*MESSAGE).agg(sf.array_sort(sf.collect_list(one)).alias(name))


def last_of(told: str, fits: Callable[[Column], Column]) -> Column:
    """The newest line of this list that fits, or null."""
    left = sf.filter(told, fits)
    return sf.get(left, sf.size(left) - 1)


def with_lost(frame: DataFrame, facts: Facts, told: str, tag: Column) -> DataFrame:
    """Adds ``end``: the start of the broker whose log had lost the record of this POP or ACK, null where none had.

    ``tag`` is that of the record, ck, ack or bAck. Its APPEND stands shortly before the line.
    """
    gone = losses.cut_off(facts.appends.where("origin = 'pop'"), facts.events)
    part = sf.split("unique_key", "@")  # topic, queue, offset, group, pop time, broker, tag
    key = sf.concat_ws("@", part[0], part[1], part[2], part[4], part[6])
    one = sf.struct("seq", "end")
    lost = rare(gone).select(sf.col("boot_id").alias("lost_boot"), key.alias("lost_key"), one.alias("one"))
    lists = lost.groupBy("lost_boot", "lost_key").agg(sf.collect_list("one").alias("lost"))
    mine = sf.concat_ws("@", f"{told}.topic", f"{told}.queue_id", f"{told}.lowest", f"{told}.pop_time", tag)
    frame = frame.withColumn("told_key", mine)
    frame = beside(frame, lists, {"lost_boot": f"{told}.boot_id", "lost_key": "told_key"}, small=False)
    seq = sf.col(f"{told}.seq")
    near = sf.filter("lost", lambda each: (each["seq"] < seq) & (each["seq"] >= seq - LINES_BETWEEN))
    return frame.withColumn("end", sf.get(near, sf.lit(0))["end"])


def _each(events: DataFrame, event: type[Event], *more: str) -> DataFrame:
    """A row a message, of lines about several of a queue."""
    lines = needs.of(events, event).withColumnRenamed("group", "consumer_group")
    return lines.select(
        *LINE, "consumer_group", "broker_name", "topic", "queue_id", *more,
        sf.get("queue_offsets", sf.lit(0)).alias("lowest"), sf.size("queue_offsets").alias("together"),
        sf.explode("queue_offsets").alias("queue_offset"),
    )  # fmt: skip


def _one(events: DataFrame, event: type[Event], *more: str) -> DataFrame:
    return needs.of(events, event).withColumnRenamed("group", "consumer_group").select(*LINE, *MESSAGE, *more)


def _tries(events: DataFrame) -> DataFrame:
    lines = needs.of(events, AckTry).withColumnRenamed("group", "consumer_group")
    each = lines.select(
        *LINE, "consumer_group", "broker_name", "topic", "queue_id", "client_id",
        sf.explode(sf.arrays_zip("delivery_ids", "queue_offsets", "pop_times")).alias("one"),
    )  # fmt: skip
    return each.select(
        *LINE, "consumer_group", "broker_name", "topic", "queue_id", "client_id",
        sf.col("one.delivery_ids").alias("delivery_id"), sf.col("one.queue_offsets").alias("queue_offset"),
        sf.col("one.pop_times").alias("pop_time"),
    )  # fmt: skip
