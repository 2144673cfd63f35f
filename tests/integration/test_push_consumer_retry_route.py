"""A new group finds the queues of its retry topic at every broker at once, not with the next reading of routes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from consumer_cluster import until
from dejamq import Admin, ConsumeFrom, Message, PushConsumer, ReceivedMessage
from dejamq_lab import Cluster

NEVER_MS = 10_000_000


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    topics = {"orders": 2}
    async with Cluster(brokers=3, topics=topics, time_scale=0.1, directory=tmp_path) as cluster:
        async with Admin(cluster.namesrv) as admin:  # what a member sees that starts between two brokers' work
            await admin.create_topic("%RETRY%new", queues=1, brokers=["broker-a"])
        yield cluster


def member(cluster: Cluster, group: str = "new", **settings: object) -> PushConsumer:
    """Reads no route by its interval while a test runs."""
    consumer = cluster.push_consumer(
        group, consume_from=ConsumeFrom.FIRST_OFFSET, poll_name_server_interval_ms=NEVER_MS, **settings
    )
    consumer.subscribe("orders", fail_once)
    return consumer


async def fail_once(message: ReceivedMessage) -> None:
    if not message.reconsume_times:
        raise ValueError("once")


def brokers_of_retries(*members: PushConsumer) -> set[str]:
    """Brokers whose retry queues have an owner among the members; programs are not shown these queues."""
    assignments = [one.inspect().rebalancer.assignment for one in members if one.client_id]
    owned = [each.queue for assignment in assignments for each in assignment]
    return {queue.broker_name for queue in owned if queue.topic == "%RETRY%new"}


async def test_a_new_group_owns_its_retry_queues_of_all_brokers(cluster: Cluster) -> None:
    async with member(cluster) as consumer:
        await until(lambda: brokers_of_retries(consumer) == {"broker-a", "broker-b", "broker-c"}, 20)


async def test_members_that_come_at_once_share_all_retry_queues(cluster: Cluster) -> None:
    async with member(cluster) as one, member(cluster) as two:
        await until(lambda: brokers_of_retries(one, two) == {"broker-a", "broker-b", "broker-c"}, 20)


async def test_first_retries_of_a_new_group_come_from_every_broker(cluster: Cluster) -> None:
    done: set[str] = set()

    async def second_time(message: ReceivedMessage) -> None:
        await fail_once(message)
        done.add(message.queue.broker_name)

    consumer = cluster.push_consumer(
        "new", consume_from=ConsumeFrom.FIRST_OFFSET, poll_name_server_interval_ms=NEVER_MS
    )
    consumer.subscribe("orders", second_time)
    async with consumer, cluster.producer("p") as producer:
        for queue in await producer.publish_queues("orders"):
            await producer.send(Message("orders", b"x"), queue=queue)
        await until(lambda: done == {"broker-a", "broker-b", "broker-c"}, 20)
