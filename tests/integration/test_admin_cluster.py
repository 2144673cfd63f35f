"""Admin about a running cluster: who is connected, and a broker that is to get no more messages."""

import asyncio
import time
from collections.abc import AsyncIterator
from importlib import metadata

import pytest
from dejamq import Admin, ConfigError, InvalidName, Message, Producer, ReceivedMessage
from dejamq import sync as dejamq_sync
from dejamq_lab import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, namesrvs=2, topics={"orders": 2}, time_scale=0.1) as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.namesrv) as admin:
        yield admin


async def ignore(message: ReceivedMessage) -> None: ...


async def test_connections_tell_producers_and_consumers_with_address_version_and_last_heartbeat(
    cluster: Cluster, admin: Admin
) -> None:
    consumer = cluster.push_consumer("billing")
    consumer.subscribe("orders", ignore)
    async with cluster.producer("shop") as producer, consumer, asyncio.timeout(20):
        await consumer.wait_assigned()
        for queue in await producer.publish_queues("orders"):
            await producer.send(Message("orders", b"x"), queue=queue)
        while len(await admin.connections("shop")) < 2:  # a producer's first heartbeat may come after its first send
            await asyncio.sleep(0.01)
        lines = await admin.connections()
        assert [(one.group, one.role, one.broker_name) for one in lines] == [
            ("billing", "consumer", "broker-a"), ("billing", "consumer", "broker-b"),
            ("shop", "producer", "broker-a"), ("shop", "producer", "broker-b"),
        ]  # fmt: skip
        assert {one.client_id for one in lines if one.group == "billing"} == {consumer.client_id}
        assert {one.version for one in lines} == {metadata.version("dejamq")}
        assert len({one.address for one in lines}) == 4
        assert all(abs(one.last_heartbeat_ms - time.time() * 1000) < 600_000 for one in lines)
        assert [one.broker_name for one in await admin.connections("shop", broker_name="broker-b")] == ["broker-b"]
        while any(one.group == "billing" for one in await admin.connections()):
            await consumer.close()
    with pytest.raises(InvalidName):
        await admin.connections("no good")
    with pytest.raises(ConfigError, match="there are broker-a, broker-b"):
        await admin.connections(broker_name="broker-c")


async def until_brokers_are(producer: Producer, *wanted: str) -> None:
    """Until new messages may go to these brokers only, and to each of them."""

    async def brokers() -> set[str]:
        return {queue.broker_name for queue in await producer.publish_queues("orders")}

    async with asyncio.timeout(20):
        while await brokers() != set(wanted):
            await asyncio.sleep(0.01)


async def test_producers_leave_a_broker_whose_writes_are_stopped_and_come_back(cluster: Cluster, admin: Admin) -> None:
    async with cluster.producer("shop", poll_name_server_interval_ms=500) as producer:
        await until_brokers_are(producer, "broker-a", "broker-b")
        told = await admin.stop_writes("broker-a")
        assert sorted(told) == sorted(cluster.namesrv.split(";"))
        assert all(routes > 0 for routes in told.values())
        await until_brokers_are(producer, "broker-b")
        assert {(await producer.send(Message("orders", b"x"))).queue.broker_name for _ in range(6)} == {"broker-b"}
        assert await admin.start_writes("broker-a") == told
        await until_brokers_are(producer, "broker-a", "broker-b")
    with pytest.raises(ConfigError, match="broker-c"):
        await admin.stop_writes("broker-c")


async def test_the_blocking_admin_stops_writes_and_lists_connections(cluster: Cluster, admin: Admin) -> None:
    def ask() -> tuple[dict[str, int], dict[str, int], int]:
        with dejamq_sync.Admin(cluster.namesrv) as blocking:
            return blocking.stop_writes("broker-b"), blocking.start_writes("broker-b"), len(blocking.connections())

    stopped, started, connected = await asyncio.to_thread(ask)
    assert stopped == started
    assert connected == 0
