"""Where operators send a group: members that are online follow, whatever they are at."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from dejamq import Admin, Code, ConsumeFrom, DejamqError, Message, MessageQueue, ReceivedMessage, RouteNotFound
from dejamq_lab import Cluster
from journalled import journalled

SENT = 6
"""Messages in each of the two queues of the topic."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(topics={"orders": 2}, time_scale=0.1) as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.namesrv) as admin:
        yield admin


async def send(cluster: Cluster, count: int = SENT) -> list[int]:
    """So many to each queue; the store times."""
    async with cluster.producer("p") as producer:
        queues = await producer.publish_queues("orders")
        sent = [await producer.send(Message("orders", b"x"), queue=queue) for _ in range(count) for queue in queues]
    return [one.store_timestamp_ms for one in sent]


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await done():
            await asyncio.sleep(0.01)


def consumer_of(cluster: Cluster, handler: Any, **settings: Any) -> Any:
    consumer = cluster.push_consumer("billing", consume_from=ConsumeFrom.FIRST_OFFSET, **settings)
    consumer.subscribe("orders", handler)
    return consumer


async def committed(admin: Admin) -> list[int]:
    return [one.committed for one in await admin.progress("billing", "orders")]


@pytest.mark.parametrize("settings", [{}, {"ordered": True}, {"graceful_handover": True}], ids=str)
async def test_a_consumer_that_is_online_goes_back_with_its_next_pull(
    cluster: Cluster, admin: Admin, settings: dict[str, Any]
) -> None:
    await send(cluster)
    got: list[tuple[int, int]] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append((message.queue.queue_id, message.queue_offset))

    async def all_done() -> bool:
        return await committed(admin) == [SENT, SENT]

    async with consumer_of(cluster, handler, **settings):
        await until(all_done)
        got.clear()
        moves = await admin.reset_offsets("billing", "orders", to_offset=4)
        assert [(one.before, one.after) for one in moves] == [(SENT, 4), (SENT, 4)]
        await until(all_done)
        await send(cluster, 1)

        async def more() -> bool:
            return await committed(admin) == [SENT + 1, SENT + 1]

        await until(more)
    assert sorted(got) == [(queue, offset) for queue in (0, 1) for offset in (4, 5, 6)]


async def test_what_is_in_a_handler_when_its_group_is_sent_on_is_not_committed_over_it(
    cluster: Cluster, admin: Admin
) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()
    got: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append(message.queue_offset)
        entered.set()
        await go_on.wait()

    await send(cluster)
    async with consumer_of(cluster, handler, max_concurrency=2):
        await asyncio.wait_for(entered.wait(), 20)
        assert {one.after for one in await admin.skip_offsets("billing", "orders")} == {SENT}

        async def followed() -> bool:
            return len([line for line in await drops(cluster) if line == "reset"]) == 2

        await until(followed)
        go_on.set()
        await send(cluster, 1)

        async def passed() -> bool:
            return await committed(admin) == [SENT + 1, SENT + 1]

        await until(passed)
    assert got.count(SENT) == 2
    assert max(got.count(offset) for offset in range(2, SENT)) <= 2, "at most what was queued for handlers already"


async def drops(cluster: Cluster) -> list[str]:
    """Why process queues ended, by the consumers' journals."""
    assert cluster.journal_dir is not None
    lines = await asyncio.to_thread(journalled, cluster.journal_dir, "PQ_DROP", "consumer-*")
    return [line["reason"] for line in lines]


@pytest.mark.parametrize("assigned", [False, True])
@pytest.mark.parametrize("to", [0, SENT])
async def test_a_lite_pull_consumer_follows_back_and_forth(
    cluster: Cluster, admin: Admin, to: int, assigned: bool
) -> None:
    await send(cluster)
    consumer = cluster.lite_pull_consumer("billing", consume_from=ConsumeFrom.FIRST_OFFSET, pull_batch_size=2)
    if assigned:
        consumer.assign([MessageQueue("orders", "broker-a", number) for number in range(2)])
    else:
        consumer.subscribe("orders")
    got: list[int] = []
    async with consumer, asyncio.timeout(20):
        while len(got) < 4:
            got += [message.queue_offset for message in await consumer.poll(100, 1)]
        await admin.reset_offsets("billing", "orders", to_offset=to)
        await send(cluster, 1)
        await until(lambda: _moved(cluster))
        got.clear()
        wanted = 2 * (SENT + 1 - to)
        while len(got) < wanted:
            got += [message.queue_offset for message in await consumer.poll(100, 10)]
        assert sorted(got) == sorted(2 * list(range(to, SENT + 1)))
        assert await consumer.poll(50) == []
    assert await committed(admin) == [SENT + 1, SENT + 1]


