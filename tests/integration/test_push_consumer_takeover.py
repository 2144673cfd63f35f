"""Who consumes what when members come, leave and die, and what becomes of their progress."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import SLOW, Servers, servers, until
from dejamq import ClientClosed, DejamqError, Message, PushConsumer, ReceivedMessage


class Seen(list[str]):
    """A handler that remembers the bodies."""

    async def handle(self, message: ReceivedMessage) -> None:
        self.append(message.body.decode())


def consuming(here: Servers, seen: Seen, **settings: Any) -> PushConsumer:
    consumer = here.consumer(**settings)
    consumer.subscribe("orders", seen.handle)
    return consumer


async def test_two_members_share_the_queues_and_the_messages(tmp_path: Path) -> None:
    first, second = Seen(), Seen()
    async with servers(tmp_path) as here:
        await here.send("warm")
        async with consuming(here, first, **SLOW) as one:
            await one.wait_assigned()
            async with consuming(here, second, **SLOW) as two:
                await until(lambda: len(one.assignment) == len(two.assignment) == 2)
                assert not set(one.assignment) & set(two.assignment)
                await here.send(*(f"{number}" for number in range(200)))
                await until(lambda: len({*first, *second}) == 201)
    numbers = [body for body in first + second if body != "warm"]  # that one may come twice: two owners in turn (O8)
    assert len(numbers) == 200
    assert first
    assert second


async def test_when_a_member_leaves_the_other_takes_its_queues_over_at_once(tmp_path: Path) -> None:
    first, second = Seen(), Seen()
    async with servers(tmp_path) as here:
        await here.send("warm")
        async with consuming(here, first, **SLOW) as one:
            two = consuming(here, second, **SLOW)
            await two.start()
            await until(lambda: len(one.assignment) == len(two.assignment) == 2)
            await here.send(*(f"a-{number}" for number in range(50)))
            await until(lambda: len({*first, *second}) == 51)
            await two.close()
            await until(lambda: len(one.assignment) == 4)
            await here.send(*(f"b-{number}" for number in range(50)))
            await until(lambda: len({*first, *second}) == 101)
    numbers = [body for body in first + second if body != "warm"]
    assert len(numbers) == 100, "what the leaving member had done was committed"


async def test_a_member_whose_connection_ends_is_replaced_at_once(tmp_path: Path) -> None:
    """What a SIGKILL looks like to the others: nothing is said, the channel just ends."""
    first, second = Seen(), Seen()
    async with servers(tmp_path) as here:
        await here.send("warm")
        async with consuming(here, first, **SLOW) as one:
            two = consuming(here, second, **SLOW)
            await two.start()
            await until(lambda: len(one.assignment) == len(two.assignment) == 2)
            instance = two.inspect().instance
            for task in tuple(instance.inspect().tasks):
                task.cancel()
            for link in instance.inspect().links.values():
                link.heartbeats.break_off("the test cut it")
            await until(lambda: len(one.assignment) == 4)
            await here.send(*(f"b-{number}" for number in range(20)))
            await until(lambda: len({*first}) >= 20)
            await two.close(0)


async def test_stopping_waits_for_running_handlers_and_commits_what_they_did(tmp_path: Path) -> None:
    started, seen = asyncio.Event(), Seen()

    async def slow(message: ReceivedMessage) -> None:
        started.set()
        await asyncio.sleep(0.2)
        seen.append(message.body.decode())

    async with servers(tmp_path) as here:
        await here.send(*(f"{number}" for number in range(100)))
        consumer = here.consumer(**SLOW)
        consumer.subscribe("orders", slow)
        async with consumer:
            await started.wait()
        done = len(seen)
        assert 0 < done < 100
        again = Seen()
        async with consuming(here, again):
            await until(lambda: len(seen) + len(again) >= 100)
    assert len({*seen, *again}) == len(seen) + len(again) == 100
    states = [line["state"] for line in here.lines("STATE", consumer.boot_id)]
    assert states == ["started", "closing", "closed"]
    assert {line["reason"] for line in here.lines("PERSIST", consumer.boot_id)} >= {"shutdown"}


async def test_a_handler_that_does_not_end_in_time_is_cancelled_and_its_message_comes_again(tmp_path: Path) -> None:
    started, seen = asyncio.Event(), Seen()

    async def endless(message: ReceivedMessage) -> None:
        started.set()
        await asyncio.Event().wait()

    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = here.consumer(await_termination_ms=50)
        consumer.subscribe("orders", endless)
        async with consumer:
            await started.wait()
        assert [line["status"] for line in here.lines("RESULT")] == ["cancelled"]
        async with consuming(here, seen):
            await until(lambda: seen == ["x"])
    assert not here.lines("SENDBACK")


async def test_the_timer_commits_even_when_nothing_is_closed(tmp_path: Path) -> None:
    first, second = Seen(), Seen()
    async with servers(tmp_path) as here:
        await here.send(*(f"{number}" for number in range(40)))
        one = consuming(here, first, persist_consumer_offset_interval_ms=50, broker_suspend_max_time_ms=600_000)
        async with one:
            await until(lambda: len(first) == 40)
            await until(lambda: sum(_last(here, "timer").values()) == 40)
            async with consuming(here, second, group="g2"):
                pass  # another group begins where its own offsets say, not where this one's do


def _last(here: Servers, reason: str) -> dict[tuple[str, int], int]:
    persists = [line for line in here.lines("PERSIST") if line["reason"] == reason]
    return {(line["broker_name"], line["queue_id"]): line["value"] for line in persists if line["topic"] == "orders"}


async def test_a_group_that_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    first, second = Seen(), Seen()
    async with servers(tmp_path) as here:
        await here.send(*(f"a-{number}" for number in range(30)))
        async with consuming(here, first):
            await until(lambda: len(first) == 30)
        await here.send(*(f"b-{number}" for number in range(30)))
        async with consuming(here, second):
            await until(lambda: len(second) == 30)
            await asyncio.sleep(0.1)
    assert all(body.startswith("b-") for body in second)


async def test_a_broker_restart_is_survived(tmp_path: Path) -> None:
    seen = Seen()
    async with servers(tmp_path) as here:
        await here.send(*(f"a-{number}" for number in range(30)))
        async with consuming(here, seen) as consumer:
            await until(lambda: len(seen) == 30)
            await here.stop_broker()
            await here.start_broker()
            await here.send(*(f"b-{number}" for number in range(30)))
            await until(lambda: len({*seen}) == 60)
            await until(lambda: len(consumer.assignment) == 4)
    assert len({*seen}) == 60


async def test_a_queue_lost_while_its_handler_runs_makes_the_message_come_twice(tmp_path: Path) -> None:
    """Cause O9: the result of the first delivery counts for nothing."""
    entered, go_on, second = asyncio.Event(), asyncio.Event(), Seen()

    async def slow(message: ReceivedMessage) -> None:
        entered.set()
        await go_on.wait()

    async with servers(tmp_path) as here:
        await here.send(*(f"{number}" for number in range(8)))
        one = here.consumer(max_concurrency=8)
        one.subscribe("orders", slow)
        async with one:
            await entered.wait()
            async with consuming(here, second):
                await until(lambda: len(one.assignment) == 2)
                await until(lambda: len(second) == 4)
                go_on.set()
                await until(lambda: sum(line.get("pq_dropped", False) for line in here.lines("RESULT")) == 4)


async def test_a_closed_consumer_refuses_with_a_clear_word(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = consuming(here, Seen())
        async with consumer:
            await consumer.wait_assigned()
        await consumer.close()
        assert consumer.closed
        with pytest.raises(ClientClosed):
            consumer.subscribe("invoices", Seen().handle)
        with pytest.raises(ClientClosed):
            await consumer.start()


async def test_a_failing_background_task_is_told_by_the_next_call_and_at_the_end(tmp_path: Path) -> None:
    def broken(queues: object, members: object, me: object) -> list[object]:
        raise RuntimeError("my strategy is broken")

    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = here.consumer(allocation=broken)
        consumer.subscribe("orders", Seen().handle)
        await consumer.start()
        with pytest.raises(DejamqError, match="my strategy is broken"):
            await consumer.wait_assigned()
        with pytest.raises(DejamqError, match="my strategy is broken"):
            await consumer.__aexit__(None, None, None)
        assert consumer.closed


async def test_messages_done_above_an_unfinished_one_come_again_to_the_next_owner(tmp_path: Path) -> None:
    """Cause O7: what is committed is the smallest unfinished offset."""
    done, again = Seen(), Seen()

    async def handler(message: ReceivedMessage) -> None:
        if message.queue_offset == 2:
            await asyncio.Event().wait()
        done.append(message.body.decode())

    async with servers(tmp_path) as here:
        async with here.producer() as producer:
            queue = (await producer.publish_queues("orders"))[0]
            for number in range(10):
                await producer.send(Message("orders", b"%d" % number), queue=queue)
        consumer = here.consumer(await_termination_ms=0)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: len(done) == 9)
        async with consuming(here, again):
            await until(lambda: len(again) == 8)
    assert sorted(again) == [str(number) for number in range(2, 10)]
    shutdown = [line["value"] for line in here.lines("PERSIST", consumer.boot_id) if line["reason"] == "shutdown"]
    assert 2 in shutdown


async def test_closing_while_it_starts_ends_both(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = consuming(here, Seen())
        starting = asyncio.ensure_future(consumer.start())
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClientClosed):
            await starting
        assert consumer.closed


@pytest.mark.parametrize("turns", [1, 5, 20, 60, 150])
async def test_closing_while_it_starts_ends_the_serving_as_a_later_close_does(tmp_path: Path, turns: int) -> None:
    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = consuming(here, Seen())
        serving = asyncio.ensure_future(consumer.run_until_stopped(signals=()))
        for _ in range(turns):
            await asyncio.sleep(0)
        await consumer.close()
        await serving
        with pytest.raises(ClientClosed):
            await consumer.run_until_stopped(signals=())
