"""The report's charts as inline SVG: no script and nothing to load, so they work offline and in print.

Colours are CSS classes (``c0`` … ``c7``), so that the page's light and dark styles decide.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, ROW, LABEL = 760, 26, 310
TALL, HEAD, BOTTOM = 180, 32, 24
COLOURS = 8


class Bar(NamedTuple):
    label: str
    number: int
    colour: int


class Mark(NamedTuple):
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


def timeline(title: str, columns: Sequence[Mapping[int, int]], marks: Sequence[Mark], ends: tuple[str, str]) -> str:
    """Stacked columns from the first moment to the last: each maps a colour to a count. ``marks`` are lines across."""
    highest = max((sum(column.values()) for column in columns), default=0) or 1
    step = WIDTH / max(1, len(columns))
    parts = []
    for index, column in enumerate(columns):
        top = float(TALL)
        for colour, count in sorted(column.items()):
            height = (TALL - HEAD) * count / highest
            top -= height
            parts.append(
                f'<rect class="c{colour % COLOURS}" x="{index * step:.1f}" y="{top:.1f}" '
                f'width="{max(1.0, step - 1):.1f}" height="{height:.1f}"><title>{count}</title></rect>'
            )
    parts += mark_lines(marks, 0, WIDTH, TALL)
    parts.append(f'<line class="axis" x1="0" y1="{TALL}" x2="{WIDTH}" y2="{TALL}"/>')
    parts.append(f'<text x="0" y="{TALL + 17}">{escape(ends[0])}</text>')
    parts.append(f'<text x="{WIDTH}" y="{TALL + 17}" text-anchor="end">{escape(ends[1])}</text>')
    return svg(title, TALL + BOTTOM, parts)


def mark_lines(marks: Sequence[Mark], left: float, room: float, tall: float) -> list[str]:
    """Lines across a chart whose moments begin at ``left``; the labels of neighbours are on different heights."""
    return [_mark_line(mark, left, room, tall, 11 + 13 * (number % 2)) for number, mark in enumerate(marks)]


def _mark_line(mark: Mark, left: float, room: float, tall: float, y: int) -> str:
    """The label is on the side where there is room."""
    x = left + min(max(mark.at, 0.0), 1.0) * room
    anchor, shift = ("end", -5) if mark.at > 0.5 else ("start", 5)
    return (
        f'<line class="mark" x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{tall}"/>'
        f'<text class="mark" x="{x + shift:.1f}" y="{y}" text-anchor="{anchor}">{escape(mark.label)}</text>'
    )


def svg(title: str, height: int, parts: Sequence[str]) -> str:
    """With a name for those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
