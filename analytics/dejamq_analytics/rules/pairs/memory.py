"""Offsets that brokers forgot or let others overwrite: loaded offsets and last flush of a start, lowered offsets."""

from typing import Any

from dejamq_proto.codes import Code
from dejamq_proto.journal.events import OffFlush, OffLoad, OffSet, Pull

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.history.queues import BUFFERED_US, BY_OPERATORS, QUEUE, is_lowered, late_us
from dejamq_analytics.rules.joins import united
from dejamq_analytics.rules.pairs.locks import grants
from dejamq_analytics.sources.needs import Needs, columns, every, is_one_of, passing, those


def is_by_operator(offset: Any) -> Any:
    """Of an OFF_SET: set without consuming."""
    return is_one_of(offset.by, BY_OPERATORS)


def is_corrected(pull: Any) -> Any:
    """Of a PULL: the queue did not have the offset that was asked for."""
    return pull.code == int(Code.PULL_OFFSET_MOVED)


needs = Needs(
    every(OffFlush, OffLoad),
    those(OffSet, is_by_operator),
    those(OffSet, is_lowered),
    passing(those(Pull, is_corrected)),
)


def memories(events: DataFrame) -> DataFrame:
    """One row a broker's start: ``loaded``, where its offsets came from, and ``flushed``, when it last wrote them."""
    loaded = sf.struct("seq", "process", "boot_id", "source", "entries")
    flushed = sf.struct("seq", "process", "boot_id", "entries")
    read = needs.of(events, OffLoad).select("boot_id", loaded.alias("loaded"))
    written = needs.of(events, OffFlush).select("boot_id", flushed.alias("flushed"))
    return (
        united([read, written])
        .groupBy("boot_id")
        .agg(sf.max("loaded").alias("loaded"), sf.max("flushed").alias("flushed"))
    )


def moves(events: DataFrame) -> DataFrame:
    """One row a queue, with all events that moved its group.

    ``rewinds``: an operator set the offset. ``lowerings``: a consumer or a replica set it lower. ``grants``: a lock was
    granted. ``corrections``: a pull was answered with another offset.
    """
    by_operator, lower = is_by_operator(columns(OffSet)), is_lowered(columns(OffSet))
    moved = sf.struct("wall_us", "seq", "process", "boot_id", "old", "new", "by", "client_id", "client_boot_id")
    place = (sf.col("group").alias("consumer_group"), *QUEUE[1:])
    offsets = needs.of(events, OffSet).select(
        *place, sf.when(by_operator, moved).alias("rewind"), sf.when(lower, moved).alias("lowering")
    )  # fmt: skip
    return (
        united([offsets, grants(events), _corrections(events)])
        .groupBy(*QUEUE)
        .agg(
            sf.collect_list("rewind").alias("rewinds"),
            sf.collect_list("lowering").alias("lowerings"),
            sf.collect_list("grant").alias("grants"),
            sf.collect_list("correction").alias("corrections"),
        )
        .select(*QUEUE, "rewinds", "lowerings", "grants", "corrections")
    )


def _corrections(events: DataFrame) -> DataFrame:
    """Pulls that were answered with another offset: the queue did not have the one asked for."""
    pulled = sf.struct(
        "wall_us", "seq", "process", "boot_id", "client_id", "client_boot_id", "request_offset", "next_offset"
    )
    place = (sf.col("group").alias("consumer_group"), *QUEUE[1:])
    return needs.of(events, Pull).select(*place, pulled.alias("correction"))


def last_correction() -> Column:
    """The pull whose correction was committed by the client that lowered the offset.

    Lite pull commits no correction: there, the pull that made the second owner open the queue at its offset.
    """
    lowered, opened, second = sf.col("lowered"), sf.col("second_queue.opened"), sf.col("second.boot_id")

    def led_to_it(one: Column) -> Column:
        told = (one["boot_id"] == lowered["boot_id"]) & (one["client_boot_id"] == lowered["client_boot_id"])
        return told & (one["seq"] < lowered["seq"]) & (one["next_offset"] == lowered["new"])

    def opened_by_it(one: Column) -> Column:
        return (one["client_boot_id"] == second) & (one["next_offset"] == opened["start_offset"])

    lite = sf.array_max(sf.filter("corrections", opened_by_it))
    return sf.coalesce(sf.array_max(sf.filter("corrections", led_to_it)), sf.when(opened["source"] == "illegal", lite))


def last_rewind() -> Column:
    """The last time that the group was sent to the record or before it, after its first delivery and before the queue
    was opened again: the operator wanted it once more. Also one that may have come before the delivery, whose
    line was late; ``in_doubt`` tells.
    """
    first_us, opened_us = sf.col("first.wall_us") - late_us("first"), sf.col("second_queue.opened.wall_us")
    x = sf.col("first.queue_offset")
    between = sf.filter(
        "rewinds", lambda one: (one["new"] <= x) & (one["wall_us"] > first_us) & (one["wall_us"] <= opened_us)
    )
    return sf.array_max(between)


def in_doubt() -> Column:
    """Whether the rewind may have been before the first delivery."""
    return sf.col("rewind.wall_us") <= sf.col("first.wall_us")


def highest_commit() -> Column:
    """The highest offset that was taken from the first owner, as long as it had the queue.

    A start of the broker that began after it had given the queue up, and after the second one had been told, knows only
    what a later hold of the same client told it.
    """
    dropped, persisted, told = (
        sf.col("first_queue.dropped.wall_us"), sf.col("first_queue.persisted.wall_us"), sf.col("answered.wall_us"),
    )  # fmt: skip
    over_us = sf.greatest(dropped, sf.coalesce(persisted, dropped), told) + BUFFERED_US
    return sf.array_max(sf.filter("commits", lambda one: ~sf.coalesce(one["began_us"] > over_us, sf.lit(False))))


def came_back() -> Column:
    """Whether the first owner asked for the queue again before its highest offset was taken, which was after the second
    one's answer. What it had told of its first time may have come in between or nowhere, where the broker was away when
    it gave the queue up, or did not take what it told.
    """
    taken, dropped_us = sf.col("committed"), sf.col("first_queue.dropped.wall_us")

    def before(one: Column) -> Column:
        return (one["boot_id"] == taken["boot_id"]) & (one["seq"] < taken["seq"]) & (one["wall_us"] > dropped_us)

    refused = sf.coalesce(sf.col("first_queue.unsent.value") > sf.col("first.queue_offset"), sf.lit(False))
    away = (taken["began_us"] > dropped_us) | refused
    back = sf.exists("asks", before) & away & (taken["wall_us"] > sf.col("answered.wall_us"))
    return sf.coalesce(back, sf.lit(False))


def last_lowering() -> Column:
    """The last time that the offset fell to the record or below it at the broker that then answered, after it had
    taken the first owner's and before it told the second. The first owner may tell its own once more after that answer:
    what somebody else made fall from above the record, since it had the queue, was told in time.
    """
    taken, told, x = sf.col("committed"), sf.col("answered"), sf.col("first.queue_offset")
    opened_us = sf.col("first_queue.opened.wall_us")

    def between(one: Column) -> Column:
        here = (one["boot_id"] == told["boot_id"]) & (one["seq"] < told["seq"])
        after = (one["boot_id"] != taken["boot_id"]) | (one["seq"] > taken["seq"])
        another = (one["client_boot_id"] != sf.col("first.boot_id")) & (one["wall_us"] > opened_us)
        return here & (after | (another & (one["old"] > x))) & (one["new"] <= x)

    return sf.array_max(sf.filter("lowerings", between))
