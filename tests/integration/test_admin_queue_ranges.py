"""What each queue of a topic holds, as an operator sees it."""

import asyncio

import pytest
from dejamq import Admin, Message, RouteNotFound
from dejamq import sync as dejamq_sync
from dejamq_lab import Cluster


async def test_each_queue_tells_its_bounds_and_when_its_first_and_last_message_were_stored() -> None:
    async with Cluster(brokers=2, topics={"orders": 2}) as cluster, Admin(cluster.namesrv) as admin:
        async with cluster.producer("shop") as producer:
            queues = sorted(await producer.publish_queues("orders"))
            for body in (b"one", b"two", b"three"):
                await producer.send(Message("orders", body), queue=queues[1])
        ranges = await admin.queue_ranges("orders")
        assert [one.queue for one in ranges] == queues
        assert [(one.min_offset, one.max_offset) for one in ranges] == [(0, 0), (0, 3), (0, 0), (0, 0)]
        assert (ranges[0].first_stored_ms, ranges[0].last_stored_ms) == (None, None)
        stored = [message.store_timestamp_ms async for message in admin.read(queues[1])]
        assert (ranges[1].first_stored_ms, ranges[1].last_stored_ms) == (stored[0], stored[-1])
        with pytest.raises(RouteNotFound):
            await admin.queue_ranges("nowhere")


async def test_the_blocking_admin_measures_queues_too() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:

        def ask() -> list[int]:
            with dejamq_sync.Admin(cluster.namesrv) as admin:
                assert admin.leave_out_silent() == {}
                return [one.max_offset for one in admin.queue_ranges("orders")]

        assert await asyncio.to_thread(ask) == [0]
