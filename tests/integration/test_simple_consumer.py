"""What a SimpleConsumer does, against a real broker."""

import asyncio
from pathlib import Path

import dejamq.sync
import pytest
from consumer_cluster import servers, until
from dejamq import Admin, ClientClosed, Code, ConfigError, DejamqError, Message, SimpleConsumer
from dejamq_lab import Cluster
from pop_cluster import bodies, nothing_comes, received, simple


async def test_an_acknowledged_message_does_not_come_again_and_another_does_in_the_retry_topic(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("kept", "lost")
        async with simple(here) as consumer:
            first = await received(consumer, lambda found: len(found) == 2, invisible_ms=3_000)
            await consumer.ack(*(message for message in first if message.body == b"kept"))
            (again,) = await received(consumer, len)
            assert (again.body, again.topic, again.reconsume_times) == (b"lost", "orders", 1)
            assert again.queue.topic == "%RETRY%g_orders"
            assert again.message_id == next(message.message_id for message in first if message.body == b"lost")
            await consumer.ack(again)
            assert await nothing_comes(consumer)


async def test_a_waiting_receive_gets_what_is_sent_meanwhile(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("first")
        async with simple(here) as consumer:
            await received(consumer, len, ack=True)
            waiting = asyncio.ensure_future(consumer.receive(timeout_ms=15_000))
            await asyncio.sleep(0.1)
            await here.send("second")
            assert bodies(await waiting) == ["second"]


async def test_members_of_a_group_never_have_the_same_message_at_the_same_time(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        wanted = [f"{number:03}" for number in range(200)]
        await here.send(*wanted)
        async with simple(here) as one, simple(here) as two:
            asked = (each.receive(timeout_ms=3_000) for each in (one, two) for _ in range(5))
            found = await asyncio.gather(*asked)
            assert bodies([message for messages in found for message in messages]) == wanted


async def test_a_message_in_flight_survives_a_restart_of_the_broker_and_its_handle_stays_good(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("acknowledged", "in flight", "late")
        async with simple(here) as consumer:
            messages = {message.body: message for message in await received(consumer, lambda found: len(found) == 3)}
            await consumer.ack(messages[b"acknowledged"])
            await consumer.change_invisible(messages[b"late"], 2_000)
            await here.stop_broker()
            await here.start_broker()
            await consumer.ack(messages[b"in flight"])
            (again,) = await received(consumer, len, ack=True)
            assert again.body == b"late"
            assert await nothing_comes(consumer)


async def test_a_changed_invisible_time_of_0_gives_the_message_to_another_member_at_once(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("x")
        async with simple(here) as one, simple(here) as two:
            (message,) = await received(one, len)
            waiting = asyncio.ensure_future(two.receive(timeout_ms=15_000))
            await one.change_invisible(message, 0)
            (again,) = await waiting
            assert (again.message_id, again.reconsume_times) == (message.message_id, 1)
            with pytest.raises(DejamqError) as refused:
                await one.ack(message)
            assert refused.value.code == Code.NO_MESSAGE


async def test_iteration_renews_the_message_in_hand_until_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejamq.simple.consumer.ITERATED_INVISIBLE_MS", 600)
    async with servers(tmp_path) as here:
        await here.send("slow")
        async with simple(here) as consumer:
            async for message in consumer:
                await until(lambda: sum(line["how"] == "renewed" for line in here.server_lines("CHANGE")) >= 2)
                await consumer.ack(message)
                break
            assert await nothing_comes(consumer, 1_500)
        assert not here.server_lines("REVIVE")


async def test_acknowledging_twice_is_no_error(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("x")
        async with simple(here) as consumer:
            (message,) = await received(consumer, len)
            await consumer.ack(message)
            await consumer.ack(message)
        await until(lambda: len(here.server_lines("ACK")) == 2)
        assert [line.get("outcome", "ok") for line in here.server_lines("ACK")] == ["ok", "again"]


async def test_messages_of_several_brokers_and_topics_come_to_one_receive_after_the_other() -> None:
    async with Cluster(brokers=2, topics={"orders": 2, "refunds": 2}) as cluster:
        async with cluster.producer("p") as producer:
            for topic in ("orders", "refunds"):
                for queue in await producer.publish_queues(topic):
                    await producer.send(Message(topic, f"{queue.broker_name} {topic}".encode()), queue=queue)
        consumer = SimpleConsumer("g", namesrv=cluster.namesrv)
        consumer.subscribe("orders")
        consumer.subscribe("refunds")
        async with consumer:
            found = await received(consumer, lambda found: len(found) >= 8, ack=True)
            wanted = [f"{broker} {topic}" for broker in ("broker-a", "broker-b") for topic in ("orders", "refunds")] * 2
            assert bodies(found) == sorted(wanted)
            waiting = asyncio.ensure_future(consumer.receive(timeout_ms=20_000))
            async with cluster.producer("p") as producer:
                await producer.send(Message("refunds", b"late"))
            assert bodies(await waiting) == ["late"]


async def test_only_messages_with_the_tags_or_properties_come(tmp_path: Path) -> None:
    async with servers(tmp_path, enable_property_filter=True) as here:
        await here.send("yes", tags="a", properties={"size": "3"})
        await here.send("no", tags="b", properties={"size": "9"})
        async with simple(here, topic="") as by_tag:
            by_tag.subscribe("orders", "a || c")
            assert bodies(await received(by_tag, len, ack=True)) == ["yes"]
            assert await nothing_comes(by_tag)
        async with simple(here, "other", topic="") as by_size:
            by_size.subscribe("orders", sql="size > 5")
            assert bodies(await received(by_size, len, ack=True)) == ["no"]
            assert await nothing_comes(by_size)


async def test_closing_ends_an_iteration_and_gives_back_what_it_had_fetched(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("a", "b", "c")
        consumer = simple(here)
        seen = []
        async with consumer, simple(here) as other:
            async for message in consumer:
                seen.append(message)
                await consumer.ack(message)
                await consumer.close()
            again = await received(other, lambda found: len(found) >= 2, ack=True)
            assert bodies([*seen, *again]) == ["a", "b", "c"]
            with pytest.raises(ClientClosed):
                await consumer.receive()


async def test_a_receive_that_waits_is_ended_by_closing(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("a")
        async with simple(here) as consumer:
            await received(consumer, len, ack=True)
            waiting = asyncio.ensure_future(consumer.receive(timeout_ms=60_000))
            await asyncio.sleep(0.1)
            await consumer.close()
            with pytest.raises(ClientClosed):
                await waiting


@pytest.mark.parametrize("wrong", [{"max_messages": 0}, {"max_messages": 1025}, {"invisible_ms": -1}])
async def test_what_cannot_be_asked_for_is_refused_at_once(wrong: dict[str, int], tmp_path: Path) -> None:
    async with servers(tmp_path) as here, simple(here) as consumer:
        with pytest.raises(ConfigError):
            await consumer.receive(**wrong)


def test_the_blocking_consumer_receives_acknowledges_and_iterates() -> None:
    with Cluster(topics={"orders": 2}) as cluster:
        with dejamq.sync.Producer("p", namesrv=cluster.namesrv) as producer:
            for body in (b"a", b"b"):
                producer.send(Message("orders", body))
        consumer = dejamq.sync.SimpleConsumer("g", namesrv=cluster.namesrv)
        consumer.subscribe("orders")
        with consumer:
            (first,) = consumer.receive(max_messages=1, timeout_ms=10_000)
            consumer.change_invisible(first, 60_000)
            consumer.ack(first)
            for message in consumer:
                assert {first.body, message.body} == {b"a", b"b"}
                consumer.ack(message)
                break
            assert consumer.receive(timeout_ms=300) == []


async def test_a_dead_letter_of_a_popping_group_is_replayed_once_to_where_the_group_pops(tmp_path: Path) -> None:
    async with servers(tmp_path) as here, Admin(here.namesrv.address) as admin:
        await admin.create_group("g")
        await admin.update_group("g", retry_max_times=0)
        await here.send("x")
        async with simple(here) as consumer:
            (message,) = await received(consumer, len)
            await consumer.change_invisible(message, 0)
            await until(lambda: here.server_lines("REVIVE"))
            waiting = asyncio.ensure_future(consumer.receive(timeout_ms=15_000))
            (letter,) = [letter async for letter in admin.dead_letters("g")]
            replay = await admin.replay_dead_letter("g", letter)
            (again,) = await waiting
            assert (again.body, again.topic, again.reconsume_times) == (b"x", "orders", 0)
            assert (again.queue.topic, again.queue_offset) == (replay.topic, replay.queue_offset)
            await consumer.ack(again)
            assert (await admin.replay_dead_letter("g", letter)).queue is None
            assert await nothing_comes(consumer)
