"""The report's charts as inline SVG: no script and nothing to load, so they work offline and in print.

Colours are CSS classes (``c0`` … ``c7``), so that the page's light and dark styles decide.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, ROW, LABEL = 760, 26, 310
TALL, HEAD, BOTTOM = 180, 32, 24
COLOURS = 8
LINE, LETTER, MOST_LINES = 13, 7, 6
"""Of the labels of marks: their height, about how wide a letter is, how many may stand one above the other."""


class Bar(NamedTuple):
    label: str
    number: int
    colour: int


class ChartMark(NamedTuple):
    """A moment on the time line, as a share of its width."""

    at: float
    label: str


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars, one a row, the number at the end of each."""
    longest = max((bar.number for bar in rows), default=0) or 1
    room = WIDTH - LABEL - 80
    parts = []
    for index, bar in enumerate(rows):
        y, width = index * ROW, max(2.0, room * bar.number / longest)
        parts.append(
            f'<text x="{LABEL - 10}" y="{y + 17}" text-anchor="end">{escape(bar.label)}</text>'
            f'<rect class="c{bar.colour % COLOURS}" x="{LABEL}" y="{y + 4}" '
            f'width="{width:.1f}" height="{ROW - 8}" rx="3">'
            f"<title>{escape(bar.label)}: {bar.number}</title></rect>"
            f'<text x="{LABEL + width + 8:.1f}" y="{y + 17}">{bar.number}</text>'
        )
    return svg(title, len(rows) * ROW, parts)


def timeline(
    title: str, columns: Sequence[Mapping[int, int]], marks: Sequence[ChartMark], ends: tuple[str, str]
) -> str:
    """Stacked columns from the first moment to the last: each maps a colour to a count. ``marks`` are lines across."""
    highest = max((sum(column.values()) for column in columns), default=0) or 1
    step, head = WIDTH / max(1, len(columns)), head_of(marks, 0, WIDTH)
    parts = []
    for index, column in enumerate(columns):
        top = float(TALL)
        for colour, count in sorted(column.items()):
            height = (TALL - head) * count / highest
            top -= height
            parts.append(
                f'<rect class="c{colour % COLOURS}" x="{index * step:.1f}" y="{top:.1f}" '
                f'width="{max(1.0, step - 1):.1f}" height="{height:.1f}"><title>{count}</title></rect>'
            )
    parts += mark_lines(marks, 0, WIDTH, TALL)
    parts.append(time_axis(0, TALL, ends))
    return svg(title, TALL + BOTTOM, parts)


def head_of(marks: Sequence[ChartMark], left: float, room: float) -> int:
    """How high the labels of marks are together."""
    lines = [line for line in _lines(marks, left, room) if line is not None]
    return max(HEAD, (max(lines, default=0) + 1) * LINE + 6)


def mark_lines(marks: Sequence[ChartMark], left: float, room: float, tall: float) -> list[str]:
    """Lines across a chart whose moments begin at ``left``, each with its label where no other label is."""
    lines = _lines(marks, left, room)
    return [_mark_line(mark, left, room, tall, line) for mark, line in zip(marks, lines, strict=True)]


def _lines(marks: Sequence[ChartMark], left: float, room: float) -> list[int | None]:
    """On which line each label stands: the first one with room for it; None where too many are in one place."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(MOST_LINES)]
    found: list[int | None] = []
    for mark in marks:
        begin, end = _extent(mark, left, room)
        free = (line for line, others in enumerate(taken) if all(end < one or begin > two for one, two in others))
        line = next(free, None)
        if line is not None:
            taken[line].append((begin, end))
        found.append(line)
    return found


def _extent(mark: ChartMark, left: float, room: float) -> tuple[float, float]:
    """Of its label, which is on the side of its line where there is room."""
    x, wide = _across(mark, left, room), LETTER * len(mark.label) + 5
    return (x - wide, x) if mark.at > 0.5 else (x, x + wide)


def _across(mark: ChartMark, left: float, room: float) -> float:
    return left + min(max(mark.at, 0.0), 1.0) * room


def _mark_line(mark: ChartMark, left: float, room: float, tall: float, line: int | None) -> str:
    x, label = _across(mark, left, room), escape(mark.label)
    anchor, shift = ("end", -5) if mark.at > 0.5 else ("start", 5)
    drawn = f'<line class="mark" x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{tall}"><title>{label}</title></line>'
    if line is None:
        return drawn
    y = 11 + LINE * line
    return f'{drawn}<text class="mark" x="{x + shift:.1f}" y="{y}" text-anchor="{anchor}">{label}</text>'


def time_axis(left: int, at: int, ends: tuple[str, str]) -> str:
    """A line from ``left`` to the right edge, and below it the times of both ends."""
    return (
        f'<line class="axis" x1="{left}" y1="{at}" x2="{WIDTH}" y2="{at}"/>'
        f'<text x="{left}" y="{at + 17}">{escape(ends[0])}</text>'
        f'<text x="{WIDTH}" y="{at + 17}" text-anchor="end">{escape(ends[1])}</text>'
    )


def svg(title: str, height: int, parts: Sequence[str]) -> str:
    """With a name for those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
