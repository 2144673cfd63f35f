"""Lite pull when members come and go, calls are cancelled, and servers are away: nothing is lost."""

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import Servers, held, servers, until, until_no_more_is_held_than
from dejamq import ConsumeFrom, DejamqError, LitePullConsumer, MessageQueue
from lite_cluster import bodies, lite, poll_count, send_to, subscribed

pytestmark = pytest.mark.usefixtures("transport")

FROM_THE_FIRST: dict[str, Any] = {"auto_commit": False, "consume_from": ConsumeFrom.FIRST_OFFSET}
"""With LAST_OFFSET a queue that nobody committed begins at its end with each owner."""


async def test_members_that_come_and_go_lose_nothing_between_them(tmp_path: Path, chance: random.Random) -> None:
    """One is always there; the other joins, polls a little and leaves, cleanly or not, ten times."""
    sent: set[str] = set()
    seen: set[str] = set()

    async def sending(here: Servers) -> None:
        for number in range(10):
            batch = [f"{number}-{index}" for index in range(20)]
            await here.send(*batch)
            sent.update(batch)
            await asyncio.sleep(chance.uniform(0, 0.2))

    async def polling(consumer: LitePullConsumer, rounds: int) -> None:
        for _ in range(rounds):
            seen.update(bodies(await consumer.poll(50, chance.randint(1, 30))))
            await consumer.commit()

    async with servers(tmp_path) as here:
        await here.send("warm")
        async with subscribed(here, **FROM_THE_FIRST) as stays:
            traffic = asyncio.ensure_future(sending(here))
            for _ in range(10):
                guest = subscribed(here, **FROM_THE_FIRST)
                await guest.start()
                await asyncio.gather(polling(guest, chance.randint(1, 4)), polling(stays, 3))
                await guest.close(timeout_ms=chance.choice((0, 1_000)))
            await traffic
            async with asyncio.timeout(15):
                while not sent <= seen:
                    await polling(stays, 1)


async def test_what_was_polled_and_not_committed_comes_to_the_next_owner(tmp_path: Path) -> None:
    """Cause O18: a queue that moves away takes only what was committed with it."""
    async with servers(tmp_path) as here:
        await send_to(here, 0, *"abcd")
        async with subscribed(here, "g", auto_commit=False) as one:
            assert await poll_count(one, 4) == [*"abcd"]
            async with subscribed(here, "g") as two:
                await until(lambda: len(one.assignment) == len(two.assignment) == 2)
                loser = one if any(queue.queue_id == 0 for queue in two.assignment) else two
                if loser is one:
                    assert await poll_count(two, 4) == [*"abcd"]
            assert await one.commit() == {} or loser is two


async def test_cancelling_a_poll_at_any_await_loses_nothing(tmp_path: Path) -> None:
    texts = [f"{number}" for number in range(120)]
    found: list[str] = []
    async with servers(tmp_path) as here:
        await send_to(here, 0, "warm")
        async with subscribed(here, pull_batch_size=4) as consumer:
            await poll_count(consumer, 1)
            sending = asyncio.ensure_future(send_to(here, 0, *texts))
            turns = 0
            async with asyncio.timeout(20):
                while len(found) < len(texts):
                    turns = turns % 7 + 1
                    poll = asyncio.ensure_future(consumer.poll(5_000, 3))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    poll.cancel()
                    done = (await asyncio.gather(poll, return_exceptions=True))[0]
                    if not isinstance(done, BaseException):
                        found += bodies(done)
            await sending
    assert found == texts


async def test_a_restarted_broker_delivers_what_is_missing_and_again_at_most_what_was_not_committed(
    tmp_path: Path,
) -> None:
    async with servers(tmp_path) as here:
        await send_to(here, 0, *"abc")
        async with subscribed(here) as consumer:
            assert await poll_count(consumer, 3) == [*"abc"]
            await consumer.commit()
            await here.stop_broker()
            assert await consumer.poll(100) == []
            await here.start_broker()
            await send_to(here, 0, *"def")
            assert await poll_count(consumer, 3) == [*"def"]


