"""The pages of a topic and of a message: what is stored, found by key, id or time. All of it is hostile text."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from dejamq import Admin, MessageQueue, ReceivedMessage
from dejamq.admin.queues import QueueRange
from dejamq_proto.codes import DejamqError, PermissionDenied
from dejamq_proto.names import check_topic
from starlette.exceptions import HTTPException
from starlette.requests import Request

from dejamq_cli.access.admin_session import asked_half
from dejamq_cli.access.lookup import consumed_by, copies_of
from dejamq_cli.console import asked
from dejamq_cli.console.answers import Page
from dejamq_cli.console.duplicates import tables_of
from dejamq_cli.console.tables import Wanted
from dejamq_cli.console.visitors import visitor_of
from dejamq_cli.history.files import journal_files
from dejamq_cli.history.search import find
from dejamq_cli.history.telling import tell as story_of
from dejamq_cli.terminal.message_text import body_text, described, described_whole, one_line

ROWS, MOST_ROWS = 30, 200
MOST_SHOWN = 64 << 10
"""So much of a body is shown; JSON has all of it."""


def namesrv_of(request: Request) -> str:
    """Raises HTTPException where the console looks at no cluster."""
    namesrv: str | None = request.app.state.console.settings.namesrv
    if namesrv is None:
        raise HTTPException(404, "No cluster is looked at: start the console with --namesrv.")
    return namesrv


async def topic(request: Request) -> Page:
    """Its queues, and its newest messages or those that were looked for."""
    name = request.path_params["topic"]
    check_topic(name)
    key, message_id = asked.text_of(request, "key"), asked.text_of(request, "id")
    begin_us, end_us = asked.time_of(request, "from"), asked.time_of(request, "to")
    rows = max(1, asked.whole_of(request, "rows", ROWS, MOST_ROWS))

    async def question(admin: Admin) -> tuple[list[QueueRange], list[ReceivedMessage]]:
        ranges = await admin.queue_ranges(name)
        if message_id is not None:
            return ranges, await copies_of(admin, message_id.upper(), [name])
        if key is not None:
            begin_ms, end_ms = (begin_us or 0) // 1000, (end_us or 0) // 1000
            return ranges, await admin.messages_by_key(name, key, begin_ms=begin_ms, end_ms=end_ms)
        return ranges, await stored(admin, ranges, begin_us, end_us, rows)

    (ranges, found), silent = await asked_half(namesrv_of(request), question, visitor_of(request))
    tables = tables_of(request)
    counts = [] if tables is None else await tables.counts(Wanted(topic=name))
    data = {
        "topic": name, "queues": [_queue(one) for one in ranges], "messages": [described(one) for one in found],
        "counts": counts, "silent": {broker: str(why) for broker, why in silent.items()},
    }  # fmt: skip
    lines = [one_line(message.body) for message in found]
    return Page("topic.html", data, lambda: {"given": request.query_params, "lines": lines, "rows": rows})


async def stored(
    admin: Admin, ranges: Sequence[QueueRange], begin_us: int | None, end_us: int | None, rows: int
) -> list[ReceivedMessage]:
    """The newest of that time, or with a begin its first ones, over all queues in order of storing."""
    parts = await asyncio.gather(*(_of_queue(admin, one, begin_us, end_us, rows) for one in ranges))
    found = sorted((message for part in parts for message in part), key=lambda one: one.store_timestamp_ms)
    return found[:rows] if begin_us is not None else found[-rows:][::-1]


async def _of_queue(
    admin: Admin, one: QueueRange, begin_us: int | None, end_us: int | None, rows: int
) -> list[ReceivedMessage]:
    low, high = one.min_offset, one.max_offset
    if begin_us is not None:
        low = await _first_since(admin, one.queue, low, high, begin_us // 1000)
    if end_us is not None:
        high = await _first_since(admin, one.queue, low, high, -(-end_us // 1000))
    first, last = (low, min(high, low + rows)) if begin_us is not None else (max(low, high - rows), high)
    return [message async for message in admin.read(one.queue, first, last)] if first < last else []


async def _first_since(admin: Admin, queue: MessageQueue, low: int, high: int, at_ms: int) -> int:
    """The offset of the first message that was stored then or later, by halving."""
    while low < high:
        middle = (low + high) // 2
        stored_ms = None
        async for message in admin.read(queue, middle, middle + 1):
            stored_ms = message.store_timestamp_ms
        if stored_ms is not None and stored_ms >= at_ms:
            high = middle
        else:
            low = middle + 1
    return low


def _queue(one: QueueRange) -> dict[str, Any]:
    return {
        "broker": one.queue.broker_name, "queue_id": one.queue.queue_id, "min_offset": one.min_offset,
        "max_offset": one.max_offset, "messages": one.max_offset - one.min_offset,
        "first_stored_ms": one.first_stored_ms, "last_stored_ms": one.last_stored_ms,
    }  # fmt: skip


async def message(request: Request) -> Page:
    """Every copy of a message, who has consumed it, its life as journals tell it, and why it came twice."""
    message_id, name = request.path_params["message"].upper(), asked.text_of(request, "topic")
    console = request.app.state.console
    copies: list[ReceivedMessage] = []
    consumed: list[dict[str, Any]] = []
    trouble = ""
    if console.settings.namesrv is not None:
        try:
            (copies, consumed), _ = await asked_half(
                console.settings.namesrv, lambda admin: _looked_up(admin, message_id, name), visitor_of(request)
            )
        except PermissionDenied:
            raise
        except DejamqError as error:
            trouble = str(error)
    life = await asyncio.to_thread(_life, console.settings.sources.journals, message_id)
    tables = tables_of(request)
    found = [] if tables is None else await tables.found(Wanted(message=message_id, asked_for=True), 100, 0)
    if not copies and life is None and not found:
        raise HTTPException(502 if trouble else 404, trouble or f"Nobody has a message {message_id}.")
    data = {
        "message_id": message_id, "message": described_whole(copies[0]) if copies else None,
        "copies": [described_whole(one) | {"topic": one.queue.topic} for one in copies], "consumed": consumed,
        "life": msgspec.to_builtins(life), "duplicates": found, "trouble": trouble or None,
    }  # fmt: skip

    def view() -> Mapping[str, Any]:
        body = copies[0].body if copies else b""
        return {"body": body_text(body[:MOST_SHOWN]), "body_bytes": len(body), "is_cut": len(body) > MOST_SHOWN}

    return Page("message.html", data, view)


async def _looked_up(
    admin: Admin, message_id: str, name: str | None
) -> tuple[list[ReceivedMessage], list[dict[str, Any]]]:
    copies = await copies_of(admin, message_id, None if name is None else [name])
    return copies, await consumed_by(admin, copies)


def _life(journals: Sequence[Any], message_id: str) -> Any:
    """None where journals do not speak of it."""
    if not journals:
        return None
    try:
        return story_of(find(journal_files(list(journals)), message_id))
    except DejamqError:
        return None
