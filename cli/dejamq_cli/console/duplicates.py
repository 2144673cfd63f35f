"""The pages of duplicates: the list, one pair told as a time line, two times compared, and the catalogue of causes."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from dejamq_proto.texts import printable
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request

from dejamq_cli.console import asked, charts
from dejamq_cli.console.answers import Page, utc
from dejamq_cli.console.tables import UNDETERMINED, AuditTables, Queue, Rows, Wanted

PAGE_ROWS, COLUMNS, FINE = 50, 60, 280
AIR = 0.12
"""The time line begins and ends this part of the pair's time before and after it."""
LEAST_AIR_US = 20_000
STORED_TWICE = "stored twice"
NO_EVIDENCE = (
    "No journal was given: start with --journal DIR, the journal_dir of brokers and clients, or with --evidence DIR, "
    "logs and stores of a RocketMQ."
)
NO_AUDIT = "No audit has ended yet."


def tables_of(request: Request) -> AuditTables | None:
    last: AuditTables | None = request.app.state.console.audits.last
    return last


def needed(request: Request) -> AuditTables:
    """Raises HTTPException where there is no audit to show."""
    tables = tables_of(request)
    if tables is None:
        audits = request.app.state.console.audits
        raise HTTPException(404 if not audits.sources else 503, _why_none(request))
    return tables


def _why_none(request: Request) -> str:
    audits = request.app.state.console.audits
    return NO_EVIDENCE if not audits.sources else audits.error or NO_AUDIT


def causes() -> Mapping[str, Any]:
    """The catalogue: by id a title, a story, what to change, and the setting."""
    from dejamq_analytics.report.causes import CAUSES

    return CAUSES


async def duplicates(request: Request) -> Page:
    """The list, with counts by cause and group, and when they were."""
    state, tables = request.app.state.console.audits.state(), tables_of(request)
    if tables is None:
        return Page("no_audit.html", {"audit": state, "duplicates": None}, lambda: {"why": _why_none(request)})
    wanted, skip = asked.wanted(request), asked.whole_of(request, "skip", 0, 10_000_000)
    limit = asked.whole_of(request, "limit", PAGE_ROWS)
    begin, end = await tables.span()
    begin, end = wanted.begin_us or begin, wanted.end_us or end
    counts, rows, number, by_time, faults = await asyncio.gather(
        tables.counts(wanted), tables.found(wanted, limit, skip), tables.number_of(wanted),
        tables.by_time(wanted, begin, end - begin, COLUMNS), tables.faults(begin, end),
    )  # fmt: skip
    data = {
        "audit": state, "verdict": tables.verdict, "wanted": wanted.as_query(), "number": number, "skip": skip,
        "limit": limit, "counts": counts, "duplicates": rows, "faults": faults, "begin_us": begin, "end_us": end,
    }  # fmt: skip

    def view() -> Mapping[str, Any]:
        chart, colours = Markup(""), dict[str, int]()
        if by_time:
            chart, colours = charts.time_chart(by_time, COLUMNS, faults, begin, end, (utc(begin, 0), utc(end, 0)))
        most = max((row["duplicates"] for row in counts), default=1)
        return {
            "chart": chart, "colours": colours, "most": most, "catalogue": causes(), "given": request.query_params,
            "short": charts.short_name,
        }  # fmt: skip

    return Page("duplicates.html", data, view)


