"""Where a group begins in a queue: by its own progress, by its choice, and nowhere while that cannot be known."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire
from consumer_cluster import Servers, servers, until
from dejamq import ConsumeFrom, Message, MessageQueue, PushConsumer, ReceivedMessage
from dejamq_broker.store import reading
from dejamq_broker.tables.offsets import OffsetTable
from dejamq_proto.codes import Code, DejamqError


def consuming(here: Servers, seen: list[str], **settings: Any) -> PushConsumer:
    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    consumer = here.consumer(**settings)
    consumer.subscribe("orders", handler)
    return consumer


async def send_to_first(here: Servers, *bodies: str) -> MessageQueue:
    async with here.producer() as producer:
        queue = (await producer.publish_queues("orders"))[0]
        for body in bodies:
            await producer.send(Message("orders", body.encode()), queue=queue)
    return queue


async def test_while_its_progress_cannot_be_read_a_group_gets_nothing_and_then_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ: OffsetNotFoundIT."""
    before, after, asked = list[str](), list[str](), 0

    def unreadable(*_: object, **__: object) -> int:
        nonlocal asked
        asked += 1
        raise DejamqError("not now", code=Code.SYSTEM_ERROR)

    async with servers(tmp_path) as here:
        await send_to_first(here, "a", "b")
        async with consuming(here, before):
            await until(lambda: len(before) == 2)
        await send_to_first(here, "c", "d")
        monkeypatch.setattr(OffsetTable, "query", unreadable)
        async with consuming(here, after, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
            await until(lambda: asked >= 15)  # five queues, in three rounds
            assert (consumer.assignment, after) == ((), [])
            monkeypatch.undo()
            await until(lambda: len(after) == 2)
    assert sorted(after) == ["c", "d"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ConsumeFrom.FIRST_OFFSET, ["early", "late", "new"]), (ConsumeFrom.TIMESTAMP, ["late", "new"]),
        (ConsumeFrom.LAST_OFFSET, ["new"]),
    ],
)  # fmt: skip
async def test_a_new_group_begins_in_an_old_queue_where_it_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: ConsumeFrom, expected: list[str]
) -> None:
    """Old is a queue whose first message is not in memory any more. RocketMQ: RebalancePushImplTest."""
    monkeypatch.setattr(reading, "RAM", 0)
    seen: list[str] = []
    async with servers(tmp_path) as here:
        await send_to_first(here, "early")
        between_ms = now_ms() + 1
        while now_ms() <= between_ms:
            await asyncio.sleep(0.001)
        await send_to_first(here, "late")
        async with consuming(here, seen, consume_from=choice, consume_timestamp_ms=between_ms) as consumer:
            await consumer.wait_assigned()
            await send_to_first(here, "new")
            await until(lambda: "new" in seen and len(seen) >= len(expected))
    assert sorted(seen) == expected


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_a_new_group_begins_in_a_young_queue_at_its_beginning_whatever_it_chose(tmp_path: Path) -> None:
    """Source: RocketMQ ConsumerManageProcessor."""
    seen: list[str] = []
    async with servers(tmp_path) as here:
        await send_to_first(here, "early", "late")
        async with consuming(here, seen, consume_from=ConsumeFrom.TIMESTAMP, consume_timestamp_ms=now_ms() + 60_000):
            await until(lambda: len(seen) == 2)


async def test_a_commit_that_goes_back_makes_the_next_owner_repeat_messages(tmp_path: Path) -> None:
    """Brokers take any offset, as RocketMQ's: a late commit of a former owner lowers it."""
    before, after = list[str](), list[str]()
    async with servers(tmp_path) as here:
        queue = await send_to_first(here, "a", "b", "c")
        assert queue.queue_id == 0
        async with consuming(here, before, persist_consumer_offset_interval_ms=600_000):
            await until(lambda: len(before) == 3)
        async with Wire(here.address) as wire:
            assert await wire.committed("g", "orders") == 3
            await wire.commit("g", "orders", 1)
        async with consuming(here, after):
            await until(lambda: len(after) == 2)
    assert sorted(after) == ["b", "c"]
