"""One self-contained page: is anything wrong, what caused it, when, on which queue, show me one, what to change."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from textwrap import shorten

from dejamq_analytics.frames import Row
from dejamq_analytics.report import evidence_chart, evidence_scope, scope
from dejamq_analytics.report.causes import CAUSES, Cause
from dejamq_analytics.report.charts import COLOURS, Bar, ChartMark, bars, timeline
from dejamq_analytics.report.digest import UNDETERMINED, Digest
from dejamq_analytics.report.evidence_chart import Moments
from dejamq_analytics.report.ownership_chart import ownership
from dejamq_analytics.report.verdict import Verdict, advice

LONGEST_TITLE = 38
"""Of a bar, in characters; the whole title stands below the bars."""
STYLE = Path(__file__).with_name("report.css")
HEADLINES = {
    "clean": "Nothing came twice that nobody asked for",
    "findings": "Something is wrong",
    "undetermined": "Something may be wrong: evidence is missing",
}
UNKNOWN = Cause("cause not determined", "", "", "")


def render(verdict: Verdict, digest: Digest, moments: Moments | None = None) -> str:
    """The page as text. Everything that comes from journals is escaped. ``moments``: when lines of evidence were."""
    colours = {label: number for number, label in enumerate(sorted(digest.labels))}
    sections = [
        _verdict(verdict, digest),
        _causes(verdict, colours),
        _when(digest, colours),
        _queues(digest),
        _owners(digest),
        _examples(digest.examples, moments or {}),
        _changes(verdict),
        _unusual(verdict.anomalies, digest.unusual),
        _missing(verdict.undetermined_missing),
        scope.section(verdict.scope) if isinstance(verdict, scope.LogVerdict) else "",
        evidence_scope.section(verdict.evidence) if isinstance(verdict, evidence_scope.EvidenceVerdict) else "",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>dejamq audit {escape(verdict.run_id)}: {escape(verdict.verdict)}</title>"
        f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body>{''.join(sections)}</body></html>\n"
    )


def _verdict(verdict: Verdict, digest: Digest) -> str:
    numbers = {
        "messages": verdict.messages,
        "deliveries": verdict.deliveries,
        "duplicates": verdict.duplicates,
        "of these: first one unfinished": verdict.unfinished_first,
        "asked for": verdict.expected_duplicates,
        "lost": verdict.lost,
        "unseen": verdict.unseen,
        "out of order": verdict.out_of_order,
        "processes": verdict.processes,
        "journal gaps": verdict.journal_gaps,
    }
    items = "".join(f"<li><b>{count}</b>{escape(name)}</li>" for name, count in numbers.items())
    return (
        f'<h1 class="{escape(verdict.verdict)}">{escape(HEADLINES[verdict.verdict])}</h1>'
        f"<p>{_in_short(verdict, digest)}</p>"
        f'<p class="soft">dejamq audit of {escape(verdict.run_id)}</p><ul class="numbers">{items}</ul>'
    )


def _in_short(verdict: Verdict, digest: Digest) -> str:
    """One sentence for who reads no further."""
    said = []
    if verdict.causes:
        cause, count = max(verdict.causes.items(), key=lambda item: item[1])
        title = CAUSES.get(cause, UNKNOWN).title
        said.append(f"{verdict.duplicates} came twice, {count} of them because of {cause} ({title})")
    elif verdict.duplicates:
        said.append(f"{verdict.duplicates} came twice, and the cause is not certain")
    said += [f"{count} {word}" for word, count in (("lost", verdict.lost), ("unseen", verdict.unseen)) if count]
    if not said:
        return f"{verdict.deliveries} deliveries of {verdict.messages} messages were looked at."
    first, last = digest.ends
    when = f", between {first} and {last}" if first else ""
    return escape("; ".join(said) + when + ".")


def _causes(verdict: Verdict, colours: Mapping[str, int]) -> str:
    counted = [(cause, count, "") for cause, count in verdict.causes.items()]
    counted += [(UNDETERMINED, verdict.undetermined, "")] if verdict.undetermined else []
    counted += [(cause, count, " (asked for)") for cause, count in verdict.expected_causes.items()]
    if not counted:
        return "<h2>What caused it</h2><p>There is no duplicate to explain.</p>"
    rows = [Bar(f"{_title(cause)}{note}", count, colours.get(cause, 7)) for cause, count, note in counted]
    stories = "".join(
        f"<h3>{escape(cause)}: {escape(CAUSES[cause].title)}</h3><p>{escape(CAUSES[cause].story)}</p>"
        for cause, _, _ in counted
        if cause in CAUSES
    )
    return f"<h2>What caused it</h2>{bars('Duplicates by cause', rows)}{stories}"


def _title(cause: str) -> str:
    if cause == UNDETERMINED or cause not in CAUSES:
        return cause
    return shorten(f"{cause} {CAUSES[cause].title}", LONGEST_TITLE, placeholder=" …")


def _when(digest: Digest, colours: Mapping[str, int]) -> str:
    if not digest.columns:
        return ""
    columns = [{colours[label]: count for label, count in column.items()} for column in digest.columns]
    chart = timeline("Duplicates over time", columns, _marks(digest), digest.ends)
    return f"<h2>When</h2>{chart}{_legend(colours)}"


def _marks(digest: Digest) -> list[ChartMark]:
    return [ChartMark(at, label) for at, label in digest.faults]


def _legend(colours: Mapping[str, int]) -> str:
    named = "".join(
        f'<span><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="c{number % COLOURS}" width="10" height="10"/>'
        f"</svg>{escape(label)}</span>"
        for label, number in colours.items()
    )
    return f'<p class="legend soft">{named}</p>'


def _queues(digest: Digest) -> str:
    if not digest.queues:
        return ""
    rows = [Bar(name, count, 0) for name, count in digest.queues]
    return f"<h2>On which queue</h2>{bars('Duplicates by queue', rows)}"


def _owners(digest: Digest) -> str:
    if not digest.lanes:
        return ""
    owners = sorted({hold.owner for lane in digest.lanes for hold in lane.holds})
    colours = {owner: number for number, owner in enumerate(owners)}
    chart = ownership("Owners of each queue over time", digest.lanes, colours, _marks(digest), digest.ends)
    told = "A frame: two owners at once. A triangle: duplicates. Nothing drawn: nobody had the queue."
    return f'<h2>Who held which queue</h2>{chart}{_legend(colours)}<p class="soft">{told}</p>'


def _unusual(kinds: Mapping[str, int], first: Sequence[Row]) -> str:
    """Anomalies that are no duplicates: the first of each kind, and their number."""
    if not first:
        return ""
    rows = "".join(
        f"<tr><td>{escape(row.kind.replace('_', ' '))}</td><td>{_clock(row.time) if row.time else ''}</td>"
        f"<td><code>{escape(_where(row))}</code></td><td>{escape(row.detail or '')}</td></tr>"
        for row in first
    )
    counts = ", ".join(f"{count} {escape(kind.replace('_', ' '))}" for kind, count in kinds.items())
    return (
        f"<h2>What else is unusual</h2><p>{counts}. The first of each kind; all are in the table of anomalies:</p>"
        f"<table><tr><th>what</th><th>when</th><th>where</th><th>how</th></tr>{rows}</table>"
    )


def _where(row: Row) -> str:
    place = f"{row.broker_name}:{row.queue_id}" if row.queue_id is not None else row.broker_name
    offset = f"offset {row.queue_offset}" if row.queue_offset is not None else None
    return " ".join(str(part) for part in (row.consumer_group, row.topic, place, offset, row.message_id) if part)


def _examples(examples: Sequence[Row], moments: Moments) -> str:
    if not examples:
        return ""
    return "<h2>Show me one</h2>" + "".join(_example(row, moments) for row in examples)


def _example(row: Row, moments: Moments) -> str:
    label = row.cause or UNDETERMINED
    told = [("message", row.message_id), ("group", row.consumer_group), ("what set it off", row.trigger)]
    told += [("what is missing", row.missing)] if row.missing else []
    facts = "".join(f"<p>{escape(name)}: <code>{escape(str(value))}</code></p>" for name, value in told if value)
    lines = "".join(
        f"<tr><td><code>{escape(str(each.process))}</code></td><td>{each.seq}</td>"
        f"<td>{escape(str(each.event))}</td><td>{escape(str(each.summary))}</td></tr>"
        for each in row.evidence or []
    )
    return (
        f"<article><h3>{escape(label)}: {escape(CAUSES.get(label, UNKNOWN).title)}</h3><p>{_story(row)}</p>{facts}"
        f"<table><tr><th>process</th><th>line</th><th>event</th><th>what it says</th></tr>{lines}</table>"
        f"{evidence_chart.drawn(row.evidence or [], moments)}</article>"
    )


def _story(row: Row) -> str:
    """Both halves of the pair in words."""
    first, second = row.first, row.second
    if row.kind == "stored twice":
        return (
            f"{_place(first)} stored it at {_clock(first.delivered_at)}; {_place(second)} stored it again at "
            f"{_clock(second.delivered_at)}."
        )
    ended = f"ended with {escape(first.result)}" if first.result else "has no result: it was in flight"
    return (
        f"<code>{escape(first.process)}</code> got {_place(first)} at {_clock(first.delivered_at)}; it {ended}. "
        f"<code>{escape(second.process)}</code> got {_place(second)} at {_clock(second.delivered_at)}."
    )


def _clock(moment: datetime) -> str:
    """Spark hands timestamps over in the machine's zone and without saying so; the report speaks UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def _place(side: Row) -> str:
    return escape(f"{side.topic} queue {side.queue_id} of {side.broker_name}, offset {side.queue_offset}")


def _changes(verdict: Verdict) -> str:
    advice = [(cause, CAUSES[cause]) for cause in verdict.causes if cause in CAUSES]
    if not advice:
        return ""
    items = "".join(
        f"<h3>{escape(cause)}: {escape(entry.title)}</h3><p>{escape(entry.change)}</p>"
        f"<p>Settings: <code>{escape(entry.setting)}</code></p>"
        for cause, entry in advice
    )
    return f"<h2>What to change</h2>{items}"


def _missing(missing: dict[str, int]) -> str:
    if not missing:
        return ""
    rows = "".join(f"<tr><td>{count}</td><td>{escape(what)}</td></tr>" for what, count in missing.items())
    told = f"<p>{escape(text)}.</p>" if (text := advice(missing)) else ""
    table = f"<table><tr><th>duplicates</th><th>missing</th></tr>{rows}</table>"
    return f"<h2>What could not be told, and why</h2>{table}{told}"
