"""What the report shows of the findings: a few small aggregates and one example a cause, never the whole table."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from dejamq_proto.events import Fault
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as sf

from dejamq_analytics.schema import of

UNDETERMINED = "undetermined"
COLUMNS, QUEUES, FAULTS = 60, 20, 12


class Digest(NamedTuple):
    """``columns`` split the time from the first finding or fault to the last; ``faults`` are (share of it, label)."""

    labels: Sequence[str]
    columns: Sequence[Mapping[str, int]]
    ends: tuple[str, str]
    faults: Sequence[tuple[float, str]]
    queues: Sequence[tuple[str, int]]
    examples: Sequence[Row]


def digest(findings: DataFrame, events: DataFrame) -> Digest:
    """Four small jobs over cached frames."""
    label = sf.coalesce("cause", sf.lit(UNDETERMINED))
    faults = of(events, Fault).where("phase = 'begin'").orderBy("wall_us").limit(FAULTS).collect()
    # epoch microseconds, because a duration must be divided by the number of columns
    at = sf.unix_micros("time")
    extent = findings.agg(sf.min(at).alias("first"), sf.max(at).alias("last")).first()
    if extent is None or extent["first"] is None:
        return Digest([], [], ("", ""), [], [], [])
    begin = min([extent["first"], *[fault.wall_us for fault in faults]])
    width = max(1, (extent["last"] - begin) // COLUMNS + 1)
    counted = findings.groupBy(label.alias("label"), sf.floor((at - begin) / width).alias("column"))
    columns: list[dict[str, int]] = [{} for _ in range(COLUMNS)]
    for row in counted.agg(sf.count("*").alias("n")).collect():
        columns[min(row.column, COLUMNS - 1)][row.label] = row.n
    labels = sorted({name for column in columns for name in column})
    span = width * COLUMNS
    ends = (_clock(begin), _clock(begin + span))
    marks = [((fault.wall_us - begin) / span, f"{fault.kind} {fault.target}") for fault in faults]
    return Digest(labels, columns, ends, marks, _by_queue(findings), _examples(findings, label))


def _by_queue(findings: DataFrame) -> list[tuple[str, int]]:
    name = sf.format_string("%s/%s/%s", "second.broker_name", "second.topic", "second.queue_id")
    rows = findings.where("not expected").groupBy(name.alias("queue")).agg(sf.count("*").alias("n"))
    return [(row.queue, row.n) for row in rows.orderBy(sf.desc("n"), "queue").limit(QUEUES).collect()]


def _examples(findings: DataFrame, label: Column) -> list[Row]:
    """The earliest of each cause whose first delivery had ended, if there is one: it tells the whole story."""
    order = Window.partitionBy(label).orderBy(sf.col("first.result").isNull(), "time", "finding_id")
    chosen = findings.withColumn("nth", sf.row_number().over(order)).where("nth = 1").drop("nth")
    return chosen.orderBy("expected", sf.col("cause").isNull(), "cause").collect()


def _clock(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
