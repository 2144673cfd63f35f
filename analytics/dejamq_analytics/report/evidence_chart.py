"""One finding's evidence on a time line: a bar for each line, as long as its time is uncertain.

Logs of RocketMQ's servers have whole seconds, and machines have clocks of their own.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from dejamq_analytics.evidence.sources import Moment
from dejamq_analytics.frames import Row
from dejamq_analytics.report.charts import COLOURS, LABEL, WIDTH, svg

ROW, NARROWEST, TOLD = 18, 3.0, 46
Moments = Mapping[tuple[str, int], Moment]
NOTE = "Each bar begins where a line's time is, and is as long as that time is uncertain. Colours are processes."


def drawn(evidence: Sequence[Row], moments: Moments) -> str:
    """Nothing where fewer than two lines have a known time."""
    known = [(one, moments[one.boot_id, one.seq]) for one in evidence if (one.boot_id, one.seq) in moments]
    if len(known) < 2:
        return ""
    begin = min(moment.wall_us for _, moment in known)
    width = max(1, max(moment.wall_us + moment.within_us for _, moment in known) - begin)
    processes = sorted({str(one.process) for one, _ in known})
    room = WIDTH - LABEL
    parts = []
    for index, (one, moment) in enumerate(known):
        y, left = index * ROW, LABEL + room * (moment.wall_us - begin) / width
        left = min(left, WIDTH - NARROWEST)
        wide = min(max(NARROWEST, room * moment.within_us / width), WIDTH - left)
        label = f"{one.event} {one.summary}"[:TOLD]
        when = f"{_clock(moment.wall_us)}, within {moment.within_us / 1000:g} ms, by the clock of {one.process}"
        parts.append(
            f'<text x="{LABEL - 10}" y="{y + 13}" text-anchor="end">{escape(label)}</text>'
            f'<rect class="c{processes.index(str(one.process)) % COLOURS}" x="{left:.1f}" '
            f'y="{y + 3}" width="{wide:.1f}" height="{ROW - 6}"><title>{escape(when)}</title></rect>'
        )
    bottom = len(known) * ROW
    parts.append(f'<text x="{LABEL}" y="{bottom + 14}">{_clock(begin)}</text>')
    parts.append(f'<text x="{WIDTH}" y="{bottom + 14}" text-anchor="end">+{width / 1e6:.3f} s</text>')
    return f'{svg("When each line was", bottom + 20, parts)}<p class="soft">{NOTE}</p>'


def _clock(wall_us: int) -> str:
    return datetime.fromtimestamp(wall_us / 1e6, UTC).strftime("%H:%M:%S.%f")[:-3] + " UTC"
