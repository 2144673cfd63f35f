"""Clocks that jumped: locks, memberships and queues that ended by their age although no such time had passed (R12).

An end is laid to a jump of the same process only if it would not have come without the jump.
"""

from dejamq_proto.journal.events import ClockJump

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import line, text
from dejamq_analytics.rules.pairs import locks
from dejamq_analytics.rules.stage import Stage
from dejamq_analytics.sources.needs import Needs, every

needs = Needs(every(ClockJump))
JUMPS = ("jump_of_owner", "jump_under_lock", "jump_of_members")


def jumps(events: DataFrame) -> DataFrame:
    """One row: every forward jump of every process; most journals have none."""
    one = sf.struct("wall_us", "seq", "process", "boot_id", "jumped_ms")
    return needs.of(events, ClockJump).where("jumped_ms > 0").agg(sf.collect_list(one).alias("jumps"))


def with_jumps(frame: DataFrame, every: DataFrame) -> DataFrame:
    """Adds ``jump_of_owner`` before the first owner dropped the queue, ``jump_under_lock`` at the broker that gave its
    lock away, and ``jump_of_members`` at the broker that dropped it as a member. Null where no jump was the reason.
    """
    dropped = sf.col("first_queue.dropped")
    opened_seq = sf.col("first_queue.opened.seq")
    held, took, left = sf.col("lock_held"), sf.col("lock_took"), sf.col("contest.left")
    mine = _last(sf.col("first.boot_id"), opened_seq, dropped)
    passed_ms = took["age_ms"] - _last(took["boot_id"], held["seq"], took)["jumped_ms"]
    early = (held["boot_id"] == took["boot_id"]) & (passed_ms <= took["life_ms"])
    silent = sf.when(left["reason"] == "expire", _last(left["boot_id"], sf.lit(0), left))
    return (
        frame.crossJoin(sf.broadcast(every))
        .withColumn("jump_of_owner", mine)
        .withColumn("jump_under_lock", sf.when(early, _last(took["boot_id"], held["seq"], took)))
        .withColumn("jump_of_members", silent)
        .drop("jumps")
    )


def _last(boot_id: Column, after_seq: Column, ended: Column) -> Column:
    """The last jump of a process between two of its lines that is more than the time that has passed since."""

    def fits(one: Column) -> Column:
        between = (one["boot_id"] == boot_id) & (one["seq"] > after_seq) & (one["seq"] < ended["seq"])
        return between & (ended["wall_us"] - one["wall_us"] <= one["jumped_ms"] * 1000)

    return sf.array_max(sf.filter("jumps", fits))


def stages() -> list[Stage]:
    """Of two owners: a broker whose clock jumped let the second one have the queue."""
    lock, members = sf.col("jump_under_lock"), sf.col("jump_of_members")
    return [
        Stage("2", lock.isNotNull() & locks.taken_over(), "R12", trigger=said("jump_under_lock")),
        Stage("2", members.isNotNull(), "R12", trigger=said("jump_of_members")),
    ]


def said(name: str) -> Column:
    """A jump in words."""
    return text("the clock of %s jumped by %s ms", f"{name}.process", f"{name}.jumped_ms")


def evidence() -> list[Column]:
    """The jump that decided."""
    told = [
        line("CLOCK", text("by %s ms", f"{name}.jumped_ms"), process=f"{name}.process", boot_id=f"{name}.boot_id",
             seq=f"{name}.seq")
        for name in JUMPS
    ]  # fmt: skip
    return [sf.when(sf.col("decision.cause") == "R12", one) for one in told]
