"""A producer and brokers in processes of their own, which are killed and paused while it sends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dejamq import ConsumeFrom, ReceivedMessage, SendTimeout
from dejamq_lab import Cluster
from producer_traffic import Traffic, assert_truthful, until

pytestmark = pytest.mark.process


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, namesrvs=1, processes=True, topics={"orders": 2}, directory=tmp_path) as cluster:
        yield cluster


async def consumed(cluster: Cluster, wanted: set[bytes]) -> set[bytes]:
    """Everything that a new group gets, until the wanted ones are among it."""
    found: set[bytes] = set()

    async def keep(message: ReceivedMessage) -> None:
        found.add(message.body)

    async with cluster.push_consumer("readers", consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
        consumer.subscribe("orders", keep)
        await until(lambda: wanted <= found)
    return found


def server(cluster: Cluster, name: str) -> Any:
    return cluster.broker(name)


async def test_a_broker_is_killed_under_traffic_and_every_acknowledged_message_is_delivered(cluster: Cluster) -> None:
    async with cluster.producer("till", send_msg_timeout_ms=5_000) as producer:
        traffic = Traffic(producer, "orders")
        await traffic.more()
        server(cluster, "broker-a").kill()
        await traffic.more(200)
        server(cluster, "broker-a").restart()
        await cluster.ready()
        await traffic.more()
        await traffic.stop()
    assert traffic.failed == {}
    assert_truthful(traffic, await consumed(cluster, set(traffic.stored)))


async def test_a_paused_broker_costs_time_outs_and_is_used_again_when_it_is_resumed(cluster: Cluster) -> None:
    async with cluster.producer("till", send_msg_timeout_ms=300) as producer:
        traffic = Traffic(producer, "orders")
        await traffic.more()
        server(cluster, "broker-a").pause()
        await until(lambda: traffic.failed)
        await traffic.more(6)
        assert {type(error) for error in traffic.failed.values()} == {SendTimeout}
        assert not any(error.definite for error in traffic.failed.values())
        server(cluster, "broker-a").resume()
        queue = next(queue for queue in await producer.publish_queues("orders") if queue.broker_name == "broker-a")
        await until_sent(traffic, queue.broker_name)
        await traffic.stop()
    assert_truthful(traffic, await consumed(cluster, set(traffic.stored)))


async def until_sent(traffic: Traffic, broker_name: str) -> None:
    before = set(traffic.stored)
    async with asyncio.timeout(30):
        while not any(
            result.queue.broker_name == broker_name for body, result in traffic.stored.items() if body not in before
        ):
            await asyncio.sleep(0.01)
