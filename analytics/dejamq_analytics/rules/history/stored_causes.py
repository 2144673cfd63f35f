"""Proofs of commit logs about a repeated record, and open questions. A cause is named only where the log itself
excludes every other one: P5 by two unique keys, P7 by the mark that stands between two commits.
"""

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, line, lines, text

RETRIED_OR_SENT = "no journal of the producer: its own retry (P1, P2, P3, P6) and the application's (P5) look alike"
TWO_RETRIES = "no journals: one failure sent back twice (B11) and two failed deliveries (O and R causes) look alike"
TWO_DEAD = "no journals: why a message was given up twice is not in the log"
DUE_TWICE = "no journal of the broker: a crash (B1) and a slave made the master (B2) look alike"
NEVER_WAITED = "the log no longer has the records that waited for this"
ASKED_FOR = "no journal of the consumer: a failed handler (L1) and one that ran too long (B13) look alike"
NO_HALF = "the log no longer has the half messages of both commits"
TWO_HALVES = "no journal of the producer: two half messages, sent by its own retry (P1) or by the application (P5)"
NO_MARK = "no journal of the broker: committed twice before the mark was written (P7), or the mark was lost (P8)"


def judged(pairs: DataFrame) -> DataFrame:
    """Copies with cause, stage, trigger, missing, expected and evidence; ``with_halves`` was applied to commits."""
    stage, origin = _stage(), sf.col("second.origin")
    missing = first_of(
        (sf.col("identity") == "I3", sf.lit(None).cast("string")),
        (origin == "final", _of_commits()),
        (stage == "delay", sf.lit(DUE_TWICE)),
        (origin.isin("due", "retry") & (sf.col("waited") == 0), sf.lit(NEVER_WAITED)),
        (origin == "retry", sf.lit(TWO_RETRIES)),
        (origin == "dead", sf.lit(TWO_DEAD)),
        (sf.lit(True), sf.lit(RETRIED_OR_SENT)),
    )
    named = sf.when(sf.col("identity") == "I3", "P5").otherwise("P7")
    return pairs.select(
        "identity", "first", "second",
        sf.when(missing.isNull(), named).alias("cause"),
        stage.alias("stage"), _trigger(stage).alias("trigger"), missing.alias("missing"),
        sf.lit(False).alias("expected"), _evidence().alias("evidence"),
    )  # fmt: skip


def asked_for(steps: DataFrame) -> DataFrame:
    """Steps of retry chains: somebody asked for each, and the log does not say why."""
    return steps.select(
        sf.lit("I2").alias("identity"), "first", "second",
        sf.lit(None).cast("string").alias("cause"), sf.lit("retry").alias("stage"),
        text("try %s in %s", "second.reconsume_times", "second.topic").alias("trigger"),
        sf.lit(ASKED_FOR).alias("missing"), sf.lit(True).alias("expected"),
        lines(_record("first", "what came before"), _record("second", "retry")).alias("evidence"),
    )  # fmt: skip


def _stage() -> Column:
    """More copies of one step than records that waited for it: the broker made them."""
    origin, waited = sf.col("second.origin"), sf.col("waited")
    more = origin.isin("due", "retry") & (waited > 0) & (sf.col("nth") > waited)
    return first_of(
        (more, sf.lit("delay")),
        (origin == "final", sf.lit("transaction")),
        (origin == "retry", sf.lit("retry")),
        (origin == "dead", sf.lit("dead letter")),
        (sf.lit(True), sf.lit("send")),
    )


def _of_commits() -> Column:
    """P7 needs the mark of the first half message before the second commit: then no crash had taken it (P8)."""
    first, second = sf.col("first_half"), sf.col("second_half")
    anew = (first["log_offset"] != second["log_offset"]) & (second["check_times"] == 0) & (first["check_times"] == 0)
    return first_of(
        (first.isNull() | second.isNull(), sf.lit(NO_HALF)),
        (anew, sf.lit(TWO_HALVES)),
        (sf.col("mark").isNull(), sf.lit(NO_MARK)),
    )


def _trigger(stage: Column) -> Column:
    one_half = sf.col("first_half.log_offset") == sf.col("second_half.log_offset")
    return first_of(
        (sf.col("identity") == "I3", sf.lit("another message of the same business key")),
        (stage == "delay", text("%s copies of %s that waited", "nth", "waited")),
        (one_half, sf.lit("one half message was committed twice")),
        (sf.col("second_half.check_times") > 0, sf.lit("the half message was stored anew by a check, and committed")),
    )


def _evidence() -> Column:
    """In the order of the log."""
    return lines(
        _half("first_half"), _record("first", "first copy"), _mark(),
        sf.when(sf.col("first_half.log_offset") != sf.col("second_half.log_offset"), _half("second_half")),
        _record("second", "later copy"),
    )  # fmt: skip


def _record(side: str, what: str) -> Column:
    place = ("store_host", "topic", "queue_id", "queue_offset", "log_offset")
    summary = text(f"{what}: %s %s queue %s offset %s, log offset %s", *[f"{side}.{name}" for name in place])
    return _line(summary, side)


def _half(side: str) -> Column:
    return _line(text("half message, queue offset %s, checks %s", f"{side}.queue_offset", f"{side}.check_times"), side)


def _mark() -> Column:
    return _line(text("mark that half message %s has ended", "first_half.queue_offset"), "mark")


def _line(summary: Column, told: str) -> Column:
    """A record as evidence: the store is where to look, the log offset the place in it."""
    nobody = sf.lit(None).cast("string")
    return line("RECORD", summary, process=f"{told}.store", boot_id=nobody, seq=f"{told}.log_offset")
