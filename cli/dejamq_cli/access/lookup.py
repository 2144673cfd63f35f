"""Finding stored messages in a cluster by an id alone, and who has consumed them."""

import asyncio
from collections.abc import Iterable
from typing import Any

from dejamq import Admin, ReceivedMessage
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.hosts import parse_offset_message_id

ASKED_AT_ONCE = 32


async def copies_of(admin: Admin, message_id: str, topics: Iterable[str] | None) -> list[ReceivedMessage]:
    """Every stored copy of the message, by store time: a broker-made id names one of them and leads to all.

    A client-made id is looked up in these topics, by default in all. Empty when nobody has it.
    """
    one = await _by_place(admin, message_id)
    if one is not None and one.message_id == one.offset_message_id:
        return [one]  # its producer gave it no id of its own
    key = one.message_id if one is not None else message_id
    found = await _each(admin, key, topics or await admin.topics())
    if one is not None and one.offset_message_id not in {copy.offset_message_id for copy in found}:
        found.append(one)  # the index of its broker is behind, or off
    return sorted(found, key=lambda copy: (copy.store_timestamp_ms, copy.log_offset))


async def consumed_by(admin: Admin, copies: list[ReceivedMessage]) -> list[dict[str, Any]]:
    """Each group that has committed an offset in a queue with a copy, and whether that is past the copy."""
    names = sorted({one.group for one in await admin.groups()})
    limit = asyncio.Semaphore(ASKED_AT_ONCE)

    async def progress(group: str) -> list[dict[str, Any]]:
        async with limit:
            committed = {one.queue: one.committed for one in await admin.progress(group)}
        return [
            {
                "group": group, "broker": copy.queue.broker_name, "topic": copy.queue.topic,
                "queue_id": copy.queue.queue_id, "queue_offset": copy.queue_offset,
                "committed": committed[copy.queue], "consumed": committed[copy.queue] > copy.queue_offset,
            }
            for copy in copies
            if copy.queue in committed
        ]  # fmt: skip

    return [row for rows in await asyncio.gather(*map(progress, names)) for row in rows]


async def _by_place(admin: Admin, message_id: str) -> ReceivedMessage | None:
    """The copy with this broker-made id; None where the text is no id, or names no message."""
    try:
        parse_offset_message_id(message_id)
        return await admin.message(message_id)
    except ValueError:
        return None
    except DejamqError as error:
        if error.code != Code.QUERY_NOT_FOUND:
            raise
        return None


async def _each(admin: Admin, key: str, topics: Iterable[str]) -> list[ReceivedMessage]:
    limit = asyncio.Semaphore(ASKED_AT_ONCE)

    async def look(topic: str) -> list[ReceivedMessage]:
        async with limit:
            return await admin.messages_by_key(topic, key, unique=True)

    return [copy for copies in await asyncio.gather(*map(look, topics)) for copy in copies]
