"""Locks of queues in ordered groups: how the next owner got one while a handler of the last one still ran.

A broker gives a lock for a minute and keeps it in memory only. So the next member gets it in one of three ways. The
broker has waited long enough (R9). It has forgotten the lock, or never knew of it (R10). The owner gave it back
although its handler ran (R11). Without any of these it was an ordinary hand-over.
"""

from collections.abc import Callable

from dejamq_proto.journal.events import Lock

from dejamq_analytics.evidence.mark import TWO_CLOCKS_US
from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import line, text, without_journal
from dejamq_analytics.rules.history.queues import BUFFERED_US, late_us
from dejamq_analytics.rules.stage import Stage
from dejamq_analytics.sources.needs import Needs, every

GRANT = ("wall_us", "seq", "process", "boot_id", "client_boot_id", "client_id", "owner", "age_ms", "life_ms")
needs = Needs(every(Lock))
CAUSES = ("R9", "R10", "R11", "R12")


def grants(events: DataFrame) -> DataFrame:
    """Every lock that a broker granted: its queue as columns, the rest as ``grant``."""
    place = (sf.col("group").alias("consumer_group"), "broker_name", "topic", "queue_id")
    return needs.of(events, Lock).where("granted").select(*place, sf.struct(*GRANT).alias("grant"))


def with_grants(frame: DataFrame) -> DataFrame:
    """Replace ``grants`` by three columns.

    ``lock_took``: the newer owner's lock when it opened the queue. ``lock_held``: the older owner's last lock before
    that. ``locked``: whether anybody ever had a lock.
    """
    older, newer = sf.col("first.boot_id"), sf.col("second.boot_id")
    older, newer = sf.when(_turned(), newer).otherwise(older), sf.when(_turned(), older).otherwise(newer)
    opened_us = sf.coalesce("contest.newer.opened_us", "second_queue.opened.wall_us")
    took_us = sf.col("lock_took.wall_us")
    return (
        frame.withColumn("lock_took", _last(newer, lambda at: at <= opened_us))
        .withColumn("lock_held", _last(older, lambda at: at < took_us))
        .withColumn("locked", sf.size("grants") > 0)
        .drop("grants")
    )


def _turned() -> Column:
    """Whether the newer one of two owners delivered first."""
    return sf.coalesce("contest.turned", sf.lit(False))


def _last(boot_id: Column, when: Callable[[Column], Column]) -> Column:
    fits = sf.filter("grants", lambda one: (one["client_boot_id"] == boot_id) & when(one["wall_us"]))
    return sf.array_max(fits)


def stages() -> list[Stage]:
    """Which broker, or which owner, let a second handler of the queue begin."""
    took, held, opened_us = sf.col("lock_took"), sf.col("lock_held"), sf.col("second_queue.opened.wall_us")
    another = sf.col("first.client_id") != sf.col("second.client_id")
    both = sf.col("contest").isNotNull()
    ran_on, may_have_run = _turned() | _ran_on(opened_us), _turned() | _may_have_run(opened_us)
    expired = another & taken_over()
    late = text("%s had not renewed its lock for %s ms", took["owner"], took["age_ms"])
    alive = held["wall_us"] + held["life_ms"] * 1000 > took["wall_us"]
    forgot = another & (took["owner"] != held["client_id"]) & (held["boot_id"] != took["boot_id"]) & alive
    kept = both | sf.coalesce(sf.col("first_queue.unlocked.wall_us") > opened_us, sf.lit(True))
    grantors = text("%s did not know the lock that %s had from %s", took["process"], held["client_id"], held["process"])
    entered_us = sf.col("second.wall_us")
    before, maybe_before = _gave_back(opened_us)
    gave_up = text("%s gave its lock back while its handler ran", "first.process")
    untold = sf.col("locked") & took.isNull() & may_have_run
    unheld = sf.col("locked") & another & held.isNull() & kept & may_have_run
    in_doubt = (expired & may_have_run) | (forgot & kept & may_have_run)
    in_doubt |= before & _may_have_run(entered_us - late_us("second"))
    order = text("whether %s gave its lock back before %s had the queue: lock.log", "first.process", "second.process")
    which = text("whether the handler of %s had ended when %s was given the message", "first.process", "second.process")
    return [
        Stage("2", expired & ran_on, "R9", trigger=late),
        Stage("2", forgot & kept & (both | ran_on), "R10", trigger=grantors),
        Stage("2", before & _ran_on(entered_us), "R11", trigger=gave_up),
        Stage("2", untold, missing=text("no LOCK by which %s opened the queue", "second.process")),
        Stage("2", unheld, missing=text("no LOCK by which %s held the queue", "first.process")),
        Stage("2", in_doubt, missing=which),
        Stage("2", maybe_before & may_have_run, missing=order),
    ]


