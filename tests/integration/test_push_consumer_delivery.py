import asyncio
from pathlib import Path

import pytest
from consumer_cluster import SLOW, servers, until
from dejamq import (
    BrokerUnavailable,
    ConsumeFrom,
    DeadLetter,
    DejamqError,
    Message,
    PushConsumer,
    ReceivedMessage,
    RetryLater,
)

pytestmark = pytest.mark.usefixtures("transport")


async def test_every_message_sent_before_and_after_the_start_is_delivered_once(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async with servers(tmp_path) as here:
        await here.send(*(f"early-{number}" for number in range(100)))
        consumer = here.consumer()
        consumer.subscribe("orders", handler)
        async with consumer:
            assert len(await consumer.wait_assigned()) == 4
            await until(lambda: len(seen) == 100)
            await here.send(*(f"late-{number}" for number in range(100)))
            await until(lambda: len(seen) == 200)
    assert len(set(seen)) == 200


async def test_a_message_shows_what_was_sent(tmp_path: Path) -> None:
    seen: list[ReceivedMessage] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message)

    async with servers(tmp_path) as here, here.producer() as producer:
        sent = Message("orders", b"paid", tags="paid", keys=["order-17"], properties={"shop": "7"}, flag=3)
        result = await producer.send(sent)
        consumer = here.consumer()
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: seen)
            (message,) = seen
            assert (message.body, message.tags, message.keys, message.flag) == (b"paid", "paid", ["order-17"], 3)
            assert message.properties["shop"] == "7"
            assert (message.message_id, message.offset_message_id) == (sent.message_id, result.offset_message_id)
            assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)
            assert message.delivery_id == f"{consumer.boot_id}-1"


async def test_only_messages_with_the_wanted_tags_arrive(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async with servers(tmp_path) as here:
        for tags in ("a", "b", "c"):
            await here.send(f"{tags}-1", f"{tags}-2", tags=tags)
        consumer = here.consumer()
        consumer.subscribe("orders", handler, tags="a || c")
        async with consumer:
            await until(lambda: len(seen) == 4)
            await here.send("b-3", tags="b")
            await here.send("a-3", tags="a")
            await until(lambda: "a-3" in seen)
    assert sorted(seen) == ["a-1", "a-2", "a-3", "c-1", "c-2"]


async def test_a_failed_message_comes_again_later_with_its_tries_counted(tmp_path: Path) -> None:
    seen: list[tuple[str, str, int, str]] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append((message.topic, message.message_id, message.reconsume_times, message.queue.topic))
        if message.reconsume_times == 0:
            raise ValueError("not yet")
        if message.reconsume_times == 1:
            raise RetryLater(delay_level=1)

    async with servers(tmp_path, schedule_poll_interval_ms=20) as here:
        consumer = here.consumer()
        consumer.subscribe("orders", handler)
        async with consumer:
            await here.send("x")
            await until(lambda: len(seen) == 3)
        assert [(topic, times, queue) for topic, _, times, queue in seen] == [
            ("orders", 0, "orders"), ("orders", 1, "%RETRY%g"), ("orders", 2, "%RETRY%g")
        ]  # fmt: skip
        assert len({message_id for _, message_id, _, _ in seen}) == 1
        assert [line["outcome"] for line in here.lines("SENDBACK")] == ["ok", "ok"]
        assert [line.get("reconsume_times") for line in here.lines("DELIVER")] == [None, [1], [2]]


async def test_a_dead_letter_goes_to_the_groups_dlq_at_once(tmp_path: Path) -> None:
    async def refuse(message: ReceivedMessage) -> None:
        raise DeadLetter("broken")

    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = here.consumer()
        consumer.subscribe("orders", refuse)
        async with consumer:
            await until(lambda: any(line["topics"] == ["%DLQ%g"] for line in here.server_lines("APPEND")))
    assert [line["outcome"] for line in here.lines("SENDBACK")] == ["ok"]


async def test_a_slow_handler_holds_no_more_than_the_limits(tmp_path: Path) -> None:
    go_on, seen, most = asyncio.Event(), 0, 0

    async def handler(message: ReceivedMessage) -> None:
        nonlocal seen
        await go_on.wait()
        seen += 1

    def look() -> bool:
        nonlocal most
        owned = consumer.inspect().rebalancer.assignment
        most = max((len(one.process_queue) for one in owned), default=0)
        return most > 20

    async with servers(tmp_path) as here:
        await here.send(*(f"{number}" for number in range(600)))
        consumer = here.consumer(pull_batch_size=10, pull_threshold_for_queue=20)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(look)
            await asyncio.sleep(0.2)
            look()
            assert 20 < most <= 30
            go_on.set()
            await until(lambda: seen == 600)


def _pulls_under_way(consumer: PushConsumer) -> int:
    return sum(link.waiting_pulls for link in consumer.inspect().instance.inspect().links.values())


async def test_a_suspended_consumer_gets_nothing_new_until_it_resumes(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async with servers(tmp_path) as here:
        await here.send("first")
        consumer = here.consumer(broker_suspend_max_time_ms=100)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: seen == ["first"])
            consumer.suspend()
            await until(lambda: not _pulls_under_way(consumer))
            await here.send("second")
            await asyncio.sleep(0.2)
            assert seen == ["first"]
            consumer.resume()
            await until(lambda: seen == ["first", "second"])


async def test_topics_come_and_go_while_it_runs(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async with servers(tmp_path) as here:
        await here.send("o1")
        await here.send("i1", topic="invoices")
        consumer = here.consumer()
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: seen == ["o1"])
            consumer.subscribe("invoices", handler)
            await consumer.wait_assigned()
            await until(lambda: seen == ["o1", "i1"])
            consumer.unsubscribe("orders")
            await until(lambda: {queue.topic for queue in consumer.assignment} == {"invoices"})


async def test_a_topic_that_is_created_after_the_start_is_found(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async with servers(tmp_path) as here:
        consumer = here.consumer()
        consumer.subscribe("orders", handler)
        async with consumer:
            with pytest.raises(TimeoutError, match=r"no route of orders is known: does the topic exist") as late:
                await consumer.wait_assigned(200)
            assert isinstance(late.value, DejamqError)
            await here.send("x")
            await until(lambda: seen == ["x"])


async def test_where_a_new_group_begins_in_an_old_queue_is_its_choice(tmp_path: Path) -> None:
    """A queue whose first message is still in memory is read from its beginning whatever the choice, as in RocketMQ."""

    async def handler(message: ReceivedMessage) -> None: ...

    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = here.consumer(consume_from=ConsumeFrom.LAST_OFFSET)
        consumer.subscribe("orders", handler)
        async with consumer:
            await consumer.wait_assigned()
    opened = [line for line in here.lines("PQ_OPEN") if line["topic"] == "orders"]
    assert sorted((line["start_offset"], line["source"]) for line in opened) == [(0, "broker")] + [(0, "last")] * 3


async def test_without_a_name_server_start_says_what_to_do() -> None:
    consumer = PushConsumer("g", namesrv="127.0.0.1:1", mq_client_api_timeout_ms=500)
    consumer.subscribe("orders", lambda message: None)
    with pytest.raises(BrokerUnavailable, match="name server"):
        await consumer.start()
    await consumer.close()


async def test_a_message_in_a_quiet_queue_arrives_by_long_polling(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async with servers(tmp_path) as here:
        await here.send("first")
        consumer = here.consumer(**SLOW | {"broker_suspend_max_time_ms": 600_000})
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: seen == ["first"])
            await here.send("second")
            await until(lambda: seen == ["first", "second"])
