"""``async for`` over a lite pull consumer: what it counts as done, and when it ends."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import Servers, servers, until
from dejamq import ClientClosed, DejamqError, LitePullConsumer
from lite_cluster import committed, lite, poll_count, send_to, subscribed

OFTEN: dict[str, Any] = {"auto_commit_interval_ms": 1, "persist_consumer_offset_interval_ms": 20}


async def taken(consumer: LitePullConsumer, count: int) -> list[str]:
    """The first messages of a loop that is left with the last one in hand."""
    found: list[str] = []
    async for message in consumer:
        found.append(message.body.decode())
        if len(found) == count:
            break
    return found


async def test_a_loop_gets_everything_in_the_order_of_the_queue(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await send_to(here, 0, *(f"{number}" for number in range(50)))
        async with subscribed(here) as consumer:
            assert await taken(consumer, 50) == [f"{number}" for number in range(50)]


async def test_a_message_in_hand_is_never_committed_by_itself(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abcdef")
        async with subscribed(here, **OFTEN) as consumer:
            async for message in consumer:
                await asyncio.sleep(0.002)  # longer than the interval of commits
                assert await consumer.committed(queue) == message.queue_offset
                if message.queue_offset == 2:
                    break
            await until(lambda: committed(here, queue) == 2)
        assert committed(here, queue) == 2
        async with subscribed(here) as again:
            assert await poll_count(again, 4) == ["c", "d", "e", "f"]


async def test_an_explicit_commit_says_that_the_message_in_hand_is_done(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        async with subscribed(here, auto_commit=False) as consumer:
            async for message in consumer:
                await consumer.commit()
                assert committed(here, queue) == message.queue_offset + 1
                if message.queue_offset == 2:
                    break


async def test_progress_is_committed_while_a_loop_waits_for_more(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        async with subscribed(here, **OFTEN) as consumer:
            looping = asyncio.ensure_future(taken(consumer, 4))
            await until(lambda: committed(here, queue) == 3)
            looping.cancel()


async def test_a_loop_ends_when_the_consumer_is_closed(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await send_to(here, 0, *"ab")
        consumer = subscribed(here, auto_commit=False)  # so that nothing but the end wakes it
        async with consumer:
            looping = asyncio.ensure_future(taken(consumer, 1_000))
            await until(lambda: len(here.lines("DELIVER")) == 2)
        assert await asyncio.wait_for(looping, 20) == ["a", "b"]
        assert [message async for message in consumer] == []


async def test_a_loop_that_closes_its_own_consumer_ends(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await send_to(here, 0, *"ab")
        consumer = subscribed(here)
        await consumer.start()
        async for _ in consumer:
            await consumer.close()
        assert consumer.closed


async def test_a_loop_whose_broker_is_away_ends_when_closed_and_closing_does_not_hang(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await send_to(here, 0, *"ab")
        consumer = subscribed(here)
        async with consumer:
            looping = asyncio.ensure_future(taken(consumer, 1_000))
            await until(lambda: len(here.lines("DELIVER")) == 2)
            await here.stop_broker()
            await until(lambda: "timer" in _failed(here, consumer) or not looping.done())
            async with asyncio.timeout(10):
                await consumer.close()
        assert await asyncio.wait_for(looping, 20) == ["a", "b"]


def _failed(here: Servers, consumer: LitePullConsumer) -> set[str]:
    lines = here.lines("PERSIST", consumer.boot_id)
    return {line["reason"] for line in lines if line.get("outcome", "sent") != "sent"}


async def test_a_loop_goes_on_by_itself_after_its_broker_came_back(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await send_to(here, 0, *"ab")
        async with subscribed(here) as consumer:
            assert await taken(consumer, 2) == ["a", "b"]
            looping = asyncio.ensure_future(taken(consumer, 1))
            await here.stop_broker()
            await here.start_broker()
            await send_to(here, 0, "c")
            assert await asyncio.wait_for(looping, 15) == ["c"]


async def test_a_failed_background_task_ends_a_loop_with_its_failure_and_a_poll_too(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await send_to(here, 0, "a")
        consumer = subscribed(here)
        await consumer.start()
        assert await taken(consumer, 1) == ["a"]
        looping, polling = asyncio.ensure_future(taken(consumer, 9)), asyncio.ensure_future(consumer.poll(60_000))
        await asyncio.sleep(0.05)
        consumer.inspect().instance.fail(DejamqError("told to"))
        with pytest.raises(DejamqError, match="told to"):
            await asyncio.wait_for(looping, 20)
        with pytest.raises(DejamqError, match="told to"):
            await asyncio.wait_for(polling, 20)
        with pytest.raises(DejamqError, match="told to"):
            await consumer.__aexit__(None, None, None)


async def test_a_poll_that_waits_is_refused_when_the_consumer_is_closed(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = subscribed(here, auto_commit=False)
        await consumer.start()
        await poll_count(consumer, 1)
        waiting = asyncio.ensure_future(consumer.poll(60_000))
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(waiting, 20)
        with pytest.raises(ClientClosed):
            await consumer.poll()


async def test_a_loop_over_no_topics_says_so_instead_of_waiting_for_ever(tmp_path: Path) -> None:
    async with servers(tmp_path) as here, lite(here) as consumer:
        with pytest.raises(DejamqError, match="nothing to poll"):
            await anext(consumer)


async def test_who_waits_for_the_end_or_for_queues_hears_of_a_close_from_elsewhere(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        consumer = lite(here)
        consumer.subscribe("nothing-here")
        await consumer.start()
        stopped = asyncio.ensure_future(consumer.wait_stopped())
        assigned = asyncio.ensure_future(consumer.wait_assigned())
        await asyncio.sleep(0)
        await consumer.close()
        async with asyncio.timeout(10):
            await stopped
            with pytest.raises(ClientClosed):
                await assigned
