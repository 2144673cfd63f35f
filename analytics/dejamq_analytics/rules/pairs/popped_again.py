"""One stored record delivered twice, and popped at least once: no process queue of one owner tells why.

A broker gives a record to its group once, by one POP, until an operator sends the group back (O17). It forgets a POP
only with the end of its log (B9). A member that pulls knows nothing of those that pop, and both get it (L10).
"""

from typing import Any

from dejamq_proto.journal.events import OffSet

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, line, line_of, lines, text
from dejamq_analytics.rules.history import pops, queues
from dejamq_analytics.rules.history.queues import BY_OPERATORS, QUEUE
from dejamq_analytics.rules.joins import beside
from dejamq_analytics.rules.stage import NOT_BY_THIS_VERSION, blamed, undecided
from dejamq_analytics.sources.facts import Facts
from dejamq_analytics.sources.needs import Needs, is_one_of, those


def is_set_by_operator(offset: Any) -> Any:
    """Of an OFF_SET: set or removed without consuming."""
    return is_one_of(offset.by, (*BY_OPERATORS, "delete"))


needs = Needs(those(OffSet, is_set_by_operator))


def is_popped() -> Column:
    """Of pairs: whether one record came twice, and once of them by a pop."""
    return (sf.col("identity") == "I1") & (_by_pop("first") | _by_pop("second"))


def popped_again(pairs: DataFrame, facts: Facts) -> DataFrame:
    """Those pairs with cause, stage, trigger, missing, expected and evidence."""
    frame = _with_told(pairs, facts).withColumn("decision", _decision())
    return pops.judged(frame, _evidence(), asked_for="O17")


def _with_told(pairs: DataFrame, facts: Facts) -> DataFrame:
    frame = pops.with_lives(pairs, facts.events, "second").drop("changes", "acks", "tries")
    frame = frame.withColumn("second_pop", pops.last_of("pops", _of_second))
    frame = frame.withColumn("first_pop", pops.last_of("pops", _of_first)).drop("pops")
    moved = sf.struct("wall_us", "seq", "process", "boot_id", "old", "new", "by")
    set_by = needs.of(facts.events, OffSet)
    by_queue = set_by.withColumnRenamed("group", "consumer_group").groupBy(*QUEUE)
    operators = by_queue.agg(sf.array_sort(sf.collect_list(moved)).alias("rewinds"))
    frame = beside(frame, operators, {name: f"second.{name}" for name in QUEUE})
    frame = frame.withColumn("rewind", pops.last_of("rewinds", _is_between)).drop("rewinds")
    lives = queues.process_queues(facts.events).select("boot_id", "pq_id", sf.struct("opened", "dropped").alias("life"))
    pulled = sf.when(_by_pop("first"), sf.col("second")).otherwise(sf.col("first"))
    frame = frame.withColumn("pulled", pulled)
    frame = beside(frame, lives, {"boot_id": "pulled.boot_id", "pq_id": "pulled.pq_id"}, small=False)
    owner = facts.processes.select("boot_id", sf.struct("process", "last_wall_us", "skew_ms").alias("puller"))
    frame = beside(frame, owner, {"boot_id": "pulled.boot_id"})
    return pops.with_lost(frame, facts, "first_pop", sf.lit("ck"))


def _by_pop(side: str) -> Column:
    return sf.coalesce(sf.col(f"{side}.kind") == "pop", sf.lit(False))


def _of_second(pop: Column) -> Column:
    mine = pop["client_boot_id"] == sf.col("second.boot_id")
    return mine & (pop["wall_us"] <= sf.col("second.wall_us"))


def _of_first(pop: Column) -> Column:
    """Of one that both may be, the later is the second's."""
    mine = pop["client_boot_id"] == sf.col("first.boot_id")
    before = pop["wall_us"] < sf.coalesce("second_pop.wall_us", "second.wall_us")
    return mine & before & (pop["wall_us"] <= sf.col("first.wall_us"))


def _is_between(moved: Column) -> Column:
    """An operator's word between the two, by which the record comes again."""
    after = moved["wall_us"] > sf.coalesce("first_pop.wall_us", "first.wall_us")
    before = moved["wall_us"] <= sf.coalesce("second_pop.wall_us", "second.wall_us")
    return after & before & (moved["new"] <= sf.col("second.queue_offset"))


def _decision() -> Column:
    both = _by_pop("first") & _by_pop("second")
    first_pop, second_pop = sf.col("first_pop"), sf.col("second_pop")
    popped_us = sf.coalesce("second_pop.wall_us", "first_pop.wall_us")
    opened = sf.col("life.opened.wall_us") < popped_us
    owned = opened & (sf.coalesce("life.dropped.wall_us", "puller.last_wall_us") > popped_us)
    none = text("no POP of offset %s of %s", "second.queue_offset", "second.topic")
    turns = NOT_BY_THIS_VERSION + "a group that pulled and popped by turns"
    again = NOT_BY_THIS_VERSION + "popped twice although the broker had not forgotten the first time"
    in_order = NOT_BY_THIS_VERSION + "popped again in order"
    unknown = (_by_pop("first") & first_pop.isNull()) | (_by_pop("second") & second_pop.isNull())
    return first_of(
        (unknown, undecided(none)),
        (sf.col("rewind").isNotNull(), blamed("O17", text("%s to %s", "rewind.by", "rewind.new"))),
        (~both & (sf.abs("puller.skew_ms") > 0), undecided(text("the clock of %s", "puller.process"))),
        (~both & sf.coalesce(owned, sf.lit(False)),
         blamed("L10", text("%s pulled the queue while others popped it", "pulled.process"))),
        (~both, undecided(sf.lit(turns))),
        (sf.col("second_pop.ordered"), undecided(sf.lit(in_order))),
        (sf.col("end").isNotNull(),
         blamed("B9", text("%s went on without the check point, which its log had lost", "second.broker_name"))),
        (sf.lit(True), undecided(sf.lit(again))),
    )  # fmt: skip


def _evidence() -> Column:
    def popped(told: str) -> Column:
        return line_of("POP", text("offset %s for %s ms", "second.queue_offset", f"{told}.invisible_ms"), told)

    def delivered(side: str) -> Column:
        return line_of("DELIVER", text("delivery %s, %s", f"{side}.delivery_id", f"{side}.kind"), side)

    opened = line("PQ_OPEN", text("begins at %s", "life.opened.start_offset"), process="pulled.process",
                  boot_id="pulled.boot_id", seq="life.opened.seq")  # fmt: skip
    return lines(
        sf.when(~(_by_pop("first") & _by_pop("second")), opened),
        popped("first_pop"), delivered("first"),
        line_of("OFF_SET", text("%s to %s", "rewind.by", "rewind.new"), "rewind"),
        line_of("BOOT", text("goes on from log offset %s", "end.log_offset"), "end"),
        popped("second_pop"), delivered("second"),
    )  # fmt: skip
