"""Why a message is stored twice: the two appends, traced to the sends that caused them.

The producer tries again after a try without a good answer. The way the program sent names that second try: P1 (send),
P2 (submit), P6 (a batch, which goes again as a whole) or P10 (a request). It is P3 after a try that was stored, less
durably than asked. P5 is the application sending the message again.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, line, lines, text
from dejamq_analytics.rules.identity import RECORD
from dejamq_analytics.rules.joins import beside, united
from dejamq_analytics.rules.stage import NOT_BY_THIS_VERSION
from dejamq_analytics.sources.schema import EVIDENCE

UNKNOWN_CALL = 0
"""Calls of a journal are counted from 1; traces do not say which tries are of one call."""
CAUSES_BY_MODE = {"async": "P2", "batch": "P6", "request": "P10"}


class Producers(NamedTuple):
    """Journal lines of producers."""

    sends: DataFrame
    processes: DataFrame


def judged_copies(stored: DataFrame, producers: Producers) -> DataFrame:
    """Pairs of stored copies with cause, stage, trigger, missing, expected and evidence.

    A producer's second try and the application's second send are told apart by the call's number: tries of one call
    share it.
    """
    frame = stored
    for side in ("first", "second"):
        frame = _with_send(frame, producers, side)
    # the copy appended first may belong to the later try, when the first one was held up on its way
    swapped = sf.col("first_send.try_no") > sf.col("second_send.try_no")
    frame = frame.withColumn("early", sf.when(swapped, sf.col("second_send")).otherwise(sf.col("first_send")))
    frame = frame.withColumn("late", sf.when(swapped, sf.col("first_send")).otherwise(sf.col("second_send")))
    decided = frame.withColumn("decision", _decision())
    return decided.select(
        sf.lit("I2").alias("identity"), "first", "second",
        sf.col("decision.cause").alias("cause"),
        sf.lit("send").alias("stage"),
        _trigger().alias("trigger"),
        sf.col("decision.missing").alias("missing"),
        sf.lit(False).alias("expected"),
        _evidence().alias("evidence"),
    )  # fmt: skip


def judged_deliveries(pairs: DataFrame, copies: DataFrame, brokers: DataFrame) -> DataFrame:
    """Deliveries of two records with one unique key, neither from a retry topic: judged as their stored copies are."""
    sent = pairs.where((sf.col("identity") == "I2") & ~sf.col("second.topic").startswith("%"))
    judged = beside(sent, by_record(copies), {name: f"second.{name}" for name in RECORD}, small=False)
    known = brokers.select("broker_name", sf.lit(True).alias("has_journal"))
    judged = beside(judged, known, {"broker_name": "second.broker_name"})
    unknown = first_of(
        (sf.col("has_journal").isNull(), text("no journal of %s", "second.broker_name")),
        (sf.lit(True), text("no APPEND by a client of both records of message %s", "second.unique_key")),
    )
    appended = sf.coalesce("copy.evidence", sf.array().cast(f"array<{EVIDENCE}>"))
    return judged.select(
        "identity", "first", "second",
        sf.col("copy.cause").alias("cause"),
        sf.coalesce("copy.stage", sf.lit("send")).alias("stage"),
        sf.col("copy.trigger").alias("trigger"),
        sf.when(sf.col("copy.cause").isNull(), sf.coalesce("copy.missing", unknown)).alias("missing"),
        sf.lit(False).alias("expected"),
        sf.concat(appended, lines(_delivered("first"), _delivered("second"))).alias("evidence"),
    )  # fmt: skip


def undelivered(copies: DataFrame, judged: DataFrame) -> DataFrame:
    """Stored copies without those that a finding of deliveries already tells of: a copy counts once."""
    first, second = (sf.struct(*[f"{side}.{name}" for name in RECORD]) for side in ("first", "second"))
    told = judged.select(sf.explode(sf.array(first, second)).alias("told"))
    return copies.join(told, second == sf.col("told"), how="left_anti").select(*copies.columns)


def sent_again(pairs: DataFrame, producers: Producers) -> DataFrame:
    """I3: the application sent its business twice (P5), if both sends are journaled; to two topics as it is meant (L9).

    ``missing`` names the message whose send nobody journalled; then nothing is claimed.
    """
    by_key = producers.sends.groupBy("unique_key").agg(
        sf.min(sf.struct("boot_id", "call_id", "seq", "process", "request_seq", "outcome")).alias("send")
    )
    frame = pairs.where(sf.col("identity") == "I3")
    for side in ("first", "second"):
        named = by_key.select(sf.col("unique_key").alias("key"), sf.col("send").alias(f"{side}_send"))
        frame = frame.join(named, sf.col("key") == sf.col(f"{side}.unique_key"), how="left").drop("key")
    absent = first_of(
        (sf.col("first_send").isNull(), text("no SEND_TRY of message %s", "first.unique_key")),
        (sf.col("second_send").isNull(), text("no SEND_TRY of message %s", "second.unique_key")),
    )
    internal = sf.col("first.topic").startswith("%") | sf.col("second.topic").startswith("%")
    elsewhere = ~internal & (sf.col("first.topic") != sf.col("second.topic"))
    return frame.select(
        "identity", "first", "second",
        sf.when(absent.isNull(), sf.when(elsewhere, "L9").otherwise("P5")).alias("cause"),
        sf.lit("send").alias("stage"),
        sf.when(elsewhere, text("sent to %s and to %s", "first.topic", "second.topic"))
        .otherwise("two sends of one business key")
        .alias("trigger"),
        absent.alias("missing"),
        (absent.isNull() & elsewhere).alias("expected"),
        lines(_tried("first_send"), _delivered("first"), _tried("second_send"), _delivered("second")).alias("evidence"),
    )  # fmt: skip


def _with_send(frame: DataFrame, producers: Producers, side: str) -> DataFrame:
    """The try that wrote this copy, and the producer it belongs to."""
    keys = ("boot_id", "request_seq", "unique_key")
    send = producers.sends.select(*keys, sf.struct(*producers.sends.columns).alias(f"{side}_send"))
    append = {"boot_id": f"{side}.client_boot_id"}
    frame = beside(
        frame, send, append | {name: f"{side}.{name}" for name in ("request_seq", "unique_key")}, small=False
    )
    owner = producers.processes.select("boot_id", sf.struct("process", "gaps").alias(f"{side}_producer"))
    return beside(frame, owner, append)


def _decision() -> Column:
    """The order of the conditions matters: first what is not known, then what was one call, last the cause that
    remains.
    """
    early, late = sf.col("early"), sf.col("late")
    one_call = (early["boot_id"] == late["boot_id"]) & (early["call_id"] == late["call_id"])
    one_request = early["request_seq"] == late["request_seq"]
    between = sf.filter("first_producer.gaps", lambda gap: (gap["last"] > early["seq"]) & (gap["first"] < late["seq"]))
    unanswered = text("no SEND_RESULT of try %s by %s", early["try_no"], early["process"])
    known = (early["outcome"] == "ok") | early["definite"]
    either = text("whether %s itself (P3) or its program (P5) sent it again, as it was stored less durably than asked: "
                  "no log says", early["process"])  # fmt: skip
    return first_of(
        *[(_unknown(side).isNotNull(), _undecided(_unknown(side))) for side in ("first", "second")],
        (early["call_id"] == UNKNOWN_CALL, _undecided(either)),
        (~one_call, _caused(sf.lit("P5"))),
        (one_request, _undecided(sf.lit(NOT_BY_THIS_VERSION + "one request stored twice"))),
        (early["outcome"].isNull(), _undecided(unanswered)),
        (sf.size(between) > 0, _undecided(text("seq gap of %s", early["process"]))),
        (early["outcome"] == "not_ok_status", _caused(sf.when(early["mode"] == "batch", "P6").otherwise("P3"))),
        (known, _undecided(text("the first try ended %s, nothing to try again for", early["outcome"]))),
        (sf.lit(True), _caused(_by_mode(early["mode"]))),
    )


def _by_mode(mode: Column) -> Column:
    return first_of(
        *[(mode == name, sf.lit(cause)) for name, cause in CAUSES_BY_MODE.items()], (sf.lit(True), sf.lit("P1"))
    )


def _unknown(side: str) -> Column:
    """Which line of this copy's way from the producer is missing."""
    append, producer = sf.col(side), sf.col(f"{side}_producer")
    unjournaled = text(
        "no APPEND line of a copy at %s, only its commit log: the producer's own retry (P1, P2, P3, P6) and the "
        "program's (P5) look alike", append["broker_name"],
    )  # fmt: skip
    nobody = text("no journal of the producer with boot id %s", append["client_boot_id"])
    untried = text("no SEND_TRY of request %s by %s", append["request_seq"], producer["process"])
    return first_of(
        (append["client_boot_id"].isNull(), unjournaled),
        (producer.isNull(), nobody),
        (sf.col(f"{side}_send").isNull(), untried),
    )


