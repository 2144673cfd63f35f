"""One queue of a group over time: offsets that handlers were given, and the offset that its broker had as done."""

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from dejamq_analytics.report.charts import COLOURS, WIDTH, ChartMark, head_of, mark_lines, svg

LABEL, TALL, BOTTOM = 190, 190, 8
ROOM = WIDTH - LABEL
NARROW = 2.4


class OffsetStep(NamedTuple):
    """The broker took this offset then, as a share of the time."""

    at: float
    offset: int
    how: str


class GivenSpan(NamedTuple):
    """Handlers of one owner got offsets from ``low`` to ``high`` around then."""

    at: float
    low: int
    high: int
    colour: int
    owner: str


def offsets(
    title: str, steps: Sequence[OffsetStep], given: Sequence[GivenSpan], marks: Sequence[ChartMark], message: int | None
) -> str:
    """``message``: the offset to draw a line at. Nothing where there is nothing to draw."""
    inside = [step for step in steps if 0 <= step.at <= 1 and step.offset >= 0]
    before = [step for step in steps if step.at < 0 and step.offset >= 0]
    values = [
        *(one.low for one in given),
        *(one.high for one in given),
        *(step.offset for step in inside + before[-1:]),
    ]
    values += [] if message is None else [message]
    if not values:
        return ""
    head = head_of(marks, LABEL, ROOM)
    low, high = min(values), max(max(values), min(values) + 1)

    def height(offset: int) -> float:
        return head + (TALL - 12) * (1 - (offset - low) / (high - low)) + 4

    bottom = head + TALL
    parts = [
        f'<text x="{LABEL - 10}" y="{height(high) + 4:.1f}" text-anchor="end">offset {high}</text>',
        f'<text x="{LABEL - 10}" y="{height(low) + 4:.1f}" text-anchor="end">{low}</text>',
        f'<line class="axis" x1="{LABEL}" y1="{bottom}" x2="{WIDTH}" y2="{bottom}"/>',
    ]
    parts += [
        f'<rect class="c{one.colour % COLOURS}" x="{_x(one.at) - NARROW / 2:.1f}" y="{height(one.high) - 1:.1f}" '
        f'width="{NARROW}" height="{height(one.low) - height(one.high) + 2.4:.1f}">'
        f"<title>{escape(one.owner)}: {one.low} to {one.high}</title></rect>"
        for one in given
    ]
    parts += _committed(before[-1:], inside, height)
    if message is not None:
        y = height(message)
        parts.append(
            f'<line class="place" x1="{LABEL}" y1="{y:.1f}" x2="{WIDTH}" y2="{y:.1f}"/>'
            f'<text class="place" x="{LABEL - 10}" y="{min(max(y, height(high) + 16), height(low) - 10) + 4:.1f}" '
            f'text-anchor="end">this message, {message}</text>'
        )
    return svg(title, int(bottom) + BOTTOM, [*parts, *mark_lines(marks, LABEL, ROOM, bottom)])


def _committed(before: Sequence[OffsetStep], inside: Sequence[OffsetStep], height: Callable[[int], float]) -> list[str]:
    """The line of the broker's offset: it steps up when an offset arrives, and down when somebody sets it back."""
    points, last = [], None
    for step in before:
        last = step.offset
        points.append(f"{LABEL},{height(last):.1f}")
    for step in inside:
        if last is not None:
            points.append(f"{_x(step.at):.1f},{height(last):.1f}")
        last = step.offset
        points.append(f"{_x(step.at):.1f},{height(last):.1f}")
    if last is None:
        return []
    points.append(f"{WIDTH},{height(last):.1f}")
    dots = [
        f'<circle class="done" cx="{_x(step.at):.1f}" cy="{height(step.offset):.1f}" r="2.6">'
        f"<title>done up to {step.offset}, by {escape(step.how)}</title></circle>"
        for step in inside
    ]
    return [f'<polyline class="done" points="{" ".join(points)}"/>', *dots]


def _x(share: float) -> float:
    return LABEL + ROOM * min(max(share, 0.0), 1.0)
