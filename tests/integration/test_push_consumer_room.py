"""Queues that may not be pulled, as their consumer holds as much as it may."""

import asyncio
from pathlib import Path

from consumer_cluster import servers, until
from dejamq import Message, ReceivedMessage


async def test_a_queue_that_waits_for_room_is_not_given_up_as_idle(tmp_path: Path) -> None:
    go_on, bodies = asyncio.Event(), list[bytes]()

    async def handler(message: ReceivedMessage) -> None:
        await go_on.wait()
        bodies.append(message.body)

    async with servers(tmp_path) as here:
        async with here.producer() as producer:
            await asyncio.gather(*(producer.send(Message("orders", b"%d" % number)) for number in range(400)))
        consumer = here.consumer(
            max_cached_bytes=1, pull_batch_size=10, pull_max_idle_time_ms=3_000, rebalance_wait_interval_ms=50,
            broker_suspend_max_time_ms=50,
        )  # fmt: skip
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: any(owned.in_line for owned in consumer.inspect().rebalancer.assignment))
            await asyncio.sleep(4)
            assert not here.lines("PQ_DROP")
            go_on.set()
            await until(lambda: len(bodies) == 400)
    assert {line["reason"] for line in here.lines("PQ_DROP")} == {"shutdown"}
