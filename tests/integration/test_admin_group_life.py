"""Groups while their members are there: made, changed, held off, deleted; clashes; settings of a broker that runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from dejamq import (
    Admin,
    BrokerUnavailable,
    ConfigError,
    ConsumeFrom,
    DejamqError,
    Message,
    MessageModel,
    PushConsumer,
    ReceivedMessage,
)
from dejamq import sync as dejamq_sync
from dejamq_lab import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, topics={"orders": 2}, time_scale=0.1) as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.namesrv) as admin:
        yield admin


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await done():
            await asyncio.sleep(0.01)


def collecting(cluster: Cluster, group: str = "billing", **settings: Any) -> tuple[PushConsumer, list[bytes]]:
    got: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append(message.body)

    consumer = cluster.push_consumer(group, **({"consume_from": ConsumeFrom.FIRST_OFFSET} | settings))
    consumer.subscribe("orders", handler)
    return consumer, got


async def send(cluster: Cluster, body: bytes) -> None:
    """One to each queue."""
    async with cluster.producer("shop") as producer:
        for queue in await producer.publish_queues("orders"):
            await producer.send(Message("orders", body), queue=queue)


async def test_a_group_is_changed_in_one_field_and_every_field_is_told(cluster: Cluster, admin: Admin) -> None:
    await admin.create_group("billing", retry_max_times=3)
    assert await admin.update_group("billing", consume_broadcast_enable=False) == ["broker-a", "broker-b"]
    assert await admin.update_group("billing", brokers=["broker-b"], broker_id=1, consume_timeout_minute=5) == [
        "broker-b"
    ]
    at_a, at_b = [one for one in await admin.groups() if one.group == "billing"]
    assert (at_a.retry_max_times, at_a.consume_broadcast_enable, at_a.broker_id) == (3, False, 0)
    assert (at_b.retry_max_times, at_b.broker_id, at_b.consume_timeout_minute) == (3, 1, 5)
    assert at_b.which_broker_when_consume_slowly == 1
    with pytest.raises(ConfigError, match="no setting 'retry_max'"):
        await admin.update_group("billing", retry_max=3)
    with pytest.raises(ConfigError, match="settings of group 'billing'"):
        await admin.update_group("billing", retry_max_times="three")


async def test_a_deleted_group_takes_offsets_retries_and_dead_letters_along(cluster: Cluster, admin: Admin) -> None:
    await send(cluster, b"x")
    consumer, got = collecting(cluster)
    async with consumer:

        async def consumed() -> bool:
            return sum(one.committed for one in await admin.progress("billing", "orders")) == 4

        await until(consumed)
        assert {"%RETRY%billing"} <= set(await admin.topics())
    await admin.create_topic("%DLQ%billing", queues=1)
    assert await admin.delete_group("billing") == ["broker-a", "broker-b"]
    assert await admin.progress("billing") == []
    assert not {"%RETRY%billing", "%DLQ%billing"} & set(await admin.topics())
    assert [one for one in await admin.groups() if one.group == "billing"] == []
    assert await admin.delete_group("billing") == []
    again, got = collecting(cluster)
    async with again:

        async def from_the_beginning() -> bool:
            return len(got) >= 4

        await until(from_the_beginning)


async def test_a_deleted_group_leaves_no_dead_letters_while_a_name_server_is_away(
    cluster: Cluster, admin: Admin
) -> None:
    await admin.create_group("billing")
    for topic in ("%RETRY%billing", "%DLQ%billing"):
        await admin.create_topic(topic, queues=1)
    async with Admin("127.0.0.1:1;" + cluster.namesrv) as half:
        with pytest.raises(BrokerUnavailable, match="done, but the name server"):
            await half.delete_group("billing")
    assert not {"%RETRY%billing", "%DLQ%billing"} & set(await admin.topics())


async def test_offsets_stay_when_that_is_asked_for(cluster: Cluster, admin: Admin) -> None:
    await send(cluster, b"x")
    await admin.create_group("billing")
    await admin.skip_offsets("billing", "orders")
    await admin.delete_group("billing", remove_offsets=False)
    assert [one.committed for one in await admin.progress("billing")] == [1, 1, 1, 1]
    with pytest.raises(DejamqError, match="belongs to the broker itself"):
        await admin.delete_group("TOOLS_CONSUMER")


async def test_a_group_that_is_forbidden_a_topic_gets_nothing_of_it_until_it_may(
    cluster: Cluster, admin: Admin
) -> None:
    await admin.create_group("billing")
    assert await admin.forbid("billing", "orders") == ["broker-a", "broker-b"]
    assert {tuple(one.forbidden_topics) for one in await admin.groups() if one.group == "billing"} == {("orders",)}
    await send(cluster, b"x")
    consumer, got = collecting(cluster)
    other, theirs = collecting(cluster, "shipping")
    async with consumer, other:

        async def arrived() -> bool:
            return len(theirs) == 4

        await until(arrived)
        assert got == []
        await admin.forbid("billing", "orders", forbidden=False)

        async def mine() -> bool:
            return len(got) == 4

        await until(mine)
    with pytest.raises(DejamqError, match="not known"):
        await admin.forbid("nobody", "orders")


async def test_a_group_that_may_not_broadcast_gets_nothing_that_way(cluster: Cluster, admin: Admin) -> None:
    await admin.create_group("billing")
    await admin.update_group("billing", consume_broadcast_enable=False)
    await send(cluster, b"x")
    consumer, got = collecting(cluster, model=MessageModel.BROADCASTING)
    other, theirs = collecting(cluster, "shipping", model=MessageModel.BROADCASTING)
    async with consumer, other:

        async def arrived() -> bool:
            return len(theirs) == 4

        async def allowed() -> bool:
            return len(got) == 4

        await until(arrived)
        assert got == []
        await admin.update_group("billing", consume_broadcast_enable=True)
        await until(allowed)


async def test_one_client_id_of_two_processes_is_told_with_both_addresses_and_stays_known(
    cluster: Cluster, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    assert await admin.clashes() == []
    first, _ = collecting(cluster, client_id="same")
    second, _ = collecting(cluster, client_id="same")
    async with first, second:

        async def seen() -> bool:
            return [one.brokers for one in await admin.clashes()] == [["broker-a", "broker-b"]]

        await until(seen)
        (clash,) = await admin.clashes()
        assert (clash.role, clash.group, clash.client_id, clash.present) == ("consumer", "billing", "same", True)
        assert len(clash.boot_ids) == 2
        lines = [one for one in await admin.connections("billing") if one.client_id == "same"]
        assert {one.boot_id for one in lines} == set(clash.boot_ids)
        assert len(lines) == 4, "two processes, each with a connection to two brokers"
        assert {one.address for one in lines} == set(clash.addresses), "connections to two brokers may share a port"
        assert {one.language for one in lines} == {"PYTHON"}
        assert {tuple(one.subscriptions) for one in lines} == {("orders *", "%RETRY%billing *")}
        assert {one.message_model for one in lines} == {"CLUSTERING"}
    (over,) = await admin.clashes()
    assert not over.present
    assert caplog.text.count("client_id_clash") == 2, "once at each broker"


async def test_settings_change_while_a_broker_runs(cluster: Cluster, admin: Admin) -> None:
    in_force = await admin.update_settings("broker-a", {"autoCreateTopicEnable": "false"})
    assert in_force["auto_create_topic_enable"] == "False"
    assert (await admin.settings("broker-a"))["auto_create_topic_enable"] == "False"
    assert (await admin.settings("broker-b"))["auto_create_topic_enable"] == "True"
    async with cluster.producer("shop") as producer:
        sent = [await producer.send(Message("fresh", b"x")) for _ in range(4)]
    assert {one.queue.broker_name for one in sent} == {"broker-b"}
    with pytest.raises(DejamqError, match="is read at the start"):
        await admin.update_settings("broker-a", {"store_directory": "elsewhere"})
    with pytest.raises(ConfigError, match="broker-x"):
        await admin.update_settings("broker-x", {"autoCreateTopicEnable": "false"})


async def test_groups_are_made_on_first_use_only_where_that_is_on(cluster: Cluster, admin: Admin) -> None:
    for name in ("broker-a", "broker-b"):
        await admin.update_settings(name, {"auto_create_subscription_group": "false"})
    await send(cluster, b"x")
    consumer, got = collecting(cluster)
    async with consumer:
        assert await admin.groups() == []
        await admin.create_group("billing")

        async def made() -> bool:
            return len(got) == 4

        await until(made)


async def test_a_broker_that_may_not_be_written_any_more_is_left_by_producers_and_read_on(
    cluster: Cluster, admin: Admin
) -> None:
    await send(cluster, b"x")
    await admin.update_settings("broker-a", {"broker_permission": "4"})
    async with cluster.producer("shop", poll_name_server_interval_ms=200) as producer:

        async def left() -> bool:
            return {queue.broker_name for queue in await producer.publish_queues("orders")} == {"broker-b"}

        await until(left)
    consumer, got = collecting(cluster)
    async with consumer:

        async def read() -> bool:
            return len(got) == 4

        await until(read)
        await admin.update_settings("broker-a", {"brokerPermission": "6"})
    async with cluster.producer("shop", poll_name_server_interval_ms=200) as producer:

        async def back() -> bool:
            return len({queue.broker_name for queue in await producer.publish_queues("orders")}) == 2

        await until(back)


async def test_the_blocking_admin_leads_a_topic_and_a_group_through_their_lives(cluster: Cluster) -> None:
    await send(cluster, b"x")

    def live() -> list[Any]:
        with dejamq_sync.Admin(cluster.namesrv) as admin:
            admin.create_topic("ledger", queues=1)
            admin.update_topic("ledger", write_queues=2)
            admin.create_group("billing")
            admin.update_group("billing", retry_max_times=2)
            plan = admin.plan_reset("billing", "orders", to_end=True)
            assert admin.reset_offsets("billing", "orders", to_end=True) == plan
            admin.create_group("shipping")
            assert admin.plan_clone("billing", "shipping", "orders") == admin.clone_offsets(
                "billing", "shipping", "orders"
            )
            admin.skip_offsets("shipping", "orders")
            admin.forbid("shipping", "ledger")
            admin.update_settings("broker-a", {"refuse_lower_offsets": "true"})
            told = [admin.delete_topic("ledger"), admin.delete_group("shipping"), admin.clashes()]
            return [*told, [one.after for one in plan]]

    both = ["broker-a", "broker-b"]
    assert await asyncio.to_thread(live) == [both, both, [], [1, 1, 1, 1]]
