"""One pair as a time line: a lane for each process, with its time with the queue and its lines of evidence."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from dejamq_analytics.report.charts import BOTTOM, COLOURS, WIDTH, ChartMark, head_of, mark_lines, svg, time_axis

LABEL, ROW = 190, 42
ROOM = WIDTH - LABEL
NEAR, LETTER = 18.0, 6.2
"""Numbers that would stand nearer than this are told in one mark; how wide a letter is."""


class ChartNote(NamedTuple):
    """A line of evidence by its number in the list, at a share of the time; ``delivery`` 1 or 2 where it is one.

    What was before or after the drawn time stands pale at its edge.
    """

    at: float
    number: int
    delivery: int = 0


class Flag(NamedTuple):
    """One half of the pair, at a share of the time."""

    at: float
    label: str


class PairLane(NamedTuple):
    """One process. ``holds``: when it had the queue, as shares of the time."""

    label: str
    name: str
    colour: int
    holds: Sequence[tuple[float, float]]
    notes: Sequence[ChartNote]
    flags: Sequence[Flag] = ()


def pair(title: str, lanes: Sequence[PairLane], marks: Sequence[ChartMark], ends: tuple[str, str]) -> str:
    """Lanes from top to bottom, ``marks`` across all of them."""
    top = head_of(marks, LABEL, ROOM)
    bottom = top + ROW * len(lanes)
    parts = []
    for index, lane in enumerate(lanes):
        parts += _lane(lane, top + index * ROW)
    axis = time_axis(LABEL, bottom, ends)
    return svg(title, bottom + BOTTOM, [*mark_lines(marks, LABEL, ROOM, bottom), *parts, axis])


def _lane(lane: PairLane, top: int) -> list[str]:
    middle = top + ROW // 2 + 6
    parts = [
        f'<text x="{LABEL - 10}" y="{middle + 5}" text-anchor="end">{escape(lane.label)}'
        f"<title>{escape(lane.name)}</title></text>",
        f'<line class="axis" x1="{LABEL}" y1="{middle}" x2="{WIDTH}" y2="{middle}"/>',
    ]
    parts += [
        f'<rect class="hold c{lane.colour % COLOURS}" x="{_x(begin):.1f}" y="{middle - 11}" '
        f'width="{max(1.5, _x(end) - _x(begin)):.1f}" height="22" rx="3">'
        f"<title>{escape(lane.name)} has the queue</title></rect>"
        for begin, end in lane.holds
    ]
    for group in _near(lane.notes):
        parts += _mark(group, middle)
    for flag in lane.flags:
        parts += _flag(flag, top)
    return parts


def _flag(flag: Flag, top: int) -> list[str]:
    """Above the lane, at its moment."""
    x = _x(flag.at)
    anchor, shift = ("end", -8) if flag.at > 0.8 else ("start", 8)
    return [
        f'<path class="flag" d="M{x - 4:.1f} {top + 3} L{x + 4:.1f} {top + 3} L{x:.1f} {top + 13} Z"/>',
        f'<text class="flag" x="{x + shift:.1f}" y="{top + 11}" text-anchor="{anchor}">{escape(flag.label)}</text>',
    ]


def _near(notes: Sequence[ChartNote]) -> list[list[ChartNote]]:
    """Notes that stand close together, in one."""
    groups: list[list[ChartNote]] = []
    for note in sorted(notes, key=lambda one: (one.at, one.number)):
        near = groups and _x(note.at) - _x(groups[-1][0].at) < NEAR
        if near and (0 <= note.at <= 1) == (0 <= groups[-1][0].at <= 1):
            groups[-1].append(note)
        else:
            groups.append([note])
    return groups


def _mark(group: Sequence[ChartNote], middle: int) -> list[str]:
    text = numbers([note.number for note in group])
    wide = max(18.0, LETTER * len(text) + 8)
    x = min(max(_x(group[0].at), LABEL + wide / 2), WIDTH - wide / 2)
    inside = any(0 <= note.at <= 1 for note in group)
    where = "" if inside else " outside"
    kind = "note delivery" if any(note.delivery for note in group) else f"note{where}"
    return [
        f'<rect class="{kind}" x="{x - wide / 2:.1f}" y="{middle - 9}" width="{wide:.1f}" height="18" rx="9"/>',
        f'<text class="note{where}" x="{x:.1f}" y="{middle + 4}" text-anchor="middle">{text}</text>',
    ]


def numbers(given: Sequence[int]) -> str:
    """Runs of numbers are joined by a dash."""
    runs: list[list[int]] = []
    for one in sorted(given):
        if runs and one == runs[-1][-1] + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _x(share: float) -> float:
    return LABEL + ROOM * min(max(share, 0.0), 1.0)