async def _moved(cluster: Cluster) -> bool:
    return (await drops(cluster)).count("reset") == 2


async def test_a_plan_moves_nothing_and_tells_what_a_reset_does(cluster: Cluster, admin: Admin) -> None:
    times = await send(cluster)
    await admin.create_group("billing")
    plan = await admin.plan_reset("billing", "orders", to_end=True)
    assert [(one.before, one.after, one.reason) for one in plan] == [(None, SENT, "the end")] * 2
    assert await admin.progress("billing") == []
    assert await admin.reset_offsets("billing", "orders", to_end=True) == plan
    (first, second) = [one.queue for one in plan]
    await admin.reset_offsets("billing", "orders", to_begin=True, queues=[second])
    assert await committed(admin) == [SENT, 0]
    stays, goes = await admin.plan_reset("billing", "orders", to_time_ms=max(times) + 1000)
    assert (stays.queue, stays.after, goes.after) == (first, SENT, 0)
    assert "needs force" in goes.reason
    forced = await admin.plan_reset("billing", "orders", to_time_ms=max(times) + 1000, force=True)
    assert [one.after for one in forced] == [SENT, SENT]
    back = await admin.reset_offsets("billing", "orders", to_time_ms=min(times) - 1000)
    assert [one.after for one in back] == [0, 0]


async def test_a_reset_that_cannot_be_is_refused_and_moves_nothing(cluster: Cluster, admin: Admin) -> None:
    with pytest.raises(RouteNotFound):
        await admin.reset_offsets("billing", "nowhere", to_begin=True)
    with pytest.raises(DejamqError) as unknown:
        await admin.reset_offsets("billing", "orders", to_begin=True)
    assert unknown.value.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
    await admin.create_group("billing")
    with pytest.raises(DejamqError, match="no offset to go on at"):
        await admin.reset_offsets("billing", "orders", to_offset=-1)
    with pytest.raises(DejamqError, match="queues 0 to 1"):
        await admin.reset_offsets("billing", "orders", to_begin=True, queues=[MessageQueue("orders", "broker-a", 7)])
    with pytest.raises(DejamqError, match="no queue of topic"):
        await admin.reset_offsets("billing", "orders", to_begin=True, queues=[MessageQueue("orders", "broker-x", 0)])
    with pytest.raises(DejamqError, match="either"):
        await admin.reset_offsets("billing", "orders", to_begin=True, to_end=True)
    assert await admin.progress("billing") == []


async def test_a_broker_that_does_not_know_the_group_is_named_and_no_other_broker_moves_anything() -> None:
    async with Cluster(brokers=2, topics={"orders": 1}) as cluster, Admin(cluster.namesrv) as admin:
        await send(cluster)
        await admin.update_group("billing", brokers=["broker-a"])
        await admin.update_group("auditing")
        await admin.reset_offsets("auditing", "orders", to_offset=1)
        at_a = MessageQueue("orders", "broker-a", 0)
        await admin.reset_offsets("billing", "orders", to_offset=2, queues=[at_a])
        for move in (
            admin.plan_reset("billing", "orders", to_end=True),
            admin.reset_offsets("billing", "orders", to_end=True),
            admin.skip_offsets("billing", "orders"),
            admin.plan_clone("auditing", "billing", "orders"),
            admin.clone_offsets("auditing", "billing", "orders"),
        ):
            with pytest.raises(DejamqError, match="'billing' is not known to broker-b, where topic 'orders' is") as why:
                await move
            assert why.value.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
            assert await committed(admin) == [2]
        await admin.update_group("billing", brokers=["broker-b"])
        assert [one.after for one in await admin.skip_offsets("billing", "orders")] == [SENT, SENT]
