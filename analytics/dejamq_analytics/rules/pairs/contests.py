"""Two process queues that held one queue at the same time, and what made each owner believe that it was its own.

The *older* owner opened the queue first; the *newer* one opened it while the older still held it. Rounds of allocation
are compared as they were in force at that moment, whichever of the two then delivered first.
"""

from typing import NamedTuple

from dejamq_proto.journal.events import Assign, Event, Gap, MemberEvent, MemberList, Route, State

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.joins import beside
from dejamq_analytics.sources.needs import Needs, every

SIDES = ("first", "second")
KEY = ("first_boot_id", "first_pq_id", "second_boot_id", "second_pq_id")
WATCHED_US = 500_000
"""Interval of a process's watchdog: a pause began at most this long before the process noticed it."""
MINE, ASKED = (Assign, State, Gap), (MemberEvent, MemberList, Route)
needs = Needs(every(*MINE, *ASKED))
TOLD = ("rounds", "states", "gaps", "members", "lists", "routes")


class MadeFrames(NamedTuple):
    """Frames that the audit has made already: process queues, processes, faults done to processes."""

    queues: DataFrame
    processes: DataFrame
    faults: DataFrame


def contests(pairs: DataFrame, events: DataFrame, known: MadeFrames) -> DataFrame:
    """One row, by ``KEY``, for two process queues that delivered one record and whose times overlap: ``contest``.

    Its fields are null where nothing is known. ``held`` and ``took`` are the rounds of both owners that were in force
    when the newer opened the queue; ``kept`` is the older's next round. ``suspended``, ``gap``, ``paused`` and ``left``
    say why the older knew nothing of it. ``route`` and ``list`` (of members) stand behind each round.
    """
    both = _overlapping(pairs, known)
    boots = both.select(sf.explode(sf.array("older.boot_id", "newer.boot_id")).alias("whose")).distinct()
    told = _told(events, boots)
    for side in ("older", "newer"):
        own = told.select("whose", sf.struct(*TOLD).alias(f"{side}_told"))
        both = beside(both, own, {"whose": f"{side}.boot_id"})
    both = beside(both, known.faults.select("boot_id", "faults"), {"boot_id": "older.boot_id"})
    return _with_causes(_with_rounds(both)).select(*KEY, _contest().alias("contest"))


def _overlapping(pairs: DataFrame, known: MadeFrames) -> DataFrame:
    """``older`` and ``newer`` of each two process queues; those that followed one another are left out."""
    place = [sf.col(f"second.{name}").alias(name) for name in ("consumer_group", "topic", "broker_name", "queue_id")]
    named = [(side, name) for side in SIDES for name in ("boot_id", "pq_id", "client_id")]
    sides = [sf.col(f"{side}.{name}").alias(f"{side}_{name}") for side, name in named]
    frame = pairs.where("identity = 'I1' AND (first.boot_id != second.boot_id OR first.pq_id != second.pq_id)")
    frame = frame.select(*place, *sides).distinct()
    for side in SIDES:
        held = known.queues.select("boot_id", "pq_id", "opened", "dropped")
        frame = beside(frame, held, {"boot_id": f"{side}_boot_id", "pq_id": f"{side}_pq_id"})
        frame = beside(frame, known.processes.select("boot_id", "last_wall_us"), {"boot_id": f"{side}_boot_id"})
        owner = sf.struct(
            sf.col("opened.wall_us").alias("opened_us"), sf.col("opened.seq").alias("opened_seq"),
            sf.coalesce("dropped.wall_us", "last_wall_us").alias("ended_us"), sf.col("opened.process").alias("process"),
            sf.col(f"{side}_boot_id").alias("boot_id"), sf.col(f"{side}_client_id").alias("client_id"),
        )  # fmt: skip
        frame = frame.withColumn(side, owner).drop("opened", "dropped", "last_wall_us")
    in_turn = sf.col("first.opened_us") <= sf.col("second.opened_us")
    ordered = frame.select(
        *KEY, "consumer_group", "topic", (~in_turn).alias("turned"),
        sf.concat_ws(":", "broker_name", "queue_id").alias("queue"),
        sf.when(in_turn, sf.col("first")).otherwise(sf.col("second")).alias("older"),
        sf.when(in_turn, sf.col("second")).otherwise(sf.col("first")).alias("newer"),
    )  # fmt: skip
    return ordered.where(sf.col("older.ended_us") > sf.col("newer.opened_us"))


def _told(events: DataFrame, boots: DataFrame) -> DataFrame:
    """One row a client's start: what it journaled, and what brokers and name servers journaled of it, as lists."""
    mine = needs.is_a(Assign) | needs.is_a(State) | needs.is_a(Gap)
    whose = sf.when(mine, sf.col("boot_id")).otherwise(sf.col("client_boot_id"))
    wanted = needs.lines(events, *MINE, *ASKED).withColumn("whose", whose)
    at = ("wall_us", "seq", "process", "boot_id")

    def all_of(event: type[Event], *fields: str) -> Column:
        return sf.collect_list(sf.when(needs.is_a(event), sf.struct(*at, *fields)))

    assigned = ("group", "topic", "namesrv", "route_digest", "broker_name", "members", "strategy", "queues")
    return wanted.join(sf.broadcast(boots), "whose", how="left_semi").groupBy("whose").agg(
        all_of(Assign, *assigned).alias("rounds"),
        all_of(State, "state").alias("states"),
        all_of(Gap, "missing_ms").alias("gaps"),
        all_of(MemberEvent, "group", "broker_name", "change", "reason").alias("members"),
        all_of(MemberList, "group", "broker_name", "members").alias("lists"),
        all_of(Route, "topic", "brokers").alias("routes"),
    )  # fmt: skip


