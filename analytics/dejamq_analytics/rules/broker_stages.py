"""Stages g to j: the broker had taken the offset, and told the next owner a lower one. What became of it there?"""

from pyspark.sql import Column
from pyspark.sql import functions as sf

from dejamq_analytics.rules.evidence import text
from dejamq_analytics.rules.stage import Stage, later


def forgotten() -> list[Stage]:
    """Every row follows those that say that the offset reached a broker and was there in time."""
    return [*_overwritten(), *_lost_at_a_start(), *_not_told()]


def _overwritten() -> list[Stage]:
    """Stage i: somebody set it lower."""
    lowered = sf.col("lowered")
    known, another = lowered.isNotNull(), lowered["client_boot_id"] != sf.col("first.boot_id")
    by = text("%s set it from %s to %s (%s)", lowered["client_id"], lowered["old"], lowered["new"], lowered["by"])
    illegal = sf.col("first_queue.dropped.reason") == "illegal"
    return [
        Stage("i", known & ~another & illegal, "O16", trigger=by),
        Stage("i", known & another, "O12", trigger=by),
        Stage("i", known, missing=later("stage i, the first owner itself set the offset lower")),
    ]


def _lost_at_a_start() -> list[Stage]:
    """Stage g: another start of the same broker answered, and what it had loaded was older."""
    taken, told, loaded = sf.col("committed"), sf.col("answered"), sf.col("loaded")
    restarted = taken["boot_id"] != told["boot_id"]
    another = restarted & (taken["process"] != told["process"])
    unflushed = sf.col("flushed").isNull() | (sf.col("flushed.seq") < taken["seq"])
    start = text("%s loaded its offsets from %s", told["process"], loaded["source"])
    no_load = text("no OFF_LOAD of the start of %s that answered", told["process"])
    return [
        Stage("h", another, missing=later("stage h, another replica answered (O5, O6)")),
        Stage("g", restarted & loaded.isNull(), missing=no_load),
        Stage("g", restarted & (loaded["source"] == "bak"), "O4", trigger=start),
        Stage("g", restarted & (loaded["source"] == "none") & ~unflushed, "O15", trigger=start),
        Stage("g", restarted & unflushed, "O3", trigger=start),
        Stage("g", restarted, missing=later("stage g, the offset was flushed and the next start did not have it")),
    ]


def _not_told() -> list[Stage]:
    """Stage j: the same start of the broker, which nobody had told a lower offset."""
    why: Column = sf.col("answered.why")
    zero = text("no offset of the group: the queue begins at %s", "second_queue.opened.start_offset")
    return [
        Stage("j", why == "default_zero", "O15", trigger=zero),
        Stage("j", sf.lit(True), missing=later("stage j, the broker had the offset and answered a lower one")),
    ]