async def pair(request: Request) -> Page:
    """Both deliveries of one duplicate, with owners, offsets, handlers and faults around them."""
    tables = needed(request)
    found = await tables.finding(request.path_params["finding"])
    if found is None:
        raise HTTPException(404, "The last audit has no such duplicate. A later audit may tell it otherwise.")
    cause = causes().get(found["cause"] or "")
    begin, end = window(found)
    group = found["consumer_group"] or ""
    queues = queues_of(group, found)
    faults, *around = await asyncio.gather(
        tables.faults(begin, end),
        *(tables.holdings(group, begin, end, queue) for queue in queues),
        *(tables.commits(queue, begin, end) for queue in queues),
        *(tables.delivered(queue, begin, end, FINE) for queue in queues),
    )
    count = len(queues)
    held, commits, delivered = (around[at * count : (at + 1) * count] for at in range(3))
    places = [
        {"topic": topic, "broker_name": broker, "queue_id": number, "owners": held[at], "commits": commits[at]}
        for at, (_, broker, topic, number) in enumerate(queues)
    ]
    data = {
        "duplicate": found, "cause": cause and {"id": found["cause"]} | msgspec.structs.asdict(cause),
        "begin_us": begin, "end_us": end, "faults": faults, "queues": places, "story": story(found),
    }  # fmt: skip

    def view() -> Mapping[str, Any]:
        owners = [row for rows in held for row in rows]
        colours = colours_of(found, owners)
        panels = [
            charts.offsets_chart(
                commits[at], delivered[at], (begin, end), FINE, colours, faults,
                found["queue_offset"] if queue == queues[-1] else found["first"]["queue_offset"],
            )
            for at, queue in enumerate(queues)
        ]  # fmt: skip
        return {
            "chart": pair_chart(found, owners, faults, (begin, end), colours),
            "panels": [*zip(places, panels, strict=True)], "colours": colours,
            "short": charts.short_name, "steps": steps_of(found),
        }  # fmt: skip

    return Page("pair.html", data, view)


def window(found: Mapping[str, Any]) -> tuple[int, int]:
    """The time to draw: from the first delivery to the second, and some air."""
    begin, end = sorted((found["first_us"] or found["second_us"], found["second_us"] or found["first_us"]))
    air = max(LEAST_AIR_US, int((end - begin) * AIR))
    return begin - air, end + air


def queues_of(group: str, found: Mapping[str, Any]) -> list[Queue]:
    """Where the pair was: one queue or two, the second delivery's last."""
    sides = (found["first"], found["second"])
    queues = [(group, side["broker_name"], side["topic"], side["queue_id"]) for side in sides]
    return [cast(Queue, queue) for queue in dict.fromkeys(queues) if None not in queue]


