"""Popped messages that came again as copies, because their broker knew of no acknowledgement when their time was over.

The broker's REVIVE names the delivery that the copy was made of. Its consumer's ACK_TRY tells whether the program had
said in time that the message was done: then the acknowledgement was lost (B7), else the time was too short (B6). A
program that gives a message back asks for the copy (L1). A broker gives back by itself what a client of RocketMQ 5 had
that is gone: it was closed with the message in hand (O10), or it died (B6). An ACK before the REVIVE proves neither:
the broker had the acknowledgement, and its log lost it with its end (B9).
"""

from dejamq_proto.journal.events import Revive

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, line_of, lines, text
from dejamq_analytics.rules.history import pops
from dejamq_analytics.rules.joins import beside
from dejamq_analytics.rules.stage import NOT_BY_THIS_VERSION, blamed, undecided
from dejamq_analytics.sources.facts import Facts
from dejamq_analytics.sources.needs import Needs, every, passing

needs = Needs(passing(every(Revive)))
TARGET = {
    "broker_name": "second.broker_name", "target_topic": "second.topic", "target_queue_id": "second.queue_id",
    "target_offset": "second.queue_offset",
}  # fmt: skip


def is_copy() -> Column:
    """Of pairs: whether the second was popped from a retry topic."""
    popped = (sf.col("second.kind") == "pop") & sf.col("second.topic").startswith("%RETRY%")
    return sf.coalesce(popped & (sf.col("identity") == "I2"), sf.lit(False))


def revived(pairs: DataFrame, facts: Facts) -> DataFrame:
    """Those pairs with cause, stage, trigger, missing, expected and evidence."""
    frame = _with_told(pairs, facts).withColumn("decision", _decision())
    return pops.judged(frame, _evidence(), asked_for="L1")


def _with_told(pairs: DataFrame, facts: Facts) -> DataFrame:
    """The pairs with what the journals tell of the delivery that the later record is a copy of."""
    place = sf.struct(
        "wall_us", "seq", "process", "boot_id", sf.col("group").alias("consumer_group"), "broker_name", "topic",
        "queue_id", "queue_offset", "pop_time", "invisible_ms",
    )  # fmt: skip
    made = needs.of(facts.events, Revive).where(~sf.col("dead"))
    revives = made.groupBy(*TARGET).agg(sf.array_sort(sf.collect_list(place)).alias("revives"))
    frame = beside(pairs, revives, TARGET, small=False)
    earlier = pops.last_of("revives", lambda one: one["wall_us"] <= sf.col("second.wall_us"))
    frame = frame.withColumn("revive", earlier).drop("revives")
    frame = pops.with_lives(frame, facts.events, "revive")
    frame = frame.withColumn("pop", pops.last_of("pops", lambda one: one["wall_us"] <= sf.col("revive.wall_us")))
    frame = frame.withColumn("change", pops.last_of("changes", _is_of_revived))
    frame = frame.withColumn("ack", pops.last_of("acks", _is_before_revive))
    frame = frame.withColumn("refused", sf.get(sf.filter("acks", _is_refused), sf.lit(0)))
    owner = facts.processes.select(
        "boot_id", sf.struct("process", "gaps", "level", "closed", "last_wall_us", "skew_ms").alias("consumer")
    )
    frame = beside(frame, owner, {"boot_id": "pop.client_boot_id"})
    giver = facts.processes.select("boot_id", sf.struct("process", "gaps", "level", "closed").alias("giver"))
    frame = beside(frame, giver, {"boot_id": "pop.boot_id"})
    frame = _with_delivery(frame, facts.deliveries)
    frame = frame.withColumn("tried", sf.get(sf.filter("tries", _is_of_delivery), sf.lit(0)))
    return pops.with_lost(frame, facts, "ack", sf.when(sf.col("ack.together") == 1, "ack").otherwise("bAck"))


def _with_delivery(frame: DataFrame, deliveries: DataFrame) -> DataFrame:
    """``given``: how the consumer told of the delivery that the copy was made of."""
    popped = deliveries.where("kind = 'pop'")
    one = sf.struct("wall_us", "seq", "process", "boot_id", "delivery_id")
    keys = (*pops.MESSAGE, "boot_id")
    lists = popped.groupBy(*keys).agg(sf.array_sort(sf.collect_list(one)).alias("givens"))
    named = {key: f"revive.{key}" for key in pops.MESSAGE} | {"boot_id": "pop.client_boot_id"}
    frame = beside(frame, lists, named, small=False)
    # the consumer's own line: its clock is not the broker's
    earlier = pops.last_of("givens", lambda one: one["wall_us"] < sf.col("second.wall_us"))
    return frame.withColumn("given", earlier).drop("givens")


def _is_of_revived(change: Column) -> Column:
    """Whether this change made the delivery that was revived; the same one asked again is no other."""
    return (change["new_pop_time"] == sf.col("revive.pop_time")) & (change["how"] != "again")


def _is_before_revive(ack: Column) -> Column:
    after_pop = ack["wall_us"] >= sf.col("pop.wall_us")
    return after_pop & (ack["wall_us"] <= sf.col("revive.wall_us")) & (ack["outcome"] == "ok")


def _is_refused(ack: Column) -> Column:
    return (ack["wall_us"] >= sf.col("pop.wall_us")) & (ack["outcome"] == "refused") & _same_client(ack)


