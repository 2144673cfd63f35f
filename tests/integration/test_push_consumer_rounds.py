"""Starting and stopping many times, several loops in one process, and clients that were closed."""

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import Servers, held, servers, until, until_no_more_is_held_than
from dejamq import Admin, ClientClosed, ConsumeFrom, Message, MessageModel, PushConsumer, ReceivedMessage
from lite_cluster import poll_count, subscribed

ROUNDS = 200
WARM_UP = 10  # gRPC makes its threads and descriptors once
OTHERS = 8  # threads and descriptors that tests before this one in its process may still be opening; rounds are 200


async def one_round(here: Servers, number: int) -> None:
    """A producer and a consumer in order or not, broadcasting or not, that is closed at different moments.

    Every fourth is closed as soon as it has started, the others when they have got what was just sent; every fifth
    has handlers in threads. Every eighth is followed by a lite pull consumer.
    """
    got = threading.Event()

    async def handler(message: ReceivedMessage) -> None:
        plain(message)

    def plain(message: ReceivedMessage) -> None:
        if int(message.body) == number:
            got.set()

    # a member that broadcasts and has no file yet begins at the end that it finds, which may be behind this message
    first = {"model": MessageModel.BROADCASTING, "consume_from": ConsumeFrom.FIRST_OFFSET} if number % 7 == 6 else {}
    consumer = here.consumer(f"g{number % 3}", ordered=number % 3 == 2, max_concurrency=3, **first)
    consumer.subscribe("orders", plain if number % 5 == 4 else handler)
    async with here.producer() as producer, consumer:
        await producer.send(Message("orders", b"%d" % number))
        if number % 4:
            await until(got.is_set)
    if number % 8 == 0:
        async with subscribed(here, "lite") as pulling:
            await poll_count(pulling, 1)


async def test_two_hundred_rounds_leave_no_task_thread_file_or_socket_behind(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        for number in range(WARM_UP):
            await one_round(here, number)
        before = held()
        for number in range(WARM_UP, WARM_UP + ROUNDS):
            await one_round(here, number)
        await until_no_more_is_held_than(before, OTHERS)


async def test_more_queues_than_a_connection_carries_calls_are_opened_in_one_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a new group begins is a question of its own for each queue, and a server reads a thousand calls at once."""
    topics = [f"wide-{number}" for number in range(6)]
    async with servers(tmp_path) as here, Admin(here.namesrv.address) as admin:
        for topic in topics:
            await admin.create_topic(topic, queues=200)
        consumer = here.consumer(rebalance_wait_interval_ms=600_000, consumer_progress_timeout_ms=50_000)
        for topic in topics:
            consumer.subscribe(topic, _ignored)
        async with consumer:
            await until(lambda: len(consumer.assignment) == 1200, 50)
    assert not [record.getMessage() for record in caplog.records if record.name == "dejamq.clients.consumer"]


async def _ignored(message: ReceivedMessage) -> None: ...


async def test_members_in_loops_of_their_own_share_a_group(tmp_path: Path) -> None:
    """The servers have a loop, and each member another, in one process."""
    sent = {str(number) for number in range(200)}
    seen: list[tuple[int, str]] = []
    shared: list[int] = []
    first_has_all, done = threading.Event(), threading.Event()

    async def member(name: int, here: Servers) -> None:
        async def handler(message: ReceivedMessage) -> None:
            seen.append((name, message.body.decode()))
            if {body for _, body in tuple(seen)} >= sent:
                done.set()

        consumer = here.consumer()
        consumer.subscribe("orders", handler)
        if name:
            await until(first_has_all.is_set)
        async with consumer:
            if not name:  # two of its four queues are also what it has on the way to them
                await until(lambda: len(consumer.assignment) == 4)
                first_has_all.set()
            await until(lambda: len(consumer.assignment) == 2)
            shared.append(name)
            await until(done.is_set)

    def alone(name: int, here: Servers) -> None:
        asyncio.run(member(name, here))

    async with servers(tmp_path) as here:
        await here.send("warm")
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(2) as pool:
            members = [loop.run_in_executor(pool, alone, name, here) for name in range(2)]
            await until(lambda: len(shared) == 2 or any(one.done() for one in members))
            await here.send(*sent)
            await asyncio.gather(*members)
    bodies = [body for _, body in seen if body != "warm"]
    assert sorted(bodies) == sorted(sent)
    assert {name for name, _ in seen} == {0, 1}


async def leave_a_producer(here: Servers) -> None:
    producer = here.producer()
    await producer.start()
    producer.submit(Message("orders", b"under way"))


async def leave_a_lite_pull_consumer(here: Servers) -> None:
    consumer = subscribed(here)
    await consumer.start()
    await poll_count(consumer, 1)


async def leave_a_push_consumer(here: Servers, *, ordered: bool = False) -> None:
    entered = asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        entered.set()
        await asyncio.sleep(0.1)

    consumer = here.consumer(ordered=ordered)
    consumer.subscribe("orders", handler)
    await consumer.start()
    await entered.wait()


LEFT = [
    leave_a_producer,
    leave_a_lite_pull_consumer,
    leave_a_push_consumer,
    partial(leave_a_push_consumer, ordered=True),
]


@pytest.mark.filterwarnings("ignore:.*was not closed:ResourceWarning")  # which is what the program is told
@pytest.mark.parametrize("leave", LEFT, ids=["producer", "lite pull", "concurrent", "in order"])
async def test_a_loop_whose_program_forgot_to_close_its_client_still_ends(
    tmp_path: Path, leave: Callable[[Servers], Coroutine[Any, Any, None]]
) -> None:
    """All its tasks are cancelled at once, and none of them may start others or refuse to end."""
    async with servers(tmp_path) as here:
        await here.send("x", "y", "z")
        async with asyncio.timeout(15):
            await asyncio.to_thread(asyncio.run, leave(here))
        gc.collect()  # what pytest would complain about: tasks that were destroyed while they waited


def subscribe(consumer: PushConsumer) -> None:
    consumer.subscribe("invoices", print)


def subscribe_batch(consumer: PushConsumer) -> None:
    consumer.subscribe_batch("invoices", print, size=2)


USES: list[Callable[[PushConsumer], object]] = [
    subscribe, subscribe_batch, lambda consumer: consumer.unsubscribe("orders"), PushConsumer.suspend,
    PushConsumer.resume,
]  # fmt: skip


@pytest.mark.parametrize("ran", [False, True])
async def test_a_closed_consumer_refuses_every_use_at_once(tmp_path: Path, ran: bool) -> None:
    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = here.consumer()
        consumer.subscribe("orders", print)
        if ran:
            await consumer.start()
        await consumer.close()
        for use in USES:
            with pytest.raises(ClientClosed, match="closed; make a new one"):
                use(consumer)
        for waiting in (consumer.start, consumer.wait_assigned, consumer.run_until_stopped):
            with pytest.raises(ClientClosed, match="closed; make a new one"):
                await waiting()
        await consumer.close()
