"""A report as a picture: bars by hand in SVG, which needs no library and follows the reader's light or dark. Pure."""

from collections.abc import Iterator
from html import escape

from dejamq_lab.bench.client.worker import OWN
from dejamq_lab.bench.figures import FRAMES
from dejamq_lab.bench.page import named
from dejamq_lab.bench.rounds import shown
from dejamq_lab.bench.summary import BenchReport, SummaryRow

WIDTH, LABEL, BAR, LINE, HEAD, GAP = 760, 190, 400, 24, 34, 14
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f } .head { font-weight: 600; font-size: 14px }
.own { fill: #1f7a4d } .peer { fill: #9aa7b4 } .spread { stroke: #24292f; stroke-width: 1.2 } .paper { fill: #ffffff }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .own { fill: #3fb97a } .peer { fill: #56616d }
.spread { stroke: #e6edf3 } .paper { fill: #0d1117 } }
"""


def drawn(report: BenchReport) -> str:
    """The figures that have peers, each with a scale of its own; a thin line is the lowest and highest round."""
    parts, y = [], GAP
    for row in report.rows:
        if row.peers:
            parts += list(_group(row, y))
            y += HEAD + LINE * len(row.sides) + GAP
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" '
        f'aria-label="dejamq beside its peers">\n<style>{STYLE}</style>\n'
        f'<rect class="paper" width="{WIDTH}" height="{y}"/>\n{body}\n</svg>\n'
    )


def _group(row: SummaryRow, top: int) -> Iterator[str]:
    better = "less is better" if row.unit == "ms" else "more is better"
    yield f'<text class="head" x="{GAP}" y="{top + 16}">{escape(row.title)} ({better})</text>'
    longest = max(value.high for value in row.sides.values())
    order = sorted(row.sides, key=lambda side: row.sides[side].median, reverse=row.unit != "ms")
    for number, side in enumerate(order):
        value, y = row.sides[side], top + HEAD + number * LINE
        kind, length = ("own" if side in (OWN, FRAMES) else "peer"), max(1.0, value.median / longest * BAR)
        middle, low, high = y + 8, LABEL + value.low / longest * BAR, LABEL + value.high / longest * BAR
        yield f'<text x="{LABEL - 8}" y="{y + 12}" text-anchor="end">{escape(named(side))}</text>'
        yield f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{length:.1f}" height="16" rx="2"/>'
        yield f'<line class="spread" x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}"/>'
        told = escape(shown(value.median, row.unit))
        yield f'<text x="{max(high, LABEL + length) + 8:.1f}" y="{y + 12}">{told}</text>'
