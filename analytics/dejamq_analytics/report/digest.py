"""An audit as the report shows it: a few small aggregates and one example a cause, never a whole table."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from dejamq_analytics.frames import Column, DataFrame, Row, Window
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.report.ownership_chart import ChartLane, Holding
from dejamq_analytics.rules.anomalies import ownership
from dejamq_analytics.rules.history.faults import begun
from dejamq_analytics.rules.history.queues import QUEUE
from dejamq_analytics.sources.facts import Facts

UNDETERMINED = "undetermined"
COLUMNS, QUEUES, FAULTS, HOLDS, TOLD = 60, 12, 12, 400, 5
AIR = 20
"""The chart begins and ends this part of the trouble's length before and after it, and at least a second."""
Queue = tuple[str, ...]


class TimeSpan(NamedTuple):
    """The time that the charts show, in microseconds of wall time."""

    begin: int
    width: int

    def share(self, wall_us: int) -> float:
        """How far into the span, from 0 to 1; what lies outside is at its end."""
        return min(max((wall_us - self.begin) / self.width, 0.0), 1.0)


class Digest(NamedTuple):
    """``columns`` split the shown time; ``faults`` are (share of it, label), ``queues`` the worst, worst first.

    ``unusual`` are the first anomalies of each kind, ``examples`` one finding a cause.
    """

    labels: Sequence[str]
    columns: Sequence[Mapping[str, int]]
    ends: tuple[str, str]
    faults: Sequence[tuple[float, str]]
    queues: Sequence[tuple[str, int]]
    lanes: Sequence[ChartLane]
    examples: Sequence[Row]
    unusual: Sequence[Row]


def digest(findings: DataFrame, anomalies: DataFrame, facts: Facts) -> Digest:
    """A handful of small jobs over cached frames."""
    unusual = _first_of_each(anomalies)
    faults = begun(facts.events).orderBy("wall_us", "boot_id", "seq").limit(FAULTS).collect()
    span = _span(findings, unusual, faults)
    if span is None:
        return Digest([], [], ("", ""), [], [], [], [], unusual)
    label = sf.coalesce("cause", sf.lit(UNDETERMINED))
    counted = _counted(findings, label, span)
    columns: list[dict[str, int]] = [{} for _ in range(COLUMNS)]
    for row in counted:
        columns[row.column][row.label] = columns[row.column].get(row.label, 0) + row.n
    labels = sorted({name for column in columns for name in column})
    marks = [(span.share(fault.wall_us), f"{fault.kind} {fault.target}") for fault in faults]
    worst = _worst(counted, unusual)
    named = [(_name(queue, worst), count) for queue, count in worst.items() if count]
    lanes = _lanes(facts, worst, counted, span)
    ends = _clock(span.begin), _clock(span.begin + span.width)
    return Digest(labels, columns, ends, marks, named, lanes, _examples(findings, label), unusual)


def _span(findings: DataFrame, unusual: Sequence[Row], faults: Sequence[Row]) -> TimeSpan | None:
    at = sf.unix_micros("time")
    extent = findings.agg(sf.min(at).alias("first"), sf.max(at).alias("last")).first()
    known = [] if extent is None or extent["first"] is None else [extent["first"], extent["last"]]
    known += [_micros(row.time) for row in unusual if row.time is not None]
    if not known:
        return None
    begin, end = min([*known, *[fault.wall_us for fault in faults]]), max(known)
    air = max(1_000_000, (end - begin) // AIR)
    return TimeSpan(begin - air, end - begin + 2 * air)


def _counted(findings: DataFrame, label: Column, span: TimeSpan) -> list[Row]:
    """Findings by queue, cause and column of the chart."""
    place = (sf.unix_micros("time") - span.begin) * COLUMNS / span.width
    column = sf.least(sf.floor(place).cast("int"), sf.lit(COLUMNS - 1)).alias("column")
    queue = ["consumer_group", *[f"second.{name}" for name in QUEUE[1:]]]
    return findings.groupBy(*queue, "expected", label.alias("label"), column).agg(sf.count("*").alias("n")).collect()


def _worst(counted: Iterable[Row], unusual: Iterable[Row]) -> dict[Queue, int]:
    """Queues with most unwanted duplicates, then those with another trouble, by name."""
    found: dict[Queue, int] = {}
    for row in counted:
        if not row.expected:
            queue = tuple(str(row[name]) for name in QUEUE)
            found[queue] = found.get(queue, 0) + row.n
    for row in unusual:
        if row.consumer_group and row.broker_name and row.queue_id is not None:
            found.setdefault(tuple(str(row[name]) for name in QUEUE), 0)
    chosen = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:QUEUES]
    return dict(chosen)


def _lanes(facts: Facts, queues: Mapping[Queue, int], counted: Iterable[Row], span: TimeSpan) -> list[ChartLane]:
    """In order of name, so that a broker's queues stand together."""
    known = sf.concat_ws("|", *QUEUE).isin(*["|".join(queue) for queue in queues])
    held = ownership.holdings(facts.events, facts.processes).where(known)
    inside = held.where((sf.col("ended_us") >= span.begin) & (sf.col("opened_us") <= span.begin + span.width))
    holds: dict[Queue, list[Holding]] = {queue: [] for queue in queues}
    for row in inside.orderBy("opened_us", "boot_id", "pq_id").limit(HOLDS).collect():
        one = Holding(row.process, span.share(row.opened_us), span.share(row.ended_us))
        holds[tuple(str(row[name]) for name in QUEUE)].append(one)
    again: dict[Queue, dict[int, int]] = {queue: {} for queue in queues}
    for row in counted:
        queue = tuple(str(row[name]) for name in QUEUE)
        if queue in again and not row.expected:
            again[queue][row.column] = again[queue].get(row.column, 0) + row.n
    return [
        ChartLane(
            _name(queue, queues), holds[queue], [((at + 0.5) / COLUMNS, n) for at, n in sorted(again[queue].items())]
        )
        for queue in sorted(queues)
        if holds[queue]
    ]


def _name(queue: Queue, among: Iterable[Queue]) -> str:
    """``broker:id``, with topic and group where the others differ."""
    group, broker, topic, number = queue
    name = f"{broker}:{number}"
    if len({other[2] for other in among}) > 1:
        name = f"{topic} {name}"
    return f"{group} {name}" if len({other[0] for other in among}) > 1 else name


def _examples(findings: DataFrame, label: Column) -> list[Row]:
    """The earliest of each cause whose first delivery had ended, if there is one: it tells the whole story."""
    order = Window.partitionBy(label).orderBy(sf.col("first.result").isNull(), "time", "finding_id")
    chosen = findings.withColumn("nth", sf.row_number().over(order)).where("nth = 1").drop("nth")
    return chosen.orderBy("expected", sf.col("cause").isNull(), "cause").collect()


def _first_of_each(anomalies: DataFrame) -> list[Row]:
    order = Window.partitionBy("kind").orderBy("time", "anomaly_id")
    return (
        anomalies.withColumn("nth", sf.row_number().over(order))
        .where(f"nth <= {TOLD}")
        .orderBy("kind", "nth")
        .collect()
    )


def _clock(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _micros(moment: datetime) -> int:
    """Spark hands timestamps over in the machine's zone and without saying so."""
    return int(moment.timestamp() * 1e6)
