"""An operator looks at running clients through their brokers, and gives one message to one member's handler."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import QUICK, Servers, servers, until
from dejamq import (
    Admin,
    Code,
    ConsumeFrom,
    DeadLetter,
    DejamqError,
    LitePullConsumer,
    Message,
    OrderedStatus,
    ReceivedMessage,
    RetryLater,
)
from dejamq import sync as dejamq_sync
from dejamq.admin.running import DirectOutcome

Handle = Callable[[ReceivedMessage], Awaitable[Any]]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Servers]:
    async with servers(tmp_path) as site:
        yield site


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Servers]:
    """Waits a second for clients."""
    async with servers(tmp_path, client_answer_timeout_ms=1_000) as hasty:
        yield hasty


@pytest.fixture
async def admin(site: Servers) -> AsyncIterator[Admin]:
    async with Admin(site.namesrv.address) as admin:
        yield admin


async def test_a_push_consumer_tells_what_it_is_and_what_it_holds(site: Servers, admin: Admin) -> None:
    await site.send(*"abc")
    waiting = asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        await waiting.wait()

    consumer = site.consumer(consume_from=ConsumeFrom.FIRST_OFFSET, max_concurrency=2)
    consumer.subscribe("orders", handler, tags="*")
    async with consumer:
        await until(lambda: sum(one.cached_msg_count for one in consumer.statistics().queues.values()) == 3)
        await until(lambda: sum(one.in_flight for one in consumer.statistics().queues.values()) == 2)
        info = await admin.running_info("g", consumer.client_id)
        waiting.set()
        await until(lambda: sum(one.cached_msg_count for one in consumer.statistics().queues.values()) == 0)
        later = await admin.running_info("g", consumer.client_id)
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "2"
    assert info.properties["PROP_NAMESERVER_ADDR"] == site.namesrv.address
    assert info.settings["broker_suspend_max_time_ms"] == str(QUICK["broker_suspend_max_time_ms"])
    assert {one.topic for one in info.subscriptions} == {"orders", "%RETRY%g"}
    mine = [one for one in info.queues if one.queue.topic == "orders"]
    assert [one.queue for one in mine] == sorted(one.queue for one in mine)
    assert (sum(one.cached_messages for one in mine), sum(one.in_flight for one in mine)) == (3, 2)
    held = next(one for one in mine if one.cached_messages)
    assert (held.commit_offset, held.min_cached_offset) == (0, 0)
    assert held.last_pull_ms > 0
    assert (held.last_consume_ms, held.dropped) == (0, False)
    assert info.stacks == ""
    done = next(one for one in later.queues if one.queue == held.queue)
    assert (done.min_cached_offset, done.cached_messages, done.lag) == (-1, 0, 0)
    assert done.last_consume_ms >= held.last_pull_ms
    assert later.statuses["orders"].consume_ok_tps > 0


async def test_stacks_tell_where_the_tasks_of_a_client_wait(site: Servers, admin: Admin) -> None:
    await site.send("a")
    entered, waiting = asyncio.Event(), asyncio.Event()

    async def a_handler_that_waits(message: ReceivedMessage) -> None:
        entered.set()
        await waiting.wait()

    consumer = site.consumer(consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("orders", a_handler_that_waits)
    async with consumer:
        await entered.wait()
        told = await admin.running_info("g", consumer.client_id, stacks=True)
        waiting.set()
    assert "a_handler_that_waits" in told.stacks
    assert "thread " in told.stacks


async def test_a_lite_pull_consumer_tells_its_queues_and_a_producer_what_waits(site: Servers, admin: Admin) -> None:
    await site.send("a")
    consumer = LitePullConsumer("lite", namesrv=site.namesrv.address, rebalance_min_interval_ms=50)
    consumer.subscribe("orders")
    async with consumer, site.producer() as producer:
        await producer.send(Message("orders", b"b"))
        await consumer.wait_assigned()
        info = await admin.running_info("lite", consumer.client_id)
        (sender,) = await admin.connections("p")
        sending = await admin.running_info("p", sender.client_id)
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
    assert {one.queue.topic for one in info.queues} >= {"orders"}
    assert sending.state == {"pending_bytes": "0", "pending_messages": "0"}
    assert sending.queues == []


async def test_the_blocking_admin_asks_too(site: Servers) -> None:
    await site.send("a")
    consumer = site.consumer()
    consumer.subscribe("orders", _ignore)
    async with consumer:

        def ask() -> str:
            with dejamq_sync.Admin(site.namesrv.address) as admin:
                return admin.running_info("g", consumer.client_id).client_id

        assert await asyncio.to_thread(ask) == consumer.client_id


async def test_a_client_that_is_not_in_the_group_is_not_online(site: Servers, admin: Admin) -> None:
    await site.send("a")
    consumer = site.consumer()
    consumer.subscribe("orders", _ignore)
    async with consumer:
        for group, client_id in (("g", "nobody"), ("another", consumer.client_id)):
            with pytest.raises(DejamqError) as refused:
                await admin.running_info(group, client_id)
            assert (refused.value.code, refused.value.definite) == (Code.CONSUMER_NOT_ONLINE, True)


FROZEN = """
import asyncio, sys
from dejamq import PushConsumer
async def main():
    consumer = PushConsumer("g", namesrv=sys.argv[1])
    consumer.subscribe("orders", lambda message: None)
    async with consumer:
        await consumer.wait_assigned()
        print(consumer.client_id, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.process
async def test_a_frozen_client_is_not_waited_for(hasty: Servers) -> None:
    site = hasty
    async with Admin(site.namesrv.address) as admin:
        await site.send("a")
        command = sys.executable, "-c", FROZEN, site.namesrv.address
        frozen = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            assert frozen.stdout is not None
            client_id = (await frozen.stdout.readline()).decode().strip()
            frozen.send_signal(signal.SIGSTOP)
            with pytest.raises(DejamqError) as late:
                await admin.running_info("g", client_id)
            assert (late.value.code, late.value.definite) == (Code.CONSUME_MSG_TIMEOUT, False)
            assert site.broker is not None
            assert len(site.broker.domain.members.commands) == 0
        finally:
            frozen.kill()
            await frozen.wait()


# a message for one member


async def test_a_message_is_handled_directly_and_the_journal_says_so(site: Servers, admin: Admin) -> None:
    got: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append(f"{message.body.decode()} of {message.group}")

    consumer = site.consumer(consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("orders", handler)
    async with consumer:
        await site.send("paid")
        await until(lambda: got == ["paid of g"])
        before = await until_committed(site, admin)
        (line,) = site.lines("DELIVER")
        message_id = (await admin.messages_by_key("orders", line["unique_keys"][0], unique=True))[0].offset_message_id
        result = await admin.consume_directly("g", consumer.client_id, message_id)
        await asyncio.sleep(0)
        assert await until_committed(site, admin) == before
    assert (result.outcome, result.remark) == (DirectOutcome.SUCCESS, "")
    assert got == ["paid of g"] * 2
    _, direct = site.lines("DELIVER")
    assert (direct["kind"], direct["pq_id"], direct["unique_keys"]) == ("direct", 0, line["unique_keys"])
    assert site.lines("RESULT")[-1]["delivery_ids"] == direct["delivery_ids"]


async def until_committed(site: Servers, admin: Admin) -> list[int]:
    """The group's offsets once they are at the ends of the queues."""
    async with asyncio.timeout(30):
        while True:
            progress = await admin.progress("g", "orders")
            if progress and not any(one.lag for one in progress):
                return [one.committed for one in progress]
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("answer", "ordered", "outcome", "remark"),
    [
        (RetryLater(), False, "LATER", ""),
        (DeadLetter("broken"), False, "LATER", "dead letter: broken"),
        (ValueError("no such order"), False, "THROW_EXCEPTION", "ValueError: no such order"),
        (SystemExit("no such order"), False, "THROW_EXCEPTION", "SystemExit: no such order"),
        (asyncio.CancelledError("a wait"), True, "THROW_EXCEPTION", "CancelledError: a wait"),
        ("yes", False, "LATER", "returned 'yes'"),
        (None, True, "SUCCESS", ""),
        (OrderedStatus.COMMIT, True, "COMMIT", ""),
        (OrderedStatus.ROLLBACK, True, "ROLLBACK", ""),
    ],
)
async def test_what_becomes_of_it_is_told_and_changes_nothing(
    site: Servers, admin: Admin, answer: object, ordered: bool, outcome: str, remark: str
) -> None:
    async def handler(message: ReceivedMessage) -> object:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    await site.send("a")
    consumer = site.consumer(ordered=ordered, auto_commit=not ordered)
    consumer.subscribe("orders", handler, tags="no-message-has-this")
    async with consumer:
        await consumer.wait_assigned()
        result = await admin.consume_directly("g", consumer.client_id, await an_id(site, admin))
        assert result.outcome == outcome
        assert remark in result.remark
        assert bool(remark) == bool(result.remark)
    assert [line["kind"] for line in site.lines("DELIVER")] == ["direct"]
    assert site.lines("SENDBACK") == []


async def test_a_batch_handler_gets_a_list_and_a_plain_one_a_thread(site: Servers, admin: Admin) -> None:
    got: list[list[bytes]] = []
    await site.send("a")
    consumer = site.consumer()
    consumer.subscribe_batch("orders", lambda messages: got.append([one.body for one in messages]), size=10, tags="no")
    async with consumer:
        result = await admin.consume_directly("g", consumer.client_id, await an_id(site, admin))
    assert (result.outcome, got) == ("SUCCESS", [[b"a"]])


async def test_what_cannot_be_consumed_directly_is_refused_in_words(site: Servers, admin: Admin) -> None:
    await site.send("a")
    message_id = await an_id(site, admin)
    push, lite = site.consumer(), LitePullConsumer("lite", namesrv=site.namesrv.address, rebalance_min_interval_ms=50)
    await site.send("b", topic="bills")
    push.subscribe("bills", _ignore, tags="no")
    lite.subscribe("orders")
    async with push, lite:
        await lite.wait_assigned()
        with pytest.raises(DejamqError, match="nothing handles topic 'orders'"):
            await admin.consume_directly("g", push.client_id, message_id)
        with pytest.raises(DejamqError, match="has no handler for group 'lite'"):
            await admin.consume_directly("lite", lite.client_id, message_id)
        with pytest.raises(DejamqError) as unknown:
            await admin.consume_directly("g", push.client_id, "0" * 32)
        assert unknown.value.code == Code.QUERY_NOT_FOUND
    assert site.lines("DELIVER") == []


async def test_a_handler_that_takes_too_long_is_not_waited_for(hasty: Servers) -> None:
    site = hasty
    async with Admin(site.namesrv.address) as admin:
        waiting = asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            await waiting.wait()

        await site.send("a")
        consumer = site.consumer()
        consumer.subscribe("orders", handler, tags="no-message-has-this")
        async with consumer:
            await consumer.wait_assigned()
            with pytest.raises(DejamqError) as late:
                await admin.consume_directly("g", consumer.client_id, await an_id(site, admin))
            assert late.value.code == Code.CONSUME_MSG_TIMEOUT
            waiting.set()
            await until(lambda: len(site.lines("RESULT")) == 1)


async def an_id(site: Servers, admin: Admin) -> str:
    """The offset message id of the one message that there is."""
    for topic in await admin.topic("orders"):
        for queue_id in range(topic.read_queues):
            async for message in admin.read(dejamq_sync.MessageQueue("orders", topic.broker_name, queue_id)):
                return message.offset_message_id
    raise AssertionError("nothing was sent")


async def _ignore(message: ReceivedMessage) -> None:
    """Consumed."""
