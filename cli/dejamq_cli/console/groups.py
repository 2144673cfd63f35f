"""The pages of a group: who owns which queue over time, what was committed and delivered, retries, dead letters."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from dejamq import Admin, ReceivedMessage
from dejamq.admin.dead_letters import LetterFacts, Replay
from dejamq_proto.codes import DejamqError, PermissionDenied
from dejamq_proto.names import DLQ_PREFIX, RETRY_PREFIX, check_group, dlq_topic
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dejamq_cli.access.admin_session import asked, asked_half
from dejamq_cli.console import asked as given
from dejamq_cli.console import charts
from dejamq_cli.console.answers import Page, as_json, query, seen, segment, status_of, troubled, utc, wants_json
from dejamq_cli.console.duplicates import causes, tables_of
from dejamq_cli.console.guard import check_change, form_of
from dejamq_cli.console.messages import namesrv_of
from dejamq_cli.console.tables import Rows, Wanted
from dejamq_cli.console.visitors import visitor_of
from dejamq_cli.groups.lists import describe_group
from dejamq_cli.terminal.message_text import one_line

COLUMNS, MOST_QUEUES, MOST_LETTERS = 280, 12, 200


async def group(request: Request) -> Page:
    """Now, as the cluster says; and over the recorded time, as the audit's journals say."""
    name = request.path_params["group"]
    check_group(name)
    now, trouble = await _now(request, name)
    recorded = await _recorded(request, name)
    if now is None and not (recorded and (recorded["queues"] or recorded["owners"])):
        raise HTTPException(404, trouble or f"Neither a cluster nor a journal tells of a group {name!r}.")
    data = {"group": name, "now": now, "trouble": trouble or None, "recorded": recorded}

    def view() -> Mapping[str, Any]:
        told: dict[str, Any] = {"chart": None, "colours": {}, "panels": [], "catalogue": {}, "short": charts.short_name}
        if recorded is None:
            return told
        return told | {"catalogue": causes()} | _drawn(recorded)

    return Page("group.html", data, view)


async def _now(request: Request, name: str) -> tuple[dict[str, Any] | None, str]:
    namesrv = request.app.state.console.settings.namesrv
    if namesrv is None:
        return None, ""
    try:
        told, silent = await asked_half(namesrv, lambda admin: _described(admin, name), visitor_of(request))
    except PermissionDenied:
        raise
    except DejamqError as error:
        return None, str(error)
    return told | {"silent": {broker: str(why) for broker, why in silent.items()}}, ""


async def _described(admin: Admin, name: str) -> dict[str, Any]:
    told = await describe_group(admin, name)
    dead = 0
    if await admin.topic(dlq_topic(name)):
        dead = sum(one.max_offset - one.min_offset for one in await admin.queue_ranges(dlq_topic(name)))
    rows = [row for row in told["queues"] if not row["topic"].startswith(DLQ_PREFIX)]
    return told | {
        "queues": rows, "lag": sum(row["lag"] or 0 for row in rows), "dead_letters": dead,
        "retries_waiting": sum(row["lag"] or 0 for row in rows if row["topic"].startswith(RETRY_PREFIX)),
    }  # fmt: skip


async def _recorded(request: Request, name: str) -> dict[str, Any] | None:
    tables = tables_of(request)
    if tables is None:
        return None
    begin, end = await tables.span()
    begin, end = given.time_of(request, "from") or begin, given.time_of(request, "to") or end
    owners, faults, queues, results, counts, anomalies = await asyncio.gather(
        tables.holdings(name, begin, end), tables.faults(begin, end), tables.queues(name), tables.results(name),
        tables.counts(Wanted(group=name, begin_us=begin, end_us=end + 1, asked_for=True)), tables.anomalies(name),
    )  # fmt: skip
    places = [(name, row["broker_name"], row["topic"], row["queue_id"]) for row in queues][:MOST_QUEUES]
    commits = await asyncio.gather(*(tables.commits(queue, begin, end) for queue in places))
    delivered = await asyncio.gather(*(tables.delivered(queue, begin, end, COLUMNS) for queue in places))
    series = [
        {"broker_name": broker, "topic": topic, "queue_id": number, "commits": commits[at], "delivered": delivered[at]}
        for at, (_, broker, topic, number) in enumerate(places)
    ]
    return {
        "begin_us": begin, "end_us": end, "owners": owners, "faults": faults, "queues": queues, "results": results,
        "counts": counts, "anomalies": anomalies, "series": series,
    }  # fmt: skip


def _drawn(recorded: Mapping[str, Any]) -> dict[str, Any]:
    begin, end, faults = recorded["begin_us"], recorded["end_us"], recorded["faults"]
    owners: Rows = recorded["owners"]
    chart, colours = charts.ownership_chart(owners, faults, begin, end, (utc(begin, 0), utc(end, 0)))
    panels = [
        (one, charts.offsets_chart(one["commits"], one["delivered"], (begin, end), COLUMNS, colours, faults))
        for one in recorded["series"]
    ]
    return {"chart": chart if owners else None, "colours": colours, "panels": panels}


async def dead_letters(request: Request) -> Page:
    """What the group gave up, newest first."""
    name = request.path_params["group"]
    check_group(name)
    namesrv = namesrv_of(request)
    letters, silent = await asked_half(namesrv, lambda admin: _first(admin.dead_letters(name)), visitor_of(request))
    letters.sort(key=lambda letter: -letter.store_timestamp_ms)
    data = {
        "group": name, "letters": [LetterFacts.of(letter) for letter in letters],
        "silent": {broker: str(why) for broker, why in silent.items()},
    }  # fmt: skip
    lines = [one_line(letter.body) for letter in letters]
    token = request.app.state.console.settings.token
    return Page("dead_letters.html", data, lambda: {
        "lines": lines, "may_replay": token is not None, "said": given.text_of(request, "said"),
    })  # fmt: skip


async def _first(letters: AsyncIterator[ReceivedMessage]) -> list[ReceivedMessage]:
    """The last ones of all."""
    found: list[ReceivedMessage] = []
    async for letter in letters:
        found.append(letter)
        if len(found) > 2 * MOST_LETTERS:
            found = sorted(found, key=lambda one: one.store_timestamp_ms)[-MOST_LETTERS:]
    return found[-MOST_LETTERS:]


async def replay(request: Request) -> Response:
    """Send one dead letter again to its group, or all: ``id`` says which."""
    try:
        name = request.path_params["group"]
        check_group(name)
        await check_change(request, request.app.state.console.settings.token)
        wanted = (await form_of(request)).get("id")
        if not wanted:
            raise HTTPException(400, "The form names no dead letter: id, or all.")
        done = await asked(namesrv_of(request), lambda admin: _replay(admin, name, wanted), visitor_of(request))
    except HTTPException as error:
        return troubled(request, error.detail, error.status_code)
    except DejamqError as error:
        return troubled(request, str(error), status_of(error))
    stored = sum(one.stored for one in done)
    said = f"{stored} sent again, {len(done) - stored} had been before"
    if wants_json(request):
        return as_json({"group": name, "replayed": stored, "replayed_before": len(done) - stored})
    return seen(f"/groups/{segment(name)}/dead-letters{query(said=said)}")


async def _replay(admin: Admin, name: str, wanted: str) -> list[Replay]:
    if wanted == "all":
        return [one async for one in admin.replay_dead_letters(name)]
    return [await admin.replay_dead_letter(name, wanted)]