def colours_of(found: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """A colour for each process of the page, by its short name; owners of the queue come first."""
    names = [row["process"] for row in owners]
    names += [found["first_process"], found["second_process"], *(line["process"] for line in found["evidence"])]
    return {name: number for number, name in enumerate(dict.fromkeys(charts.short_name(one) for one in names if one))}


def steps_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines of evidence in order of time, numbered; those without a time stand at their place in the proof."""
    steps, last = [], 0
    for line in found["evidence"]:
        last = line["wall_us"] or last
        steps.append(dict(line) | {"order": last})
    steps.sort(key=lambda step: step["order"])
    first_us = found["first_us"] or 0
    for number, step in enumerate(steps, 1):
        step["number"] = number
        step["since_us"] = None if step["wall_us"] is None else step["wall_us"] - first_us
        step["delivery"] = _delivery(step, found)
    return steps


def _delivery(step: Mapping[str, Any], found: Mapping[str, Any]) -> int:
    """1 or 2 for the line of a delivery of the pair."""
    if step["event"] not in ("DELIVER", "APPEND"):
        return 0
    for number, side in ((2, "second"), (1, "first")):
        same = step["boot_id"] == found[side]["boot_id"] and step["wall_us"] == found[f"{side}_us"]
        if same and not step["summary"].startswith("the unfinished"):
            return number
    return 0


def pair_chart(
    found: Mapping[str, Any], owners: Sequence[Mapping[str, Any]], faults: Rows, span: tuple[int, int],
    colours: Mapping[str, int],
) -> Markup:  # fmt: skip
    from dejamq_analytics.report.charts import ChartMark
    from dejamq_analytics.report.pair_chart import ChartNote, Flag, PairLane, pair

    begin, end = span
    width = max(1, end - begin)
    steps = [step for step in steps_of(found) if step["wall_us"] is not None]
    names = [step["process"] or "" for step in steps] + [row["process"] for row in owners]
    names += [found[side]["process"] for side in ("first", "second") if found[side]["process"]]
    word = "copy" if found["kind"] == STORED_TWICE else "delivery"
    halves = [("first", f"1st {word}"), ("second", f"2nd {word}")]
    lanes = []
    for name in dict.fromkeys(names):
        holds = [
            ((row["opened_us"] - begin) / width, (row["ended_us"] - begin) / width)
            for row in owners
            if row["process"] == name
        ]
        notes = [
            ChartNote((step["wall_us"] - begin) / width, step["number"], step["delivery"])
            for step in steps
            if (step["process"] or "") == name
        ]
        flags = [
            Flag((found[f"{side}_us"] - begin) / width, text)
            for side, text in halves
            if found[side]["process"] == name and found[f"{side}_us"] is not None
        ]
        short = charts.short_name(name)
        label = short if len(short) <= charts.LABEL_LETTERS else "…" + short[1 - charts.LABEL_LETTERS :]
        lanes.append(PairLane(label, printable(name), colours.get(short, 7), holds, notes, flags))
    marks = [
        ChartMark((fault["wall_us"] - begin) / width, printable(f"{fault['kind']} {fault['target']}"))
        for fault in faults
    ]
    drawn = pair("The pair on a time line", lanes, marks, (utc(begin), utc(end)))
    return Markup(drawn)  # the chart escapes, and the names are printable


def story(found: Mapping[str, Any]) -> str:
    """Both halves in words."""
    first, second = found["first"], found["second"]
    if found["kind"] == STORED_TWICE:
        return (
            f"{_place(first)} stored it at {utc(found['first_us'])}. {_place(second)} stored it again at "
            f"{utc(found['second_us'])}."
        )
    ended = f"ended with {first['result']}" if first["result"] else "has no result: it was in flight"
    return (
        f"{first['process']} got it from {_place(first)} at {utc(found['first_us'])}; that {ended}. "
        f"{second['process']} got it from {_place(second)} at {utc(found['second_us'])}."
    )


def _place(side: Mapping[str, Any]) -> str:
    return f"{side['topic']} queue {side['queue_id']} of {side['broker_name']} (offset {side['queue_offset']})"


async def compare(request: Request) -> Page:
    """Two times beside one another: what was there more often, or less."""
    tables = needed(request)
    begin, end = await tables.busy()
    middle = (begin + end) // 2
    given = [asked.time_of(request, name) for name in ("a_from", "a_to", "b_from", "b_to")]
    a_from, a_to, b_from, b_to = (
        value if value is not None else other
        for value, other in zip(given, (begin, middle, middle, end + 1), strict=True)
    )
    base = asked.wanted(request)
    sides = [
        Wanted(base.cause, base.group, base.topic, None, one, two, base.asked_for)
        for one, two in ((a_from, a_to), (b_from, b_to))
    ]
    counts_a, counts_b = await asyncio.gather(*map(tables.counts, sides))
    taken_a = await tables.deliveries_between(a_from, a_to)
    taken_b = await tables.deliveries_between(b_from, b_to)
    rows = compared(counts_a, counts_b, taken_a, taken_b)
    data = {
        "a": {"begin_us": a_from, "end_us": a_to, "deliveries": taken_a},
        "b": {"begin_us": b_from, "end_us": b_to, "deliveries": taken_b}, "rows": rows,
    }  # fmt: skip
    return Page("compare.html", data, lambda: {"catalogue": causes(), "given": request.query_params})


def compared(
    first: Rows, second: Rows, taken_first: Mapping[str, int], taken_second: Mapping[str, int]
) -> list[dict[str, Any]]:
    """A row for each cause and group; rates are duplicates of 1000 deliveries to the group. What grew most is first."""
    sides = [{(row["cause"], row["consumer_group"]): row["duplicates"] for row in rows} for rows in (first, second)]
    rows = []
    for cause, group in sides[0].keys() | sides[1].keys():
        a, b = (side.get((cause, group), 0) for side in sides)
        rates = [
            1000 * count / taken[group] if taken.get(group) else None
            for count, taken in ((a, taken_first), (b, taken_second))
        ]
        rows.append({
            "cause": cause, "consumer_group": group, "a": a, "b": b, "difference": b - a, "a_per_1000": rates[0],
            "b_per_1000": rates[1],
        })  # fmt: skip
    return sorted(rows, key=lambda row: (-abs(row["difference"]), row["cause"], row["consumer_group"] or ""))


async def catalogue(request: Request) -> Page:
    """All causes, with how often the last audit found each."""
    tables = tables_of(request)
    counted = {} if tables is None else tables.verdict["causes"] | tables.verdict["expected_causes"]
    rows = [
        {"id": name, **msgspec.structs.asdict(one), "duplicates": counted.get(name, 0)}
        for name, one in causes().items()
    ]
    return Page("causes.html", {"causes": rows}, lambda: {"undetermined": UNDETERMINED})
