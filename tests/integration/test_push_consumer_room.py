"""Queues that may not be pulled, as their consumer holds as much as it may."""

import asyncio
from pathlib import Path

from consumer_cluster import servers, until
from dejamq import Message, PushConsumer, ReceivedMessage
from dejamq.receiving.assignment import OwnedQueue


def in_line(consumer: PushConsumer) -> list[OwnedQueue]:
    """Those that wait until all queues together hold less."""
    return [owned for owned in consumer.inspect().rebalancer.assignment if owned.in_line]


async def test_a_queue_that_waits_for_room_is_not_given_up_as_idle(tmp_path: Path) -> None:
    go_on, bodies = asyncio.Event(), list[bytes]()

    async def handler(message: ReceivedMessage) -> None:
        await go_on.wait()
        bodies.append(message.body)

    async with servers(tmp_path) as here:
        async with here.producer() as producer:
            await asyncio.gather(*(producer.send(Message("orders", b"%d" % number)) for number in range(400)))
        consumer = here.consumer(
            max_cached_bytes=1, pull_batch_size=10, pull_max_idle_time_ms=1_000, rebalance_wait_interval_ms=50,
            broker_suspend_max_time_ms=50,
        )  # fmt: skip
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: in_line(consumer))
            waiting = in_line(consumer)
            await asyncio.sleep(1.5)
            assert not any(owned.dropped for owned in waiting)
            go_on.set()
            await until(lambda: len({*bodies}) == 400)
