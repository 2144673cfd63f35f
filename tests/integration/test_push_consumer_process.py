"""Consumers while their servers, processes of their own, are killed and paused: they go on by themselves."""

from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dejamq import ConsumeFrom, PushConsumer, ReceivedMessage
from dejamq_lab import Cluster
from producer_traffic import Traffic, until

pytestmark = pytest.mark.process


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Intervals are a tenth: a consumer looks again every 100 ms where RocketMQ's does every second."""
    async with Cluster(
        brokers=2, namesrvs=2, processes=True, topics={"orders": 2}, time_scale=0.1, directory=tmp_path
    ) as cluster:
        yield cluster


class Seen:
    """What a group's members were given, and how often."""

    def __init__(self) -> None:
        self.times: dict[bytes, int] = defaultdict(int)
        self.skips: list[bytes] = []
        self._last: dict[tuple[str, int], int] = {}

    async def handle(self, message: ReceivedMessage) -> None:
        place = message.queue.broker_name, message.queue.queue_id
        if message.queue_offset > self._last.setdefault(place, message.queue_offset - 1) + 1:
            self.skips.append(message.body)
        self._last[place] = message.queue_offset
        self.times[message.body] += 1

    def consumer(self, cluster: Cluster, **settings: Any) -> PushConsumer:
        consumer = cluster.push_consumer("billing", consume_from=ConsumeFrom.FIRST_OFFSET, **settings)
        consumer.subscribe("orders", self.handle)
        return consumer

    async def all_of(self, traffic: Traffic) -> None:
        """Until everything that was acknowledged has come."""
        await until(lambda: traffic.stored.keys() <= self.times.keys())

    async def more(self, traffic: Traffic, broker_name: str) -> None:
        """Until something that this broker stores from now on has come."""
        before = set(traffic.stored)

        def new() -> set[bytes]:
            stored = [(body, result.queue.broker_name) for body, result in traffic.stored.items()]
            return {body for body, stored_by in stored if body not in before and stored_by == broker_name}

        await until(lambda: new() & self.times.keys())


def server(cluster: Cluster, name: str) -> Any:
    return cluster.broker(name)


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_broker_is_killed_and_comes_back_and_every_acknowledged_message_is_delivered(
    cluster: Cluster, ordered: bool
) -> None:
    seen = Seen()
    async with cluster.producer("till", send_msg_timeout_ms=5_000) as producer, seen.consumer(cluster, ordered=ordered):
        traffic = Traffic(producer, "orders")
        await seen.more(traffic, "broker-a")
        server(cluster, "broker-a").kill()
        await seen.more(traffic, "broker-b")
        server(cluster, "broker-a").restart()
        await cluster.ready()
        await seen.more(traffic, "broker-a")
        await traffic.stop()
        await seen.all_of(traffic)
    assert not ordered or seen.skips == []


async def test_a_broker_that_is_paused_is_consumed_from_again_when_it_goes_on(cluster: Cluster) -> None:
    """Nothing ends and nothing is refused: every call just has no answer."""
    seen = Seen()
    async with cluster.producer("till", send_msg_timeout_ms=300) as producer, seen.consumer(cluster, ordered=True):
        traffic = Traffic(producer, "orders")
        await seen.more(traffic, "broker-a")
        server(cluster, "broker-a").pause()
        await until(lambda: traffic.failed)
        await seen.more(traffic, "broker-b")
        server(cluster, "broker-a").resume()
        await seen.more(traffic, "broker-a")
        await traffic.stop()
        await seen.all_of(traffic)
    assert seen.skips == []


async def test_both_brokers_away_at_once_are_both_consumed_from_again(cluster: Cluster) -> None:
    seen = Seen()
    async with cluster.producer("till", send_msg_timeout_ms=1_000) as producer, seen.consumer(cluster) as consumer:
        traffic = Traffic(producer, "orders")
        await seen.more(traffic, "broker-a")
        for name in ("broker-a", "broker-b"):
            server(cluster, name).kill()
        await until(lambda: traffic.failed)
        for name in ("broker-a", "broker-b"):
            server(cluster, name).restart()
        await cluster.ready()
        await seen.more(traffic, "broker-a")
        await seen.more(traffic, "broker-b")
        await traffic.stop()
        await seen.all_of(traffic)
        await until(lambda: len(consumer.assignment) == 4)


async def test_without_any_name_server_it_goes_on_with_the_routes_it_knows(cluster: Cluster) -> None:
    seen = Seen()
    namesrvs: list[Any] = [cluster.namesrv_at(number) for number in range(2)]
    async with cluster.producer("till", send_msg_timeout_ms=30_000) as producer, seen.consumer(cluster) as consumer:
        traffic = Traffic(producer, "orders")
        await seen.more(traffic, "broker-a")
        for namesrv in namesrvs:
            namesrv.kill()
        await traffic.more(100)
        await seen.more(traffic, "broker-b")
        namesrvs[1].restart()
        await cluster.ready()
        await seen.more(traffic, "broker-a")
        await traffic.stop()
        await seen.all_of(traffic)
        assert len(consumer.assignment) == 4
    assert traffic.failed == {}