def _same_client(ack: Column) -> Column:
    return ack["client_boot_id"] == sf.col("pop.client_boot_id")


def _is_of_delivery(tried: Column) -> Column:
    same = tried["boot_id"] == sf.col("given.boot_id")
    return same & (tried["delivery_id"] == sf.col("given.delivery_id"))


def _visible_us() -> Column:
    """When the delivery's time was over, by the lines of its broker."""
    began = sf.coalesce("change.wall_us", "pop.wall_us")
    return began + sf.coalesce("change.invisible_ms", "pop.invisible_ms") * 1000


def _decision() -> Column:
    """First what is not known, then what somebody did, last the cause that remains."""
    consumer, visible_us = sf.col("consumer"), _visible_us()
    in_time = sf.col("tried.wall_us") < visible_us
    told = sf.coalesce(sf.col("change.pop_time").isNotNull(), sf.lit(False))
    untold = ~told & (sf.col("pop.pop_time") != sf.col("revive.pop_time"))
    gap = sf.filter(consumer["gaps"], lambda one: one["last"] > sf.col("given.seq"))
    whole = consumer["closed"] | (consumer["level"] == "forensic") | (consumer["last_wall_us"] > visible_us)
    ended = ~consumer["closed"] & (consumer["last_wall_us"] < visible_us)
    # an acknowledgement of which a broker's lost line tells may have been in the log's lost end
    flushed = sf.col("giver.closed") | (sf.col("giver.level") == "forensic")
    heard = sf.filter("giver.gaps", lambda one: one["last"] > sf.col("pop.seq"))
    untrue = (sf.size(heard) > 0) | (~flushed & (sf.col("pop.boot_id") != sf.col("revive.boot_id")))
    # a broker that gives a message back for a client that is gone names the call by which the client got it
    own = sf.col("change.request_seq") == sf.col("pop.request_seq")
    gone = (sf.col("change.how") == "visible") & (own | (sf.col("change.client_boot_id") == ""))
    late_ms = ((sf.col("tried.wall_us") - visible_us) / 1000).cast("bigint")
    invisible = sf.coalesce("change.invisible_ms", "pop.invisible_ms")
    return first_of(
        (sf.col("revive").isNull(),
         undecided(text("no REVIVE to offset %s of %s", "second.queue_offset", "second.topic"))),
        (sf.col("pop").isNull(), undecided(text("no POP of offset %s of %s", "revive.queue_offset", "revive.topic"))),
        (untold, undecided(text("no CHANGE to pop time %s of offset %s", "revive.pop_time", "revive.queue_offset"))),
        (sf.col("ack").isNotNull() & sf.col("end").isNotNull(),
         blamed("B9", text("%s went on without the acknowledgement, which its log had lost", "revive.broker_name"))),
        (sf.col("ack").isNotNull(), undecided(sf.lit(NOT_BY_THIS_VERSION + "revived although it was acknowledged"))),
        (consumer.isNull(), undecided(text("no journal of the consumer with boot id %s", "pop.client_boot_id"))),
        (sf.col("given").isNull(), undecided(text("no DELIVER of offset %s in %s", "revive.queue_offset",
                                              consumer["process"]))),
        (sf.abs(consumer["skew_ms"]) > 0, undecided(text("the clock of %s", consumer["process"]))),
        (in_time & untrue, undecided(text("the last lines of %s", "giver.process"))),
        (in_time, blamed("B7", text("%s said that it was done, and %s never heard it", consumer["process"],
                                    "revive.broker_name"))),
        (sf.size(gap) > 0, undecided(text("seq gap of %s", consumer["process"]))),
        (~whole, undecided(text("the last lines of %s", consumer["process"]))),
        (sf.col("tried").isNotNull(), blamed("B6", text("done %s ms after its time was over", late_ms))),
        (gone & consumer["closed"], blamed("O10", text("%s closed with it in hand", consumer["process"]))),
        (gone, blamed("B6", text("%s ended with it in hand", consumer["process"]))),
        (sf.col("change.how") == "visible", blamed("L1", text("given back by %s", "change.client_id"))),
        (ended, blamed("B6", text("%s ended with it in hand", consumer["process"]))),
        (sf.lit(True), blamed("B6", text("not done within %s ms", invisible))),
    )  # fmt: skip


def _evidence() -> Column:
    """The life of the delivery and of its copy."""
    popped = text("offset %s of %s for %s ms", "revive.queue_offset", "revive.topic", "pop.invisible_ms")
    return lines(
        line_of("POP", popped, "pop"),
        line_of("DELIVER", text("delivery %s", "given.delivery_id"), "given"),
        line_of("CHANGE", text("%s, for %s ms", "change.how", "change.invisible_ms"), "change"),
        line_of("ACK", text("%s", "ack.outcome"), "ack"),
        sf.when(
            sf.col("ack").isNotNull(), line_of("BOOT", text("goes on from log offset %s", "end.log_offset"), "end")
        ),
        line_of("REVIVE", text("to offset %s of %s", "second.queue_offset", "second.topic"), "revive"),
        line_of("ACK_TRY", text("delivery %s", "tried.delivery_id"), "tried"),
        line_of("ACK", text("%s", "refused.outcome"), "refused"),
        line_of("DELIVER", text("delivery %s, try %s", "second.delivery_id", "second.reconsume_times"), "second"),
    )
