"""The chart of queue owners over time: a row for each queue, a bar for each holding. Two owners at once overlap."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from dejamq_analytics.report.charts import BOTTOM, COLOURS, WIDTH, ChartMark, head_of, mark_lines, svg, time_axis

LABEL, ROW, AIR = 190, 18, 12
LETTERS = 24
"""As many fit into a label; the whole name is told where the pointer is."""
ROOM = WIDTH - LABEL


class Holding(NamedTuple):
    """One owner's time with a queue, as shares of the chart's width."""

    owner: str
    begin: float
    end: float


class ChartLane(NamedTuple):
    """``duplicates`` are moments, as shares of the width, with how many came again then."""

    label: str
    holds: Sequence[Holding]
    duplicates: Sequence[tuple[float, int]]


def rows_of(holds: Sequence[Holding]) -> list[int]:
    """The row of each holding, in order of their begins: the first that is free, so that none covers another."""
    ends: list[float] = []
    rows = []
    for hold in holds:
        free = next((row for row, end in enumerate(ends) if end <= hold.begin), len(ends))
        ends[free : free + 1] = [hold.end]
        rows.append(free)
    return rows


def overlaps(holds: Sequence[Holding]) -> list[tuple[float, float]]:
    """Where two different owners hold at once, in order; meeting ones are joined."""
    both: list[tuple[float, float]] = []
    for index, later in enumerate(holds):
        for earlier in holds[:index]:
            begin, end = max(earlier.begin, later.begin), min(earlier.end, later.end)
            if earlier.owner != later.owner and begin < end:
                both.append((begin, end))
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(both):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined


def ownership(
    title: str,
    lanes: Sequence[ChartLane],
    colours: Mapping[str, int],
    marks: Sequence[ChartMark],
    ends: tuple[str, str],
) -> str:
    """``colours`` by owner. Overlaps are framed, duplicates are ticks below the bars, ``marks`` lines across all."""
    parts, top = [], head_of(marks, LABEL, ROOM)
    for lane in lanes:
        drawn, height = _lane(lane, top, colours)
        parts += drawn
        top += height
    axis = time_axis(LABEL, top, ends)
    return svg(title, top + BOTTOM, [*parts, *mark_lines(marks, LABEL, ROOM, top), axis])


def _lane(lane: ChartLane, top: int, colours: Mapping[str, int]) -> tuple[list[str], int]:
    """The drawing of one lane, and its height."""
    holds = sorted(lane.holds, key=lambda hold: (hold.begin, hold.end))
    rows = rows_of(holds)
    bars = (max(rows, default=0) + 1) * ROW
    parts = [f'<text x="{LABEL - 10}" y="{top + 13}" text-anchor="end">{escape(_short(lane.label))}</text>']
    for hold, row in zip(holds, rows, strict=True):
        parts.append(
            f'<rect class="c{colours.get(hold.owner, COLOURS - 1) % COLOURS}" x="{_x(hold.begin):.1f}" '
            f'y="{top + row * ROW + 1}" width="{_wide(hold.begin, hold.end)}" height="{ROW - 3}" rx="2">'
            f"<title>{escape(lane.label)}: {escape(hold.owner)}</title></rect>"
        )
    for begin, end in overlaps(holds):
        parts.append(
            f'<rect class="overlap" x="{_x(begin):.1f}" y="{top - 1}" width="{_wide(begin, end)}" '
            f'height="{bars + 1}"><title>{escape(lane.label)}: two owners</title></rect>'
        )
    for at, count in lane.duplicates:
        x, y = _x(at), top + bars + 1
        parts.append(
            f'<path class="again" d="M{x - 3:.1f} {y + 7} L{x + 3:.1f} {y + 7} L{x:.1f} {y} Z">'
            f"<title>{escape(lane.label)}: {count} came again</title></path>"
        )
    return parts, bars + AIR


def _short(label: str) -> str:
    """The end tells broker and queue."""
    return label if len(label) <= LETTERS else "…" + label[1 - LETTERS :]


def _x(share: float) -> float:
    return LABEL + ROOM * share


def _wide(begin: float, end: float) -> str:
    return f"{max(1.5, ROOM * (end - begin)):.1f}"
