"""Stages of offsets that no broker was told, or that a program chose.

An owner let the queue go without its offset, or its offset was no broker's matter: O11, O14, O18 to O20. A program
begins where it likes: O17, O19. They read the columns that ``life.with_life`` puts beside a pair, and ``X``, the
pair's queue offset.
"""

from dejamq_analytics.frames import Column
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import text
from dejamq_analytics.rules.pairs import jumps
from dejamq_analytics.rules.stage import Stage, later

# The same process had the queue again: its second ownership delivers the messages that its first one had in hand.


def stages() -> list[Stage]:
    """Before what is said of two processes that follow one another (O9): here nobody else was there."""
    again = sf.col("first.boot_id") == sf.col("second.boot_id")
    dropped = sf.col("first_queue.dropped")
    idle = again & (dropped["reason"] == "pull_idle") & _in_flight()
    # by the order of lines, which is that of events: at level audit their times are late
    overlap = sf.col("first.pq_dropped") & (sf.col("first.result_seq") > sf.col("second.seq"))
    flapped = again & (dropped["reason"] == "reassigned") & overlap
    lost = text("%s lost the queue, had it again, and its first handler still ran", "first.process")
    still = text("%s had not pulled for longer than it may", "first.process")
    return [
        Stage("b", idle & sf.col("jump_of_owner").isNotNull(), "R12", trigger=jumps.said("jump_of_owner")),
        Stage("b", idle, "R7", trigger=still),
        Stage("b", flapped, "R8", trigger=lost),
    ]


def _in_flight() -> Column:
    return sf.col("first.result").isNull() | sf.col("first.pq_dropped")


X = "first.queue_offset"


def local() -> Column:
    """Whether a broadcasting member opened the queue, whose offsets are in a file of its own."""
    return sf.col("second_queue.opened.source").startswith("local")


def sought() -> list[Stage]:
    """The program said where to begin: in the same process it went back, in the next one it knew no better."""
    mine = sf.col("first.boot_id") == sf.col("second.boot_id")
    chosen = sf.col("second_queue.opened.source") == "seek"
    began = text("%s itself began at %s", "second.process", "second_queue.opened.start_offset")
    return [
        Stage("i", chosen & mine, "O17", trigger=sf.lit("the program sought an offset"), expected=True),
        Stage("i", chosen & _one_after_the_other(), "O19", trigger=began),
    ]


def without_offset() -> list[Stage]:
    """Stage d: the queue was let go in order, and its last offset was not sent. Then no broker has to be asked."""
    dropped, unsent = sf.col("first_queue.dropped"), ~_above_x("first_queue.persisted.value")
    tried = _above_x("first_queue.unsent.value")
    ended = dropped.isNotNull() | sf.col("first_owner.closed")
    polled = sf.col("first.kind") == "poll"
    last = sf.coalesce(sf.col("first_queue.persisted.value").cast("string"), sf.lit("none"))
    behind = text("%s, and the last offset sent was %s", "ending", last)
    return [
        Stage("d", unsent & ~tried & (dropped["reason"] == "unsubscribed"), "O14"),
        *_of_a_file(unsent),
        Stage("d", unsent & ~tried & polled & ended, "O18", trigger=behind),
    ]


def _of_a_file(unsent: Column) -> list[Stage]:
    """A broadcasting member: what did its file say when it began again?"""
    loaded, process = sf.col("loaded"), sf.col("second.process")
    before = text("%s, and had not written its file", "ending")
    words = {"none": "%s found no file of offsets", "bak": "%s read the file's backup", "main": "%s read an older file"}
    no_load = text("no OFF_LOAD of %s", process)
    return [
        Stage("d", local() & unsent, "O20", trigger=before),
        Stage("g", local() & loaded.isNull(), missing=no_load),
        *[
            Stage("g", local() & (loaded["source"] == source), "O20", trigger=text(pattern, process))
            for source, pattern in words.items()
        ],
        Stage("g", local(), missing=later("stage g, a broadcasting member that read its offsets from elsewhere")),
    ]


def unlocked_first(late: Column) -> list[Stage]:
    """Stage f, in order: the lock was free, and another member's, before the offset had come (``late``)."""
    returned, took = sf.col("first_queue.unlocked"), sf.col("lock_took")
    freed = text("%s gave the lock back before its offset had come", "first.process")
    in_time = sf.coalesce(returned["wall_us"] < took["wall_us"], sf.lit(False))
    nobody = text("no LOCK granted to %s before it opened the queue", "second.process")
    kept = text("no UNLOCK of %s before %s had the lock", "first.process", "second.process")
    return [
        Stage("f", late & in_time, "O11", trigger=freed),
        Stage("f", late & returned.isNotNull() & took.isNull(), missing=nobody),
        Stage("f", late & took.isNotNull(), missing=kept),
    ]


def _one_after_the_other() -> Column:
    ended_us = sf.coalesce("first_queue.dropped.wall_us", "first_owner.last_wall_us")
    return sf.col("contest").isNull() & (ended_us <= sf.col("second_queue.opened.wall_us"))


def _above_x(name: str) -> Column:
    return sf.coalesce(sf.col(name) > sf.col(X), sf.lit(False))