def taken_over() -> Column:
    """A broker gave the newer owner the lock that it had given the older one, as too old."""
    took = sf.col("lock_took")
    return (took["owner"] != took["client_id"]) & (took["owner"] == sf.col("lock_held.client_id"))


def _gave_back(opened_us: Column) -> tuple[Column, Column]:
    """Whether the older owner gave its lock back by force before the newer one opened the queue: surely, and perhaps.

    Clocks of two machines are right to two seconds. Lines in that order are so for sure where the broker says as well
    that nobody had the lock.
    """
    unlocked, took, held = sf.col("first_queue.unlocked"), sf.col("lock_took"), sf.col("lock_held")
    foreign = without_journal(sf.col("first_owner")) | without_journal(sf.col("second_owner"))
    free = sf.coalesce((took["owner"] == "") & (took["boot_id"] == held["boot_id"]), sf.lit(False))
    apart_us = sf.when(foreign, TWO_CLOCKS_US).otherwise(0)
    sure_us = unlocked["wall_us"] + sf.when(free, 0).otherwise(apart_us)
    return unlocked["forced"] & (sure_us <= opened_us), unlocked["forced"] & (
        unlocked["wall_us"] - apart_us <= opened_us
    )


def _ran_on(moment_us: Column) -> Column:
    """Whether the handler of the first delivery surely still ran then."""
    return _ended_us() - sf.when(_gathered(), BUFFERED_US).otherwise(0) > moment_us


def _may_have_run(moment_us: Column) -> Column:
    return _ended_us() > moment_us


def _ended_us() -> Column:
    """When the first delivery's result was written; without one, when its process wrote last."""
    return sf.coalesce("first.result_wall_us", "first_owner.last_wall_us")


def _gathered() -> Column:
    """Whether the handler may have ended before that: results that count are gathered below level forensic."""
    counted = sf.coalesce((sf.col("first.result") == "success") & ~sf.col("first.pq_dropped"), sf.lit(True))
    return counted & (sf.col("first_owner.level") != "forensic")


def evidence() -> list[Column]:
    """The holder of the lock, and the way it was given back."""
    unlocked = sf.col("first_queue.unlocked")
    how = sf.when(unlocked["forced"], "by its owner, while its handler ran").otherwise("by its owner")
    returned = line("UNLOCK", how, process="first.process", boot_id="first.boot_id", seq=unlocked["seq"])
    named = sf.col("decision.cause").isin(*CAUSES, "O11")
    return [sf.when(named, one) for one in (_granted("lock_held"), returned, _granted("lock_took"))]


def _granted(name: str) -> Column:
    before = sf.when(sf.col(name)["owner"] == "", "nobody").otherwise(sf.col(name)["owner"])
    words = text("granted to %s; before: %s, %s ms ago", f"{name}.client_id", before, f"{name}.age_ms")
    return line("LOCK", words, process=f"{name}.process", boot_id=f"{name}.boot_id", seq=f"{name}.seq")
