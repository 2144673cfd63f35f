"""B13: a message that was given back because its handler took longer than the consume time-out, and that this handler
then did.

The retry waits in the schedule topic; the append there names the delivery that was given back. A handler that failed
in the end gave a reason for the retry: that is L1. Without any RESULT it had not ended when its process did, if the
journal is whole.
"""

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.copies.sent_back_twice import FAILURE, PLACE, delivered_from, given_back
from dejamq_analytics.rules.evidence import first_of, line, lines, text
from dejamq_analytics.rules.joins import beside


def expired(deliveries: DataFrame) -> DataFrame:
    """Deliveries that were given back while their handlers ran, which did not fail."""
    return deliveries.where("sendback_expired AND sendback_outcome != 'failed' AND NOT failed")


def retries(late: DataFrame, appends: DataFrame, processes: DataFrame) -> DataFrame:
    """Their retry records: by record, ``copy`` as ``copies.by_record`` has it."""
    journal = processes.select("boot_id", sf.struct("gaps", "level", "closed").alias("journal"))
    known = beside(late, journal, {"boot_id": "boot_id"})
    first = known.select(
        sf.col("boot_id").alias("asker_boot"), sf.col("delivery_id").alias("asker_delivery"),
        sf.struct("process", "boot_id", "seq", "result", "result_seq", "sendback_seq", "delivery_id", "journal").alias(
            "late"
        ),
    )  # fmt: skip
    asked = beside(given_back(appends), first, {name: name for name in FAILURE}, small=False)
    asked = asked.where("late IS NOT NULL")
    return delivered_from(asked.select(*PLACE, _judgement().alias("copy")), appends)


def _judgement() -> Column:
    hole = sf.size(sf.filter("late.journal.gaps", lambda gap: gap["last"] > sf.col("late.seq"))) > 0
    whole = sf.col("late.journal.closed") | (sf.col("late.journal.level") == "forensic")
    missing = sf.when(
        sf.col("late.result").isNull(),
        first_of((hole, text("seq gap of %s", "late.process")), (~whole, text("the last lines of %s", "late.process"))),
    )
    appended = line("APPEND", text("the next try, at %s", "broker_name"))
    return sf.struct(
        sf.lit(0).alias("rank"),
        sf.when(missing.isNull(), "B13").alias("cause"),
        sf.lit("retry").alias("stage"),
        text("given back while its handler ran, which ended: %s", sf.coalesce("late.result", sf.lit("never"))).alias(
            "trigger"
        ),
        missing.alias("missing"),
        lines(
            _line("DELIVER", text("delivery %s", "late.delivery_id"), "seq"),
            _line("SENDBACK", sf.lit("its time was over"), "sendback_seq"),
            appended,
            _line("RESULT", text("%s", "late.result"), "result_seq"),
        ).alias("evidence"),
    )


def _line(event: str, summary: Column, seq: str) -> Column:
    return line(event, summary, process="late.process", boot_id="late.boot_id", seq=f"late.{seq}")