async def test_a_commit_that_cannot_be_told_raises_and_the_timer_makes_it_good(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        async with subscribed(here, auto_commit=False, consumer_progress_timeout_ms=300) as consumer:
            assert await poll_count(consumer, 3) == [*"abc"]
            await here.stop_broker()
            outcome = (await asyncio.gather(consumer.commit(), return_exceptions=True))[0]
            assert isinstance(outcome, ConnectionError | TimeoutError), outcome
            assert await consumer.committed(queue) == 3
            await here.start_broker()
            await until(lambda: any(_took(here, queue.queue_id)))


async def test_whatever_asks_a_broker_that_is_away_raises_and_closing_does_not_hang(tmp_path: Path) -> None:
    times: dict[str, Any] = {"mq_client_api_timeout_ms": 300, "consumer_progress_timeout_ms": 300}
    async with servers(tmp_path) as here:
        queue = await send_to(here, 0, *"abc")
        async with asyncio.timeout(20), subscribed(here, auto_commit=False, **times) as consumer:
            assert await poll_count(consumer, 3) == [*"abc"]
            await here.stop_broker()
            asked = (
                consumer.seek_to_begin(queue), consumer.seek_to_end(queue), consumer.committed(queue),
                consumer.offset_for_timestamp(queue, 0),
            )  # fmt: skip
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(one, ConnectionError | TimeoutError) for one in outcomes), outcomes
            assert await consumer.poll(50) == []


def _took(here: Servers, queue_id: int) -> list[bool]:
    sets = [line for line in here.server_lines("OFF_SET") if line["topic"] == "orders" and line["queue_id"] == queue_id]
    return [line["new"] == 3 for line in sets]


async def test_a_queue_is_not_pulled_further_than_its_limits_while_nobody_polls(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"pull_threshold_for_queue": 10, "pull_batch_size": 5, "pull_threshold_for_all": 25}
    async with servers(tmp_path) as here:
        for number in range(4):
            await send_to(here, number, *(f"{number}-{index}" for index in range(40)))
        async with subscribed(here, **limits) as consumer:
            await consumer.wait_assigned()
            held = consumer.inspect().shelf
            await until(lambda: held.count() > 25)
            await asyncio.sleep(0.2)
            assert held.count() <= 25 + 4 * 5
            assert len(await poll_count(consumer, 160)) == 160


async def test_consumers_of_two_event_loops_share_a_group(tmp_path: Path) -> None:
    """Each in its own thread, as in a program with a loop a thread."""
    seen: list[str] = []
    async with servers(tmp_path) as here:
        texts = [f"{number}" for number in range(40)]
        await here.send(*texts)
        ended = threading.Event()

        async def consuming() -> None:
            async with subscribed(here) as consumer:
                while not ended.is_set():
                    seen.extend(bodies(await consumer.poll(50)))

        threads = [threading.Thread(target=asyncio.run, args=(consuming(),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            await until(lambda: {*texts} <= {*seen})
        finally:
            ended.set()
            await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))


async def test_many_starts_and_stops_leave_no_task_behind(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("x")
        await one_round(here)
        before = held()
        for _ in range(20):
            await one_round(here)
        await until_no_more_is_held_than(before)


async def one_round(here: Servers) -> None:
    async with subscribed(here, auto_commit=False) as consumer:
        await poll_count(consumer, 1)


async def test_closing_while_it_starts_ends_both(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = subscribed(here)
        starting = asyncio.ensure_future(consumer.start())
        await asyncio.sleep(0)
        await consumer.close()
        outcome = (await asyncio.gather(starting, return_exceptions=True))[0]
        assert isinstance(outcome, Exception)
        assert consumer.closed


@pytest.mark.parametrize("assigned", [False, True])
async def test_waiting_in_vain_for_queues_says_which_and_what_to_look_at(tmp_path: Path, assigned: bool) -> None:
    async with servers(tmp_path) as here:
        consumer = lite(here)
        if assigned:
            consumer.assign([MessageQueue("nothing-here", "broker-a", 3)])
        else:
            consumer.subscribe("nothing-here")
        async with consumer:
            with pytest.raises(TimeoutError, match="no route of nothing-here is known: does the topic exist") as late:
                await consumer.wait_assigned(100)
            assert isinstance(late.value, DejamqError)
