"""What each method of a lite pull consumer does, against a real broker."""

import asyncio
import functools
import time
from pathlib import Path
from typing import Any

import msgspec
from consumer_cluster import servers, until
from dejamq import ConsumeFrom, Message, MessageModel, MessageQueue, Producer
from lite_cluster import bodies, committed, is_committed, lite, poll_count, polled, send_to, subscribed


async def test_polls_hand_out_everything_once_and_each_queue_in_its_order(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        for number in range(4):
            await send_to(here, number, *(f"{number}-{index}" for index in range(25)))
        async with subscribed(here) as consumer:
            found = await polled(consumer, lambda found: len(found) >= 100, limit=7)
    assert len(found) == len({message.body for message in found}) == 100
    for number in range(4):
        mine = [message.body.decode() for message in found if message.queue.queue_id == number]
        assert mine == [f"{number}-{index}" for index in range(25)]


async def test_a_poll_that_finds_nothing_is_empty_and_one_that_waits_gets_what_comes(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await send_to(here, 0, "first")
        async with subscribed(here) as consumer:
            await poll_count(consumer, 1)
            assert await consumer.poll(20) == []
            assert await consumer.poll(0) == []
            waiting = asyncio.ensure_future(consumer.poll(15_000))
            await send_to(here, 0, "second")
            assert bodies(await waiting) == ["second"]


async def test_a_poll_returns_no_more_than_asked_for(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await send_to(here, 0, *"abcdefg")
        async with subscribed(here) as consumer:
            assert bodies(await polled(consumer, lambda found: len(found) == 3, limit=3)) == ["a", "b", "c"]
            assert bodies(await consumer.poll(5_000, 2)) == ["d", "e"]
            assert bodies(await consumer.poll(5_000)) == ["f", "g"]


async def test_only_messages_with_the_tags_come_and_a_commit_passes_over_the_others(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("yes", tags="a")
        await here.send("no", tags="b")
        consumer = lite(here, auto_commit=False)
        consumer.subscribe("orders", tags="a || c")
        async with consumer:
            assert await poll_count(consumer, 1) == ["yes"]
            assert await consumer.poll(100) == []


async def test_an_explicit_commit_is_with_the_broker_when_it_returns_and_the_next_consumer_goes_on_there(
    tmp_path: Path,
) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abcde")
        async with subscribed(here, auto_commit=False) as consumer:
            assert bodies(await polled(consumer, lambda found: len(found) == 3, limit=3)) == ["a", "b", "c"]
            assert await consumer.commit() == {queue: 3}
            assert committed(here, queue) == 3
            assert await consumer.committed(queue) == 3
            assert await consumer.commit() == {}, "nothing moved"
            assert bodies(await consumer.poll(5_000)) == ["d", "e"]
        async with subscribed(here) as again:
            assert await poll_count(again, 2) == ["d", "e"]
    assert "lite" in {line["reason"] for line in here.lines("PERSIST", consumer.boot_id)}


async def test_given_offsets_are_committed_as_given_and_those_of_foreign_queues_are_left_out(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abcde")
        foreign = MessageQueue("invoices", "broker-a", 0)
        async with subscribed(here, auto_commit=False) as consumer:
            await poll_count(consumer, 5)
            assert await consumer.commit({queue: 2, foreign: 1}) == {queue: 2}
            assert committed(here, queue) == 2
            assert await consumer.commit({queue: 1}) == {queue: 1}, "back is allowed, as in RocketMQ"
        async with subscribed(here) as again:
            assert await poll_count(again, 4) == ["b", "c", "d", "e"]


async def test_the_automatic_commit_covers_what_earlier_polls_returned_and_never_the_last_one(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abcdef")
        async with subscribed(here, auto_commit_interval_ms=1, persist_consumer_offset_interval_ms=20) as consumer:
            await polled(consumer, lambda found: len(found) == 2, limit=2)
            for done in (2, 4):
                await asyncio.sleep(0.002)  # the interval, or the next poll comes before it is over
                assert len(await consumer.poll(5_000, 2)) == 2
                await until(functools.partial(is_committed, here, queue, done))
                assert await consumer.committed(queue) == done


async def test_what_is_due_is_committed_while_a_poll_waits(tmp_path: Path) -> None:
    """RocketMQ commits at the beginning of a poll only."""
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"ab")
        async with subscribed(here, auto_commit_interval_ms=50, persist_consumer_offset_interval_ms=20) as consumer:
            await poll_count(consumer, 2)
            waiting = asyncio.ensure_future(consumer.poll(60_000))
            await until(lambda: committed(here, queue) == 2)
            waiting.cancel()


async def test_closing_commits_all_but_the_last_poll_and_without_auto_commit_nothing(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await send_to(here, 0, *"abcdef")
        async with subscribed(here, "by-hand", auto_commit=False) as by_hand:
            await poll_count(by_hand, 6)
        async with subscribed(here) as consumer:
            await polled(consumer, lambda found: len(found) == 2, limit=2)
            assert len(await consumer.poll(5_000, 2)) == 2
        async with subscribed(here) as again:
            assert await poll_count(again, 4) == ["c", "d", "e", "f"]
        async with subscribed(here, "by-hand") as all_again:
            assert await poll_count(all_again, 6) == [*"abcdef"]


async def test_seeking_hands_out_from_there_and_nothing_that_was_pulled_before(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abcdef")
        async with subscribed(here) as consumer:
            await polled(consumer, lambda found: len(found) == 2, limit=2)
            consumer.seek(queue, 4)
            assert await poll_count(consumer, 2) == ["e", "f"]
            consumer.seek(queue, 1)
            assert await poll_count(consumer, 5) == ["b", "c", "d", "e", "f"]
            assert await consumer.commit() == {queue: 6}
    assert [line["source"] for line in here.lines("PQ_OPEN") if line["queue_id"] == 0][1:] == ["seek", "seek"]
    assert [line["reason"] for line in here.lines("PQ_DROP") if line["queue_id"] == 0][:2] == ["seek", "seek"]


async def test_a_commit_after_a_seek_back_goes_back(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        async with subscribed(here) as consumer:
            await poll_count(consumer, 3)
            assert await consumer.commit() == {queue: 3}
            consumer.seek(queue, 0)
            assert await consumer.committed(queue) == 3
            assert await consumer.commit() == {queue: 0}


async def test_a_seek_reaches_a_poll_that_waits(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        async with subscribed(here) as consumer:
            await poll_count(consumer, 3)
            waiting = asyncio.ensure_future(consumer.poll(15_000))
            await asyncio.sleep(0)
            consumer.seek(queue, 2)
            assert bodies(await waiting) == ["c"]


async def test_an_offset_beyond_the_end_is_corrected_by_the_broker(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        async with subscribed(here) as consumer:
            await poll_count(consumer, 3)
            consumer.seek(queue, 1_000_000)
            await until(lambda: "illegal" in [line["source"] for line in here.lines("PQ_OPEN")])
            await send_to(here, 0, "d")
            assert await poll_count(consumer, 1) == ["d"]
            assert (await consumer.commit())[queue] == 4


async def test_begin_end_and_time_are_found(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        between_ms = time.time_ns() // 1_000_000 + 1
        await until(lambda: time.time_ns() // 1_000_000 > between_ms)
        await send_to(here, 0, *"de")
        async with subscribed(here) as consumer:
            await poll_count(consumer, 5)
            assert await consumer.offset_for_timestamp(queue, between_ms) == 3
            await consumer.seek_to_begin(queue)
            assert await poll_count(consumer, 5) == [*"abcde"]
            await consumer.seek_to_end(queue)
            await send_to(here, 0, "f")
            assert await poll_count(consumer, 1) == ["f"]


async def test_a_paused_queue_is_silent_until_it_is_resumed_and_others_are_not(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        async with subscribed(here, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
            await consumer.wait_assigned()
            consumer.pause([queue])
            await send_to(here, 0, "d")
            await send_to(here, 1, "other")
            assert await poll_count(consumer, 1) == ["other"]
            assert await consumer.poll(150) == []
            consumer.resume([queue])
            assert await poll_count(consumer, 4) == [*"abcd"]


async def test_assigned_queues_are_read_and_no_others_until_others_are_assigned(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        first = await send_to(here, 0, *"abc")
        second = await send_to(here, 1, *"xyz")
        consumer = lite(here)
        consumer.assign([first])
        async with consumer:
            assert await consumer.wait_assigned() == (first,)
            assert await poll_count(consumer, 3) == [*"abc"]
            assert await consumer.poll(100) == []
            consumer.assign([second])
            assert await consumer.wait_assigned() == (second,)
            assert await poll_count(consumer, 3) == [*"xyz"]
    assigned = [(line["strategy"], line["queues"]) for line in here.lines("ASSIGN")]
    assert assigned == [("manual", ["broker-a:0"]), ("manual", ["broker-a:1"])]


async def test_an_assigned_queue_begins_where_it_was_sought_before_it_was_open(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        consumer = lite(here)
        consumer.assign([queue])
        consumer.seek(queue, 2)
        async with consumer:
            assert await poll_count(consumer, 1) == ["c"]


async def test_two_consumers_with_assigned_queues_do_not_share(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        one, two = lite(here), lite(here)
        one.assign([queue])
        two.assign([queue])
        async with one, two:
            assert await poll_count(one, 3) == await poll_count(two, 3) == [*"abc"]


async def test_the_queues_of_a_topic_can_be_asked_for_and_all_assigned(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("a", "b", "c", "d", "e")
        async with lite(here) as consumer:
            queues = await consumer.queues("orders")
            assert len(queues) == 4
            consumer.assign(queues)
            assert sorted(await poll_count(consumer, 5)) == [*"abcde"]


async def test_a_listener_hears_of_the_queues_that_a_topic_gets(tmp_path: Path) -> None:
    heard: list[tuple[str, int]] = []
    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = subscribed(here)
        await consumer.watch_queues("orders", lambda topic, queues: heard.append((topic, len(queues))))
        async with consumer:
            await consumer.watch_queues("later", lambda topic, queues: heard.append((topic, len(queues))))
            await here.send("y", topic="later")
            await until(lambda: heard)
    assert heard == [("later", 4)]


async def test_a_listener_outlives_the_subscription_of_its_topic(tmp_path: Path) -> None:
    heard: list[int] = []
    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = subscribed(here)
        consumer.subscribe("later")
        await consumer.watch_queues("later", lambda topic, queues: heard.append(len(queues)))
        async with consumer:
            consumer.unsubscribe("later")
            await here.send("y", topic="later")
            await until(lambda: heard == [4])


async def test_a_topic_can_be_subscribed_and_given_up_while_running(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("a")
        await here.send("b", topic="invoices")
        async with subscribed(here) as consumer:
            assert await poll_count(consumer, 1) == ["a"]
            consumer.subscribe("invoices")
            assert await poll_count(consumer, 1) == ["b"]
            consumer.unsubscribe("orders")
            await until(lambda: {queue.topic for queue in consumer.assignment} == {"invoices"})


async def test_a_new_group_begins_where_it_is_told(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await send_to(here, 0, *"abc")
        async with subscribed(here, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
            assert await poll_count(consumer, 3) == [*"abc"]


async def test_a_namespace_is_not_seen_by_the_program(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        async with Producer("p", namesrv=here.namesrv.address, namespace="eu") as producer:
            queue = (await producer.publish_queues("orders"))[0]
            for body in (b"a", b"b", b"c"):
                await producer.send(Message("orders", body), queue=queue)
        assert queue.topic == "orders"
        async with subscribed(here, namespace="eu") as consumer:
            found = await polled(consumer, lambda found: len(found) == 3)
            assert {(message.topic, message.queue) for message in found} == {("orders", queue)}
            assert queue in consumer.assignment
            assert await consumer.commit() == {queue: 3}
            assert committed(here, MessageQueue("eu%orders", "broker-a", queue.queue_id), "eu%g") == 3
            assert await consumer.committed(queue) == 3
            consumer.pause([queue])
            consumer.seek(queue, 1)
            assert await consumer.poll(50) == []
            consumer.resume([queue])
            assert await poll_count(consumer, 2) == ["b", "c"]
        chosen = lite(here, namespace="eu")
        chosen.assign([queue])
        chosen.seek(queue, 2)
        async with chosen:
            assert await poll_count(chosen, 1) == ["c"]
            assert await chosen.queues("orders") == tuple(msgspec.structs.replace(queue, queue_id=n) for n in range(4))


async def test_other_tags_of_assigned_queues_count_from_then_on(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, "untagged")
        consumer = lite(here)
        consumer.assign([queue], tags="paid")
        async with consumer:
            await consumer.wait_assigned()
            async with here.producer() as producer:
                await producer.send(Message("orders", b"paid", tags="paid"), queue=queue)
                assert await poll_count(consumer, 1) == ["paid"]
                consumer.assign([queue], tags="open")
                await consumer.wait_assigned()
                await producer.send(Message("orders", b"paid-too", tags="paid"), queue=queue)
                await producer.send(Message("orders", b"open", tags="open"), queue=queue)
                assert await poll_count(consumer, 1) == ["open"]


async def test_the_seek_of_a_queue_that_is_not_assigned_any_more_is_forgotten(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        consumer = lite(here)
        consumer.assign([queue])
        consumer.seek(queue, 2)
        consumer.assign([])
        consumer.assign([queue])
        async with consumer:
            assert await poll_count(consumer, 3) == [*"abc"]


async def test_closing_in_rocketmqs_way_commits_nothing_that_the_automatic_commit_did_not(tmp_path: Path) -> None:
    """Cause O18: the last batch was polled more than once."""
    async with servers(tmp_path) as here:
        await send_to(here, 0, *"abc")
        async with subscribed(here, shutdown_mode="rocketmq") as consumer:
            assert await poll_count(consumer, 3) == [*"abc"]
            assert await consumer.poll(0) == []
        async with subscribed(here) as again:
            assert await poll_count(again, 3) == [*"abc"]


async def test_each_broadcasting_member_gets_everything_and_goes_on_from_its_own_file(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        settings: dict[str, Any] = {
            "model": MessageModel.BROADCASTING,
            "consume_from": ConsumeFrom.FIRST_OFFSET,
            "local_offset_store_dir": str(tmp_path / "offsets"),
        }
        one = subscribed(here, client_id="one", **settings)
        two = subscribed(here, client_id="two", **settings)
        async with one, two:
            assert await poll_count(one, 3) == await poll_count(two, 3) == [*"abc"]
            assert await one.commit() == {queue: 3}
            assert await one.committed(queue) == 3
            assert await two.committed(queue) is None
            assert committed(here, queue) is None
        async with subscribed(here, client_id="one", **settings) as again:
            await send_to(here, 0, "d")
            assert await poll_count(again, 1) == ["d"]
