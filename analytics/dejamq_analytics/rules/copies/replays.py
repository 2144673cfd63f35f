"""L7: a dead letter that an operator sent again. It is a new record, asked for by name, so it is expected."""

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import line, lines, text
from dejamq_analytics.rules.identity import RECORD
from dejamq_analytics.rules.joins import beside


def with_operator(pairs: DataFrame, appends: DataFrame) -> DataFrame:
    """Pairs with ``operator``: the APPEND of the later record where a command stored it, else null."""
    stored = appends.where("origin = 'admin'").groupBy(*RECORD).agg(
        sf.min(sf.struct("seq", "process", "boot_id", "origin_ref")).alias("operator")
    )  # fmt: skip
    return beside(pairs, stored, {name: f"second.{name}" for name in RECORD})


def replayed(pairs: DataFrame) -> DataFrame:
    """Deliveries of another record with one key, where an operator asked for that record."""
    return pairs.where(asked_for()).select(
        "identity", "first", "second",
        sf.lit("L7").alias("cause"),
        sf.lit("operator").alias("stage"),
        text("dead letter %s was sent again", "operator.origin_ref").alias("trigger"),
        sf.lit(None).cast("string").alias("missing"),
        sf.lit(True).alias("expected"),
        lines(
            _delivered("first"),
            line("APPEND", text("by a command, from dead letter %s", "operator.origin_ref"),
                 process="operator.process", boot_id="operator.boot_id", seq="operator.seq"),
            _delivered("second"),
        ).alias("evidence"),
    )  # fmt: skip


def not_replayed(pairs: DataFrame) -> DataFrame:
    """All other pairs, for the other rules: the same record twice is no replay, by any writer."""
    return pairs.where(~asked_for()).drop("operator")


def asked_for() -> Column:
    return sf.col("operator").isNotNull() & (sf.col("identity") != "I1")


def _delivered(side: str) -> Column:
    summary = text("%s queue %s offset %s, delivery %s", f"{side}.broker_name", f"{side}.queue_id",
                   f"{side}.queue_offset", f"{side}.delivery_id")  # fmt: skip
    return line("DELIVER", summary, process=f"{side}.process", boot_id=f"{side}.boot_id", seq=f"{side}.seq")
