"""Topics while producers and consumers are at them: made, changed, closed, deleted, and made again."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from dejamq import (
    Admin,
    BrokerUnavailable,
    Code,
    ConfigError,
    ConsumeFrom,
    DejamqError,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RouteNotFound,
)
from dejamq_lab import Cluster
from dejamq_lab.cluster import rpc_control

QUICK = {"poll_name_server_interval_ms": 200}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, namesrvs=2, topics={"orders": 4}, time_scale=0.1) as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.namesrv) as admin:
        yield admin


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await done():
            await asyncio.sleep(0.01)


def collecting(cluster: Cluster, topic: str = "orders", **settings: Any) -> tuple[PushConsumer, list[bytes]]:
    got: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append(message.body)

    consumer = cluster.push_consumer("billing", consume_from=ConsumeFrom.FIRST_OFFSET, **(QUICK | settings))
    consumer.subscribe(topic, handler)
    return consumer, got


class Traffic:
    """Sends until told to stop, one after the other; keeps what was acknowledged."""

    def __init__(self, producer: Producer, topic: str = "orders") -> None:
        self._producer, self._topic, self.sent, self.queues = producer, topic, list[bytes](), set[MessageQueue]()
        self._stopping = False

    async def run(self) -> None:
        number = 0
        while not self._stopping:
            number += 1
            body = b"%d" % number
            result = await self._producer.send(Message(self._topic, body))
            self.sent.append(body)
            self.queues.add(result.queue)
            await asyncio.sleep(0.001)

    def stop(self) -> None:
        self._stopping = True


@pytest.mark.parametrize(("before", "after"), [(4, 8), (4, 1)])
async def test_queues_come_and_go_under_traffic_and_no_message_is_lost(
    cluster: Cluster, admin: Admin, before: int, after: int
) -> None:
    consumer, got = collecting(cluster)
    async with cluster.producer("shop", **QUICK) as producer, consumer:
        traffic = Traffic(producer)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(traffic.run())
            await until(lambda: _grown(traffic, 200))
            if after > before:
                await admin.update_topic("orders", read_queues=after)
                await admin.update_topic("orders", write_queues=after)
            else:
                await admin.update_topic("orders", write_queues=after)
            traffic.queues.clear()
            wanted = {
                MessageQueue("orders", name, number) for name in ("broker-a", "broker-b") for number in range(after)
            }
            await until(lambda: _settled(traffic, wanted))
            traffic.stop()
        await until(lambda: _same(got, traffic.sent))
        if after < before:
            await admin.update_topic("orders", read_queues=after)

            async def fewer() -> bool:
                return len(consumer.assignment) == 2 * after

            await until(fewer)
    assert sorted(got) == sorted(traffic.sent)
    assert {(one.read_queues, one.write_queues) for one in await admin.topic("orders")} == {(after, after)}


async def _grown(traffic: Traffic, count: int) -> bool:
    return len(traffic.sent) >= count


async def _settled(traffic: Traffic, wanted: set[MessageQueue]) -> bool:
    """Only these queues got the last messages, and each of them did."""
    if traffic.queues - wanted:
        traffic.queues.clear()
    return traffic.queues == wanted


async def _same(got: list[bytes], sent: list[bytes]) -> bool:
    return set(got) >= set(sent)


async def test_a_topic_that_was_made_is_in_every_name_servers_route_at_once(cluster: Cluster, admin: Admin) -> None:
    for number in range(20):
        await admin.create_topic(f"news-{number}")
        for address in cluster.namesrv.split(";"):
            _, brokers = await rpc_control.route(address, f"news-{number}")
            assert len(brokers) == 2


async def test_a_queue_that_is_read_no_more_keeps_its_messages_until_it_is_again(
    cluster: Cluster, admin: Admin
) -> None:
    async with cluster.producer("shop") as producer:
        queues = await producer.publish_queues("orders")
        for queue in queues:
            await producer.send(Message("orders", f"{queue.broker_name}{queue.queue_id}".encode()), queue=queue)
    await admin.update_topic("orders", read_queues=1)
    consumer, got = collecting(cluster)
    async with consumer:
        await until(lambda: _same(got, [b"broker-a0", b"broker-b0"]))
        assert len(got) == 2
        with pytest.raises(DejamqError, match="1 can be read"):
            await anext(admin.read(MessageQueue("orders", "broker-a", 3)))
        await admin.update_topic("orders", read_queues=4)
        await until(lambda: _same(got, [f"broker-{name}{number}".encode() for name in "ab" for number in range(4)]))
    assert len(got) == 8


async def test_a_deleted_topic_is_gone_everywhere_at_once_and_begins_anew(cluster: Cluster, admin: Admin) -> None:
    consumer, got = collecting(cluster)
    async with cluster.producer("shop", **QUICK) as producer, consumer:
        (kept, *_) = [await producer.send(Message("orders", b"old")) for _ in range(8)]

        async def consumed() -> bool:
            return sum(one.committed for one in await admin.progress("billing", "orders")) == 8

        await until(consumed)
        assert await admin.delete_topic("orders") == ["broker-a", "broker-b"]
        assert "orders" not in await admin.topics()
        assert all(isinstance(answer, RouteNotFound) for answer in (await admin.routes("orders")).values())
        assert await admin.topic("orders") == []
        assert await admin.progress("billing", "orders") == []
        assert (await admin.message(kept.offset_message_id)).body == b"old"
        assert await admin.delete_topic("orders") == []
    await admin.create_topic("orders", queues=1)
    got.clear()
    again, got = collecting(cluster)
    async with cluster.producer("shop") as producer, again:
        assert (await producer.send(Message("orders", b"new"))).queue_offset == 0
        await until(lambda: _same(got, [b"new"]))
    assert got == [b"new"]


async def test_producers_and_consumers_of_a_deleted_topic_are_told_and_go_on_when_it_is_made_again(
    tmp_path: Path,
) -> None:
    settings = {"auto_create_topic_enable": False}
    async with (
        Cluster(topics={"orders": 2}, time_scale=0.1, settings=settings) as cluster,
        Admin(cluster.namesrv) as admin,
        cluster.producer("shop", **QUICK) as producer,
    ):
        consumer, got = collecting(cluster)
        async with consumer:
            await producer.send(Message("orders", b"one"))
            await until(lambda: _same(got, [b"one"]))
            await admin.delete_topic("orders")
            with pytest.raises(DejamqError, match="orders") as told:
                await producer.send(Message("orders", b"lost"))
            assert told.value.code in (Code.TOPIC_NOT_EXIST, Code.NOT_FOUND_TOPIC)
            await admin.create_topic("orders", queues=2)

            async def sent() -> bool:
                try:
                    await producer.send(Message("orders", b"two"))
                except DejamqError:
                    return False
                return True

            await until(sent)
            await until(lambda: _same(got, [b"two"]))
    assert got == [b"one", b"two"]


async def test_what_waits_with_a_delay_for_a_deleted_topic_is_dropped_and_its_queues_stay_away(
    cluster: Cluster, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.producer("shop") as producer:
        await producer.send(Message("orders", b"late", delay_level=2))
        await admin.delete_topic("orders")

        async def dropped() -> bool:
            return "delayed_message_dropped" in caplog.text

        await until(dropped)
    assert "orders" not in await admin.topics()
    await admin.create_topic("orders", queues=4)
    assert {one.max_offset for one in await admin.queue_ranges("orders")} == {0}


async def test_topics_of_the_brokers_themselves_stay(cluster: Cluster, admin: Admin) -> None:
    for topic in ("TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster_REPLY_TOPIC"):
        with pytest.raises(DejamqError, match="belongs to the broker itself"):
            await admin.delete_topic(topic)
        with pytest.raises(DejamqError, match="belongs to the broker itself"):
            await admin.update_topic(topic, perm=4)
        assert topic in await admin.topics()


async def test_changes_that_cannot_be_are_refused(cluster: Cluster, admin: Admin) -> None:
    with pytest.raises(ConfigError, match="give what is to change"):
        await admin.update_topic("orders")
    with pytest.raises(RouteNotFound):
        await admin.update_topic("nowhere", perm=4)
    with pytest.raises(DejamqError, match="1 to 1024 queues"):
        await admin.update_topic("orders", write_queues=0)
    with pytest.raises(DejamqError, match="permission 9"):
        await admin.update_topic("orders", perm=9)
    with pytest.raises(ConfigError, match="there are broker-a, broker-b"):
        await admin.update_topic("orders", perm=4, brokers=["broker-x"])
    assert {(one.read_queues, one.write_queues, one.perm) for one in await admin.topic("orders")} == {(4, 4, 6)}


async def test_an_order_topic_is_told_to_name_servers_and_brokers_until_it_is_none(
    cluster: Cluster, admin: Admin
) -> None:
    await admin.create_topic("ledger", queues=2, order=True)
    links = admin._open().namesrvs
    assert {await one.get_config("ORDER_TOPIC_CONFIG", "ledger") for one in links} == {"broker-a:2;broker-b:2"}
    assert {one.order for one in await admin.topic("ledger")} == {True}
    await admin.update_topic("ledger", write_queues=3, brokers=["broker-b"])
    assert {await one.get_config("ORDER_TOPIC_CONFIG", "ledger") for one in links} == {"broker-a:2;broker-b:3"}
    await admin.update_topic("ledger", order=False)
    assert {await one.get_config("ORDER_TOPIC_CONFIG", "ledger") for one in links} == {""}
    assert {one.order for one in await admin.topic("ledger")} == {False}
    await admin.update_topic("ledger", order=True)
    await admin.delete_topic("ledger")
    assert {await one.get_config("ORDER_TOPIC_CONFIG", "ledger") for one in links} == {""}


async def test_a_broker_marks_topics_as_ordered_that_its_name_server_keeps_in_order(
    cluster: Cluster, admin: Admin
) -> None:
    for one in admin._open().namesrvs:
        await one.put_config("ORDER_TOPIC_CONFIG", "orders", "broker-a:4;broker-b:4")
    await admin.create_topic("another")  # registers

    async def marked() -> bool:
        return {one.order for one in await admin.topic("orders")} == {True}

    await until(marked)


async def test_a_lost_name_server_hinders_no_change_and_is_told_of_only_where_it_may_keep_something(
    cluster: Cluster, admin: Admin
) -> None:
    async with Admin("127.0.0.1:1;" + cluster.namesrv) as half:
        assert await half.update_topic("orders", write_queues=2) == ["broker-a", "broker-b"]
        with pytest.raises(BrokerUnavailable, match=r"^done, but the name server 127.0.0.1:1 could not be told: "):
            await half.delete_topic("orders")
    assert "orders" not in await admin.topics()


async def test_only_the_broker_that_a_first_send_reaches_makes_the_topic(cluster: Cluster, admin: Admin) -> None:
    async with cluster.producer("shop") as producer:
        result = await producer.send(Message("fresh", b"x"))
    (made,) = await admin.topic("fresh")
    assert (made.broker_name, made.write_queues, made.read_queues, made.perm) == (result.queue.broker_name, 4, 4, 6)

    async def routed() -> bool:
        answers = (await admin.routes("fresh")).values()
        return all(isinstance(one, list) and [at.broker_name for at in one] == [made.broker_name] for one in answers)

    await until(routed)


@pytest.mark.parametrize(("client", "broker", "queues"), [(4, 8, 4), (16, 8, 8), (2, 8, 2), (4, 3, 3)])
async def test_a_topic_made_on_first_use_has_the_smaller_of_both_queue_numbers(
    client: int, broker: int, queues: int
) -> None:
    async with (
        Cluster(time_scale=0.1, settings={"default_topic_queue_nums": broker}) as cluster,
        Admin(cluster.namesrv) as admin,
        cluster.producer("shop", default_topic_queue_nums=client) as producer,
    ):
        await producer.send(Message("fresh", b"x"))
        (made,) = await admin.topic("fresh")
        assert (made.write_queues, made.read_queues) == (queues, queues)


async def test_what_operators_did_is_in_rocketmqs_files_after_a_stop_and_a_start(tmp_path: Path) -> None:
    async with (
        Cluster(topics={"orders": 2, "gone": 2}, time_scale=0.1, directory=tmp_path) as cluster,
        Admin(cluster.namesrv) as admin,
        cluster.producer("shop") as producer,
    ):
        sent = await producer.send(Message("orders", b"x"))
        await admin.create_group("billing")
        await admin.create_group("former")
        await admin.reset_offsets("billing", "orders", to_end=True)
        await admin.reset_offsets("former", "orders", to_end=True)
        await admin.update_topic("orders", write_queues=1, perm=4)
        await admin.delete_topic("gone")
        await admin.forbid("billing", "refunds")
        await admin.delete_group("former")
    files = await asyncio.to_thread(config_files, tmp_path)
    topic = files["topics.json"]["topicConfigTable"]["orders"]
    assert (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"]) == (2, 1, 4)
    assert "gone" not in files["topics.json"]["topicConfigTable"]
    assert files["subscriptionGroup.json"]["forbiddenTable"] == {"billing": {"refunds": 4}}
    assert "former" not in files["subscriptionGroup.json"]["subscriptionGroupTable"]
    wanted = {str(number): int(number == sent.queue.queue_id) for number in range(2)}
    assert files["consumerOffset.json"]["offsetTable"] == {"orders@billing": wanted}


def config_files(directory: Path) -> dict[str, Any]:
    """What one broker keeps of topics, groups and offsets."""
    return {path.name: json.loads(path.read_text()) for path in directory.rglob("config/*.json")}
