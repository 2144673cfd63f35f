"""Admin against real servers: what operators ask, and the little they change."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from dejamq import (
    Admin,
    BrokerUnavailable,
    ClientClosed,
    Code,
    ConfigError,
    ConsumeFrom,
    DeadLetter,
    DejamqError,
    InvalidName,
    Message,
    MessageQueue,
    ReceivedMessage,
    RouteNotFound,
    SendResult,
)
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


async def send(cluster: Cluster, *bodies: str, **message: str) -> list[SendResult]:
    """One of each body to every queue, in this order."""
    async with cluster.producer("p") as producer:
        queues = await producer.publish_queues("orders")
        return [
            await producer.send(Message("orders", body.encode(), keys=message.get("keys", ())), queue=queue)
            for body in bodies
            for queue in queues
        ]


async def consume(cluster: Cluster, group: str, count: int) -> list[ReceivedMessage]:
    """A member that comes, takes so many messages from the oldest on, and goes."""
    got: list[ReceivedMessage] = []
    done = asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        got.append(message)
        if len(got) >= count:
            done.set()

    consumer = cluster.push_consumer(group, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("orders", handler)
    async with consumer, asyncio.timeout(20):
        await done.wait()
    return got


async def test_brokers_topics_and_what_each_broker_has_of_a_topic(cluster: Cluster, admin: Admin) -> None:
    assert [broker.broker_name for broker in await admin.brokers()] == ["broker-a", "broker-b"]
    assert "orders" in await admin.topics()
    assert [(one.broker_name, one.write_queues, one.perm) for one in await admin.topic("orders")] == [
        ("broker-a", 2, 6), ("broker-b", 2, 6),
    ]  # fmt: skip
    assert await admin.topic("nowhere") == []
    assert (await admin.runtime_info("broker-b"))["brokerName"] == "broker-b"
    with pytest.raises(ConfigError, match="there are broker-a, broker-b"):
        await admin.runtime_info("broker-c")


async def test_settings_of_a_broker_are_those_it_was_started_with(cluster: Cluster, admin: Admin) -> None:
    settings = await admin.settings("broker-b")
    assert settings["broker_name"] == "broker-b"
    assert settings["flush_disk_type"] == "ASYNC_FLUSH"
    assert settings["channel_expired_timeout_ms"] == "12000"  # scaled by 0.1
    (address,) = [one.addresses[0] for one in await admin.brokers() if one.broker_name == "broker-b"]
    assert address.startswith(settings["listen"].rpartition(":")[0])


async def test_a_topic_is_made_at_some_brokers_and_changed(cluster: Cluster, admin: Admin) -> None:
    assert await admin.create_topic("refunds", queues=3, brokers=["broker-b"]) == ["broker-b"]
    assert [(one.broker_name, one.read_queues) for one in await admin.topic("refunds")] == [("broker-b", 3)]
    assert await admin.create_topic("refunds", queues=3, perm=4) == ["broker-a", "broker-b"]
    assert {one.perm for one in await admin.topic("refunds")} == {4}
    with pytest.raises(InvalidName):
        await admin.create_topic("no such:name")


async def test_producers_choose_no_queue_of_a_topic_without_write_permission_and_its_messages_stay(
    cluster: Cluster, admin: Admin
) -> None:
    queue = (await send(cluster, "x"))[0].queue
    await admin.create_topic("orders", queues=2, perm=4)
    async with cluster.producer("q") as producer:

        async def until_there_are_none() -> None:
            while await producer.publish_queues("orders"):
                await asyncio.sleep(0.01)

        with pytest.raises(RouteNotFound):
            await until_there_are_none()
    assert [message.body async for message in admin.read(queue)] == [b"x"]


async def test_routes_tell_what_each_name_server_says(cluster: Cluster, admin: Admin) -> None:
    routes = await admin.routes("orders")
    assert sorted(routes) == sorted(cluster.namesrv.split(";"))
    assert len({str(route) for route in routes.values()}) == 1
    missing = await admin.routes("nowhere")
    assert all(isinstance(answer, DejamqError) for answer in missing.values())


async def test_progress_lag_and_members_of_a_group(cluster: Cluster, admin: Admin) -> None:
    await send(cluster, "one")
    await consume(cluster, "billing", 4)
    assert [(one.committed, one.lag) for one in await admin.progress("billing", "orders")] == [(1, 0)] * 4
    await send(cluster, "two", "three")
    assert sum(one.lag for one in await admin.progress("billing", "orders")) == 8
    assert await admin.members("billing") == {}
    assert await admin.progress("unknown") == []


async def test_offsets_are_reset_by_offset_and_by_time_and_what_comes_again_is_right(
    cluster: Cluster, admin: Admin
) -> None:
    first = await send(cluster, "one")
    async with asyncio.timeout(20):  # until the clock has moved on
        while stored_last(await send(cluster, "between")) <= stored_last(first):
            pass
    second = await send(cluster, "two")
    everything = sum([1 async for queue in queues_of(admin) async for _ in admin.read(queue)])
    await consume(cluster, "billing", everything)
    await admin.reset_offsets("billing", "orders", to_offset=0)
    again = await consume(cluster, "billing", everything)
    assert {message.message_id for message in again} >= {one.message_id for one in first}
    moves = await admin.reset_offsets("billing", "orders", to_time_ms=min(one.store_timestamp_ms for one in second))
    progress = await admin.progress("billing", "orders")
    assert [(one.queue, one.after) for one in moves] == [(one.queue, one.committed) for one in progress]
    assert all(one.lag >= 1 for one in progress)
    assert all(one.committed >= 1 for one in progress)
    assert all("kept within" in one.reason for one in await admin.reset_offsets("billing", "orders", to_offset=1 << 40))
    assert {one.lag for one in await admin.progress("billing", "orders")} == {0}
    with pytest.raises(DejamqError, match="either"):
        await admin.reset_offsets("billing", "orders")


async def test_a_group_goes_on_where_another_one_is(cluster: Cluster, admin: Admin) -> None:
    await send(cluster, "one", "two")
    await consume(cluster, "billing", 8)
    with pytest.raises(DejamqError, match="not known"):
        await admin.clone_offsets("billing", "billing-blue", "orders")
    await admin.create_group("billing-blue")
    planned = await admin.plan_clone("billing", "billing-blue", "orders")
    assert await admin.progress("billing-blue") == []
    cloned = await admin.clone_offsets("billing", "billing-blue", "orders")
    assert [(one.before, one.after, one.reason) for one in cloned] == [(None, 2, "as billing")] * 4
    assert cloned == planned
    assert [one.committed for one in await admin.progress("billing-blue", "orders")] == [2, 2, 2, 2]


async def test_groups_are_made_changed_and_listed(cluster: Cluster, admin: Admin) -> None:
    assert await admin.create_group("billing", retry_max_times=3, ordered=True) == ["broker-a", "broker-b"]
    await admin.create_group("billing", retry_max_times=5, ordered=True)
    found = [one for one in await admin.groups() if one.group == "billing"]
    assert [(one.broker_name, one.retry_max_times, one.consume_message_orderly) for one in found] == [
        ("broker-a", 5, True), ("broker-b", 5, True),
    ]  # fmt: skip
    with pytest.raises(DejamqError, match="0 or more"):
        await admin.create_group("billing", retry_max_times=-1)
    with pytest.raises(InvalidName):
        await admin.create_group("no such:name")


async def test_a_group_that_may_not_consume_gets_nothing_until_it_may(cluster: Cluster, admin: Admin) -> None:
    await admin.create_group("paused", consume_enable=False)
    (sent, *_) = await send(cluster, "x")
    got = asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        got.set()

    consumer = cluster.push_consumer("paused", consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("orders", handler)
    async with consumer, asyncio.timeout(20):
        await consumer.wait_assigned()
        assert [message.message_id async for message in admin.read(sent.queue)] == [sent.message_id]
        assert not got.is_set()
        await admin.create_group("paused")
        await got.wait()


async def test_a_message_is_found_by_its_id_its_key_and_its_place(cluster: Cluster, admin: Admin) -> None:
    sent = await send(cluster, "paid", keys="order-17")
    for one in sent:
        found = await admin.message(one.offset_message_id)
        assert (found.message_id, found.queue, found.body) == (one.message_id, one.queue, b"paid")
        (unique,) = await admin.messages_by_key("orders", one.message_id, unique=True)
        assert unique.offset_message_id == one.offset_message_id
        assert [message.message_id async for message in admin.read(one.queue)] == [one.message_id]
    by_key = await admin.messages_by_key("orders", "order-17")
    assert {message.message_id for message in by_key} == {one.message_id for one in sent}
    assert await admin.messages_by_key("orders", "order-18") == []
    late = max(message.store_timestamp_ms for message in by_key) + 1
    assert await admin.messages_by_key("orders", "order-17", begin_ms=late) == []
    with pytest.raises(DejamqError) as missing:
        await admin.message(sent[0].offset_message_id[:-8] + "7FFFFFFF")
    assert missing.value.code == Code.QUERY_NOT_FOUND


async def test_dead_letters_are_read_and_stay(cluster: Cluster, admin: Admin) -> None:
    async def refuse(message: ReceivedMessage) -> None:
        raise DeadLetter("no such customer")

    sent = await send(cluster, "bad")
    consumer = cluster.push_consumer("strict", consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("orders", refuse)
    async with consumer, asyncio.timeout(20):
        while len([message async for message in admin.dead_letters("strict")]) < len(sent):
            await asyncio.sleep(0.02)
    letters = [message async for message in admin.dead_letters("strict")]
    assert {message.message_id for message in letters} == {one.message_id for one in sent}


async def test_nobody_there_and_a_closed_admin_are_told(cluster: Cluster) -> None:
    async with Admin("127.0.0.1:1") as admin:
        with pytest.raises(BrokerUnavailable, match="no name server answers"):
            await admin.topics()
        assert isinstance((await admin.routes("orders"))["127.0.0.1:1"], BrokerUnavailable)
    with pytest.raises(ClientClosed):
        await admin.topics()
    with pytest.raises(ClientClosed, match="not started"):
        await Admin(cluster.namesrv).topics()


async def test_a_lost_name_server_is_passed_over(cluster: Cluster) -> None:
    async with Admin("127.0.0.1:1;" + cluster.namesrv) as admin:
        assert "orders" in await admin.topics()


async def test_the_blocking_admin_says_the_same(cluster: Cluster, admin: Admin) -> None:
    await send(cluster, "one")
    queue = MessageQueue("orders", "broker-a", 0)

    def ask() -> tuple[list[str], list[bytes]]:
        with dejamq_sync.Admin(cluster.namesrv) as blocking:
            return blocking.topics(), [message.body for message in blocking.read(queue)]

    assert await asyncio.to_thread(ask) == (await admin.topics(), [b"one"])


async def queues_of(admin: Admin) -> AsyncIterator[MessageQueue]:
    for one in await admin.topic("orders"):
        for queue_id in range(one.read_queues):
            yield MessageQueue("orders", one.broker_name, queue_id)


def stored_last(sent: list[SendResult]) -> int:
    return max(one.store_timestamp_ms for one in sent)