def _caused(cause: Column) -> Column:
    """A decision that names its cause."""
    return sf.struct(cause.alias("cause"), sf.lit(None).cast("string").alias("missing"))


def _undecided(missing: Column) -> Column:
    """A decision that names what would have to be there."""
    return sf.struct(sf.lit(None).cast("string").alias("cause"), missing.alias("missing"))


def _trigger() -> Column:
    cause = sf.col("decision.cause")
    return first_of(
        (cause == "P5", sf.lit("the application sent the message again")),
        (cause.isNotNull() & (sf.col("early.outcome") == "not_ok_status"),
         text("try %s was stored, less durably than asked", "early.try_no")),
        (cause.isNotNull() & sf.col("early.by_another"),
         text("try %s ended with its connection, which another call's time-out closed", "early.try_no")),
        (cause.isNotNull(), text("try %s ended %s", "early.try_no", "early.outcome")),
    )  # fmt: skip


def _evidence() -> Column:
    return lines(
        _tried("early"), _appended("first"), _answered("early"), _tried("late"), _appended("second"), _answered("late")
    )


def _tried(send: str) -> Column:
    summary = text("call %s, request %s", f"{send}.call_id", f"{send}.request_seq")
    return line("SEND_TRY", summary, process=f"{send}.process", boot_id=f"{send}.boot_id", seq=f"{send}.seq")