def _with_rounds(frame: DataFrame) -> DataFrame:
    """The rounds of both that counted when the newer owner opened the queue, at ``newer.opened_us``."""
    moment, opened_seq = sf.col("newer.opened_us"), sf.col("newer.opened_seq")

    def here(one: Column) -> Column:
        return (one["group"] == sf.col("consumer_group")) & (one["topic"] == sf.col("topic"))

    def before(one: Column) -> Column:
        return here(one) & (one["wall_us"] <= moment)

    def after(one: Column) -> Column:  # to give the queue up counts, whatever it was made of
        gave_up = ~sf.array_contains(one["queues"], sf.col("queue"))
        return here(one) & (one["wall_us"] > moment) & (gave_up | _asked_since(one, moment))

    return (
        frame.withColumn("held", sf.array_max(sf.filter("older_told.rounds", before)))
        .withColumn("kept", sf.array_min(sf.filter("older_told.rounds", after)))
        .withColumn("took", sf.array_max(sf.filter("newer_told.rounds", lambda r: here(r) & (r["seq"] < opened_seq))))
    )


def _asked_since(turn: Column, moment: Column) -> Column:
    """Whether the older owner made this round from a list of members that it got after that moment.

    Keeping the queue by a list that was under way then proves nothing. Where no broker journals its answers, every
    round counts.
    """

    def same(one: Column) -> Column:
        return (one["group"] == turn["group"]) & (one["broker_name"] == turn["broker_name"])

    def since(one: Column) -> Column:
        return same(one) & (one["wall_us"] > moment) & (one["wall_us"] <= turn["wall_us"])

    return sf.exists("older_told.lists", since) | ~sf.exists("older_told.lists", same)


def _with_causes(frame: DataFrame) -> DataFrame:
    """Why the older owner may have known nothing: the program's doing, a pause, or no broker that had it as member."""
    moment = sf.col("newer.opened_us")
    steps = sf.filter(
        "older_told.states", lambda s: s["state"].isin("suspended", "resumed") & (s["wall_us"] <= moment)
    )  # fmt: skip
    last = sf.array_max(steps)
    gap = sf.array_max(sf.filter("older_told.gaps", lambda one: _covers(one, moment)))
    return (
        frame.withColumn("suspended", sf.when(last["state"] == "suspended", last))
        .withColumn("gap", gap)
        .withColumn("paused", _paused(moment))
        .withColumn("left", _left("older_told.members", moment))
        .withColumn("route_held", _asked("older_told.routes", sf.col("held"), "topic"))
        .withColumn("route_took", _asked("newer_told.routes", sf.col("took"), "topic"))
        .withColumn("list_held", _asked("older_told.lists", sf.col("held"), "group", "broker_name"))
        .withColumn("list_took", _asked("newer_told.lists", sf.col("took"), "group", "broker_name"))
        .withColumn("list_kept", _asked("older_told.lists", sf.col("kept"), "group", "broker_name"))
    )


def _covers(gap: Column, moment: Column) -> Column:
    """Whether the process did not run at that moment."""
    began = gap["wall_us"] - gap["missing_ms"] * 1000 - WATCHED_US
    return (began <= moment) & (moment <= gap["wall_us"])


def _paused(moment: Column) -> Column:
    """The pause that somebody had done to the process by then and not ended."""
    done = sf.filter("faults", lambda one: one["kind"].isin("pause", "resume") & (one["wall_us"] <= moment))
    last = sf.array_max(done)
    return sf.when(last["kind"] == "pause", last)


def _left(members: str, moment: Column) -> Column:
    """The last time that a broker dropped this member, where none had it at that moment."""

    def known(one: Column) -> Column:
        return (one["group"] == sf.col("consumer_group")) & (one["wall_us"] <= moment)

    changes = sf.filter(members, known)

    def gone_again(came: Column) -> Column:
        return sf.exists(
            changes,
            lambda one: (
                (one["broker_name"] == came["broker_name"])
                & (one["process"] == came["process"])
                & (one["change"] == "-")
                & (one["wall_us"] >= came["wall_us"])
            ),
        )

    stays = sf.exists(changes, lambda one: (one["change"] == "+") & ~gone_again(one))
    return sf.when(~stays, sf.array_max(sf.filter(changes, lambda one: one["change"] == "-")))


def _asked(answers: str, turn: Column, *same: str) -> Column:
    """The last answer of this kind that its owner had when it made the round."""

    def fits(one: Column) -> Column:
        found = one["wall_us"] <= turn["wall_us"]
        for name in same:
            found &= one[name] == turn[name]
        return found

    return sf.array_max(sf.filter(answers, fits))


def _contest() -> Column:
    return sf.struct(
        "turned", "queue", "older", "newer", "held", "kept", "took", "suspended", "gap", "paused", "left",
        "route_held", "route_took", "list_held", "list_took", "list_kept",
    )  # fmt: skip
