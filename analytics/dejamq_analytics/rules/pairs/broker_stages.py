"""Stages g to j: a broker had taken the offset, and one told the next owner a lower one. The stages say why."""

from dejamq_analytics.frames import Column
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import text, without_journal
from dejamq_analytics.rules.history.replicas import MASTER, SYNC
from dejamq_analytics.rules.stage import Stage, later


def forgotten() -> list[Stage]:
    """Every row follows those that say that the offset reached a broker and was there in time."""
    return [*_overwritten(), *_told_by_another(), *_lost_at_a_start(), *_not_told()]


def _overwritten() -> list[Stage]:
    """Stage i: somebody set it lower."""
    lowered = sf.col("lowered")
    known, another = lowered.isNotNull(), lowered["client_boot_id"] != sf.col("first.boot_id")
    by = text("%s set it from %s to %s (%s)", lowered["client_id"], lowered["old"], lowered["new"], lowered["by"])
    illegal = sf.col("first_queue.dropped.reason") == "illegal"
    synced, here = lowered["by"] == SYNC, sf.col("committed.boot_id") == lowered["boot_id"]
    copied = text("the slave took %s from its master, and had %s", lowered["new"], lowered["old"])
    return [
        Stage("i", known & synced & here, "O6", trigger=copied),
        Stage("i", known & synced, missing=later("stage i, the slave copied a lower offset of its master")),
        Stage("i", known & sf.col("corrected").isNotNull(), "O16", trigger=corrected_words()),
        Stage("i", known & ~another & illegal, "O16", trigger=by),
        Stage("i", known & another, "O12", trigger=by),
        Stage("i", known, missing=later("stage i, the first owner itself set the offset lower")),
    ]


def corrected_words() -> Column:
    """Of a pull that the broker answered with another offset."""
    told = sf.col("corrected")
    return text("%s asked for %s and was sent to %s", told["client_id"], told["request_offset"], told["next_offset"])


def _told_by_another() -> list[Stage]:
    """Stage h: one replica took the offset, another one answered, or the same slave after it was made the master."""
    taken, told, promoted = sf.col("committed"), sf.col("answered"), sf.col("promoted")
    taken_by, told_by = sf.col("taken_by"), sf.col("told_by")
    another = (taken["boot_id"] != told["boot_id"]) & (taken["process"] != told["process"])
    unknown = text("no BOOT of %s", sf.when(taken_by.isNull(), taken["process"]).otherwise(told["process"]))
    of_master, had = taken_by == MASTER, sf.coalesce(sf.col("copied.new") > sf.col("first.queue_offset"), sf.lit(False))
    to_slave = another & (told_by != MASTER)
    forgot = later("stage h, the slave had copied the offset, and did not have it when it answered")
    became = text("a slave that had copied at most %s became the master", "copied.new")
    nothing = sf.lit("a slave that had copied no offset of the group became the master")
    became = sf.when(sf.col("copied").isNull(), nothing).otherwise(became)
    known = sf.coalesce(sf.col("slave_us") < promoted["wall_us"], sf.lit(False))
    unseen = text("no BOOT of the slave that became the master of %s", "first.broker_name")
    older = sf.lit("a slave answered in the master's absence")
    returned = text("%s came back, and had not what a slave had been told", told["process"])
    return [
        Stage("h", promoted.isNotNull() & of_master & had, missing=forgot),
        Stage("h", promoted.isNotNull() & of_master & ~known, missing=unseen),
        Stage("h", promoted.isNotNull() & of_master, "O5", trigger=became),
        Stage("h", another & (taken_by.isNull() | told_by.isNull()), missing=unknown),
        Stage("h", to_slave & of_master & had, missing=forgot),
        Stage("h", to_slave & of_master, "O5", trigger=older),
        Stage("h", another & promoted.isNull() & ~of_master & (told_by == MASTER), "O6", trigger=returned),
        Stage("h", another & promoted.isNull(), missing=later("stage h, another replica answered")),
    ]


def _lost_at_a_start() -> list[Stage]:
    """Stage g: another start of the same broker answered, and what it had loaded was older."""
    taken, told, loaded = sf.col("committed"), sf.col("answered"), sf.col("loaded")
    restarted = taken["boot_id"] != told["boot_id"]
    unflushed = sf.col("flushed").isNull() | (sf.col("flushed.seq") < taken["seq"])
    start = sf.when(loaded["source"] == "none", text("%s found no offset file", told["process"])).otherwise(
        text("%s loaded its offsets from %s", told["process"], loaded["source"])
    )
    no_load = text("no OFF_LOAD of the start of %s that answered", told["process"])
    return [
        Stage("g", restarted & loaded.isNull(), missing=no_load),
        Stage("g", restarted & (loaded["source"] == "bak"), "O4", trigger=start),
        Stage("g", restarted & (loaded["source"] == "none") & ~unflushed, "O15", trigger=start),
        Stage("g", restarted & unflushed, "O3", trigger=start),
        Stage("g", restarted, missing=later("stage g, the offset was flushed and the next start did not have it")),
    ]


def _not_told() -> list[Stage]:
    """Stage j: the same start of the broker, which nobody had told a lower offset."""
    why: Column = sf.col("answered.why")
    goodbye = text(
        "whether the last offset of %s had come to %s (O2): it said goodbye after it, and no line of broker.log says "
        "why the broker had a lower one", "first.process", "first.broker_name",
    )  # fmt: skip
    zero = text("no offset of the group: the queue begins at %s", "second_queue.opened.start_offset")
    return [
        Stage("j", why == "default_zero", "O15", trigger=zero),
        Stage("j", without_journal(sf.col("first_owner")), missing=goodbye),
        Stage("j", sf.lit(True), missing=later("stage j, the broker had the offset and answered a lower one")),
    ]
