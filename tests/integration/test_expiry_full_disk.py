"""The SDK against brokers whose messages expire and whose disks are full."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_wire import until
from consumer_cluster import Servers, servers
from dejamq import ConsumeFrom, DejamqError, Message, ReceivedMessage, SendStatus
from dejamq_broker.app import Broker
from dejamq_broker.store import MessageStore
from dejamq_proto.codes import Code
from producer_site import Site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    await site.namesrv.start()
    await site.start_broker("broker-a")
    yield site
    await site.close()


def store_of(broker: Broker | None) -> MessageStore:
    assert broker is not None
    return broker.domain.store


def at_use(broker: Broker | None, percent: int) -> None:
    """Let its disk be this full, and look."""
    disk = store_of(broker).inspect().disk
    disk.used_percent = lambda folder: percent
    disk.look()


async def test_a_producer_hears_that_the_disk_is_full_and_what_to_do(site: Site) -> None:
    async with site.producer(retry_times_when_send_failed=0) as producer:
        await producer.send(Message("orders", b"before"))
        at_use(site.brokers["broker-a"], 91)
        with pytest.raises(DejamqError, match=r"91 % full.*make room") as refused:
            await producer.send(Message("orders", b"refused"))
        assert (refused.value.code, refused.value.definite) == (Code.SERVICE_NOT_AVAILABLE, True)
        at_use(site.brokers["broker-a"], 90)
        assert (await producer.send(Message("orders", b"after"))).status is SendStatus.SEND_OK


async def test_what_a_full_broker_refuses_goes_to_another_one(site: Site) -> None:
    await site.start_broker("broker-b")
    async with site.producer() as producer:
        at_use(site.brokers["broker-a"], 91)
        results = [await producer.send(Message("orders", b"%d" % number)) for number in range(4)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}


def expire(cluster: Servers) -> None:
    """All log files but the last one."""
    store = store_of(cluster.broker)
    store.inspect().retention.safe_end = lambda: store.log_max
    at_use(cluster.broker, 88)
    store.inspect().retention.clean(0)
    at_use(cluster.broker, 10)


async def test_a_consumer_whose_messages_expired_goes_on_with_the_first_that_is_left(tmp_path: Path) -> None:
    async with servers(tmp_path) as cluster:
        await cluster.send("first")
        assert await consumed(cluster, 1) == [0]
        await fill_three_files(cluster)
        expire(cluster)
        store = store_of(cluster.broker)
        queues = [queue_id for topic, queue_id in store.queues() if topic == "orders"]
        left = {
            queue_id: (store.min_offset("orders", queue_id), store.max_offset("orders", queue_id))
            for queue_id in queues
        }
        assert max(low for low, _ in left.values()) > 1
        offsets = sorted(offset for low, high in left.values() for offset in range(low, high))
        assert await consumed(cluster, len(offsets)) == offsets


async def fill_three_files(cluster: Servers) -> None:
    """Bodies that no packing makes smaller."""
    async with cluster.producer() as producer:
        futures = [producer.submit(Message("orders", os.urandom(100_000))) for _ in range(100)]
        await producer.flush()
    assert all(future.result().status is SendStatus.SEND_OK for future in futures)


async def consumed(cluster: Servers, count: int) -> list[int]:
    """Queue offsets of what a member of the group is given, when it is at least so many messages."""
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)

    consumer = cluster.consumer(consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("orders", handle)
    async with consumer:
        await until(lambda: len(seen) >= count)
    return sorted(seen)