def _answered(send: str) -> Column:
    summary = text("try %s: %s, definite %s", f"{send}.try_no", f"{send}.outcome", f"{send}.definite")
    return line("SEND_RESULT", summary, process=f"{send}.process", boot_id=f"{send}.boot_id", seq=f"{send}.result_seq")


def _appended(side: str) -> Column:
    summary = text("%s queue %s offset %s, log offset %s", f"{side}.broker_name", f"{side}.queue_id",
                   f"{side}.queue_offset", f"{side}.log_offset")  # fmt: skip
    return line("APPEND", summary, process=f"{side}.process", boot_id=f"{side}.boot_id", seq=f"{side}.seq")


def _delivered(side: str) -> Column:
    summary = text("%s queue %s offset %s, delivery %s", f"{side}.broker_name", f"{side}.queue_id",
                   f"{side}.queue_offset", f"{side}.delivery_id")  # fmt: skip
    return line("DELIVER", summary, process=f"{side}.process", boot_id=f"{side}.boot_id", seq=f"{side}.seq")


def by_record(copies: DataFrame) -> DataFrame:
    """Each stored record that has a copy, with the judgement of the pair in which it is the later one, if any."""
    judgement = ("cause", "stage", "trigger", "missing", "evidence")
    sides = [
        copies.select(
            *[f"{side}.{name}" for name in RECORD],
            sf.struct(sf.lit(rank).alias("rank"), *judgement).alias("copy"),
        )
        for rank, side in enumerate(("second", "first"))
    ]
    return first_by_record(sides)


def first_by_record(copies: Sequence[DataFrame]) -> DataFrame:
    """Several such frames as one. Of two judgements of a record, the later copy's stays, and of these an open one."""
    words = [sf.coalesce(f"copy.{name}", sf.lit("")) for name in ("cause", "stage", "trigger", "missing")]
    first = sf.min_by("copy", sf.struct("copy.rank", *words))
    return united(copies).groupBy(*RECORD).agg(first.alias("copy"))
