"""Small charts of the pages, and the calls of the report's charts. Names in them are cleaned here: they are hostile."""

from collections.abc import Mapping, Sequence
from typing import Any

from dejamq_proto.texts import printable
from markupsafe import Markup

WIDE, TALL = 120, 26
LABEL_LETTERS = 24


def sparkline(values: Sequence[float], title: str) -> Markup:
    """A line from left to right, its highest value at the top."""
    if len(values) < 2:
        return Markup("")
    top, step = max(*values, 1e-9), WIDE / (len(values) - 1)
    points = " ".join(
        f"{index * step:.1f},{TALL - 2 - (TALL - 4) * max(0.0, value) / top:.1f}" for index, value in enumerate(values)
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}"><polyline points="{}"/></svg>'
    ).format(WIDE, TALL, printable(title), points)


def short_name(process: str) -> str:
    """A client's id without the number that makes it unique: machine and process id tell people enough."""
    return printable(process.partition("#")[0] or process)


def ownership_chart(
    holdings: Sequence[Mapping[str, Any]], faults: Sequence[Mapping[str, Any]], begin_us: int, end_us: int,
    ends: tuple[str, str],
) -> tuple[Markup, dict[str, int]]:  # fmt: skip
    """Who held which queue, and the colour of each owner."""
    from dejamq_analytics.report.charts import ChartMark
    from dejamq_analytics.report.ownership_chart import ChartLane, Holding, ownership

    def share(at_us: int) -> float:
        return min(max((at_us - begin_us) / max(1, end_us - begin_us), 0.0), 1.0)

    owners = {name: number for number, name in enumerate(sorted({short_name(row["process"]) for row in holdings}))}
    lanes: dict[str, list[Holding]] = {}
    topics = {row["topic"] for row in holdings}
    for row in holdings:
        place = f"{row['broker_name']}:{row['queue_id']}"
        label = printable(f"{row['topic']} {place}" if len(topics) > 1 else place)
        held = Holding(short_name(row["process"]), share(row["opened_us"]), share(row["ended_us"]))
        lanes.setdefault(label, []).append(held)
    marks = [ChartMark(share(fault["wall_us"]), printable(f"{fault['kind']} {fault['target']}")) for fault in faults]
    drawn = ownership(
        "Owners of each queue over time", [ChartLane(label, held, []) for label, held in lanes.items()], owners, marks,
        ends,
    )  # fmt: skip
    return Markup(drawn), owners  # the report's charts escape, and the names are printable


def time_chart(
    rows: Sequence[Mapping[str, Any]], columns: int, faults: Sequence[Mapping[str, Any]], begin_us: int, end_us: int,
    ends: tuple[str, str],
) -> tuple[Markup, dict[str, int]]:  # fmt: skip
    """Findings over time by cause, and the colour of each."""
    from dejamq_analytics.report.charts import ChartMark, timeline

    colours = {name: number for number, name in enumerate(sorted({row["cause"] for row in rows}))}
    drawn: list[dict[int, int]] = [{} for _ in range(columns)]
    for row in rows:
        drawn[row["place"]][colours[row["cause"]]] = row["n"]
    width = max(1, end_us - begin_us)
    marks = [
        ChartMark((fault["wall_us"] - begin_us) / width, printable(f"{fault['kind']} {fault['target']}"))
        for fault in faults
    ]
    return Markup(timeline("Duplicates over time", drawn, marks, ends)), colours  # as above


def offsets_chart(
    commits: Sequence[Mapping[str, Any]], delivered: Sequence[Mapping[str, Any]], span: tuple[int, int], columns: int,
    colours: Mapping[str, int], faults: Sequence[Mapping[str, Any]], marked: int | None = None,
) -> Markup:  # fmt: skip
    """Of one queue: what was delivered to whom, and what the broker had of it as done."""
    from dejamq_analytics.report.charts import ChartMark
    from dejamq_analytics.report.offset_chart import GivenSpan, OffsetStep, offsets

    begin, end = span
    width = max(1, end - begin)
    steps = [OffsetStep((row["wall_us"] - begin) / width, row["new"], printable(row["by"])) for row in commits]
    given = [
        GivenSpan((row["place"] + 0.5) / columns, row["low"], row["high"], colours.get(short_name(row["process"]), 7),
              short_name(row["process"]))
        for row in delivered
    ]  # fmt: skip
    marks = [
        ChartMark((fault["wall_us"] - begin) / width, printable(f"{fault['kind']} {fault['target']}"))
        for fault in faults
    ]
    return Markup(offsets("Offsets of the queue over time", steps, given, marks, marked))  # as above
