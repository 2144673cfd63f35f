"""What operators did is there after the broker was killed and started again, and nothing of what they ended."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from dejamq import Admin, ConsumeFrom, DejamqError, Message, ReceivedMessage
from dejamq_lab import Cluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(40):
        while True:
            try:
                if await done():
                    return
            except DejamqError:
                pass  # the broker is away
            await asyncio.sleep(0.05)


async def test_moves_and_ends_survive_a_kill(tmp_path: Path) -> None:
    got: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with (
        Cluster(topics={"orders": 1, "gone": 1}, time_scale=0.1, processes=True, directory=tmp_path) as cluster,
        Admin(cluster.namesrv) as admin,
    ):
        async with cluster.producer("shop") as producer:
            for number in range(6):
                await producer.send(Message("orders", b"%d" % number))
                await producer.send(Message("gone", b"old"))
        for group in ("billing", "former"):
            await admin.create_group(group)
            await admin.reset_offsets(group, "orders", to_offset=4)
            await admin.reset_offsets(group, "gone", to_offset=2)
        await admin.update_topic("orders", write_queues=2, read_queues=2)
        await admin.delete_group("former")
        await admin.delete_topic("gone")

        async def written() -> bool:
            text = await asyncio.to_thread(offsets_in, tmp_path)
            return "orders@billing" in text and "former" not in text and "gone" not in text

        await until(written)
        await asyncio.to_thread(cluster.broker("broker-a").kill)
        await asyncio.to_thread(cluster.broker("broker-a").restart)

        async def back() -> bool:
            return [(one.queue.queue_id, one.committed) for one in await admin.progress("billing")] == [(0, 4)]

        await until(back)
        assert [(one.read_queues, one.write_queues) for one in await admin.topic("orders")] == [(2, 2)]
        assert await admin.topic("gone") == []
        assert [one.group for one in await admin.groups()] == ["billing"]
        await admin.create_topic("gone", queues=1)
        assert [(one.min_offset, one.max_offset) for one in await admin.queue_ranges("gone")] == [(0, 0)]
        consumer = cluster.push_consumer("billing", consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe("orders", handler)
        consumer.subscribe("gone", handler)
        async with consumer, cluster.producer("shop") as producer:
            await producer.send(Message("gone", b"new"))

            async def consumed() -> bool:
                return len(got) >= 3

            await until(consumed)
    assert sorted(got) == [b"4", b"5", b"new"]


def offsets_in(directory: Path) -> str:
    """What the broker has written of offsets, '' before it wrote any."""
    return "".join(path.read_text() for path in directory.rglob("consumerOffset.json"))
