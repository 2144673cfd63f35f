"""Order and locks while members come, leave and freeze, and while the broker is away."""

import asyncio
import random
from pathlib import Path

import pytest
from consumer_cluster import Servers, servers, until
from dejamq import ConsumeFrom, Message, PushConsumer, ReceivedMessage
from dejamq_lab import Cluster
from ordered_cluster import LOCK_LIFE_MS, NO_END_MS, TIMES, Ledger, ordered, send_keys

KEYS = {f"k{number}": range(40) for number in range(12)}
COUNTS = {key: numbers.stop for key, numbers in KEYS.items()}


@pytest.mark.parametrize("members", [2, 4])
async def test_order_per_key_holds_while_members_join_and_leave(
    tmp_path: Path, members: int, chance: random.Random
) -> None:
    """RocketMQ: OrderMsgDynamicRebalanceIT. No two members handle one queue at one time, and nothing is lost.

    One handler of fifty takes longer than a member that loses a queue waits for it at once.
    """
    ledger = Ledger()
    async with servers(tmp_path, rebalance_lock_max_live_time_ms=NO_END_MS) as here:

        def seconds() -> float:
            return 0.15 if chance.random() < 0.02 else 0.004

        def member(name: str) -> PushConsumer:
            return ordered(here, ledger, name, seconds=seconds, unlock_delay_time_ms=NO_END_MS)

        await send_keys(here, {key: range(10) for key in KEYS})
        present: list[PushConsumer] = []
        sending = asyncio.ensure_future(_send_slowly(here, 10, 40))
        for step in range(8):
            if len(present) < 2 or (len(present) < members and chance.random() < 0.6):
                present.append(member(f"m{step}"))
                await present[-1].start()
            else:
                await present.pop(chance.randrange(len(present))).close()
            at = min(len(ledger.entered) + 20, sum(COUNTS.values()))
            await until(lambda: len(ledger.entered) >= at)  # noqa: B023  # awaited at once
        await sending
        await until(lambda: not ledger.missing(COUNTS), 30)
        for consumer in present:
            await consumer.close()
    assert ledger.overlaps == []
    assert ledger.skips() == []


async def test_closing_hands_a_queue_over_without_a_repeat(tmp_path: Path) -> None:
    """The progress is committed before the lock is given back, so the next owner begins where this one ended."""
    ledger = Ledger()
    async with servers(tmp_path, rebalance_lock_max_live_time_ms=NO_END_MS) as here:
        await send_keys(here, KEYS)
        first = ordered(here, ledger, "first", seconds=0.001)
        await first.start()
        await until(lambda: len(ledger.entered) >= 100)
        await first.close()
        async with ordered(here, ledger, "second"):
            await until(lambda: not ledger.missing(COUNTS))
    assert len(ledger.entered) == sum(COUNTS.values())
    assert ledger.skips() == ledger.overlaps == []


async def test_a_handler_that_does_not_end_before_the_deadline_of_close_is_cancelled_and_its_queue_unlocked(
    tmp_path: Path,
) -> None:
    ledger, entered = Ledger(), list[str]()

    async def endless(message: ReceivedMessage) -> None:
        entered.append(message.body.decode())
        await asyncio.Event().wait()

    async with servers(tmp_path, rebalance_lock_max_live_time_ms=NO_END_MS) as here:
        await send_keys(here, {"k": range(3)})
        consumer = here.consumer(ordered=True, await_termination_ms=50, **TIMES)
        consumer.subscribe("orders", endless)
        async with consumer:
            await until(lambda: entered)
        async with ordered(here, ledger, "next"):
            await until(lambda: ledger.numbers("k") == [0, 1, 2])
    assert entered == ["k:0"]
    (result,) = here.lines("RESULT", consumer.boot_id)
    assert result["status"] == "cancelled"


async def test_a_killed_member_keeps_its_queues_until_its_locks_end(tmp_path: Path) -> None:
    """The membership ends with the connection, the lock does not."""
    ledger = Ledger()
    async with servers(tmp_path, rebalance_lock_max_live_time_ms=LOCK_LIFE_MS) as here:
        await send_keys(here, {"k": range(3)})
        killed = ordered(here, ledger, "killed")
        await killed.start()
        await until(lambda: len(ledger.entered) == 3)
        await until(lambda: len(here.lines("PQ_OPEN", killed.boot_id)) == 5)  # a round cut short gives locks back
        await _cut_off(killed)
        async with ordered(here, ledger, "next") as consumer:
            await until(lambda: len(consumer.assignment) == 4)
            await send_keys(here, {"k": range(3, 6)})
            await until(lambda: ledger.numbers("k")[-1] == 5)
            before, after = killed.client_id, consumer.client_id
        await killed.close(0)
    takeovers = [line for line in here.server_lines("LOCK") if line["granted"] and line.get("owner") == before]
    assert len([line for line in takeovers if line["client_id"] == after]) == 5
    assert all(line["age_ms"] > LOCK_LIFE_MS for line in takeovers if line["client_id"] == after)
    assert ledger.skips() == []


async def test_order_per_key_survives_restarts_of_the_broker(tmp_path: Path) -> None:
    """A broker that comes back has forgotten all locks; members renew theirs as soon as they are connected again."""
    ledger = Ledger()
    async with servers(tmp_path, rebalance_lock_max_live_time_ms=LOCK_LIFE_MS) as here:
        await send_keys(here, {key: range(10) for key in KEYS})
        names = ("a", "b", "c")
        consumers = [ordered(here, ledger, name, seconds=0.003) for name in names]
        for consumer in consumers:
            await consumer.start()
        for start in (10, 25):
            await until(lambda: len(ledger.entered) >= start * 6)  # noqa: B023  # awaited at once
            await here.stop_broker()
            await here.start_broker()
            await send_keys(here, {key: range(start, start + 15) for key in KEYS})
        await until(lambda: not ledger.missing(COUNTS), 30)
        await until(lambda: sum(len(consumer.assignment) for consumer in consumers) == 4)
        for consumer in consumers:
            await consumer.close()
    assert ledger.skips() == []


async def test_locks_are_renewed_as_soon_as_a_broker_is_back(tmp_path: Path) -> None:
    """Or whoever asks first in the next 20 s would get them (cause R10)."""
    ledger, times = Ledger(), {"lock_interval_ms": 600_000, "lock_max_live_time_ms": 900_000}
    async with servers(tmp_path) as here:
        await send_keys(here, {"k": range(1)})
        async with ordered(here, ledger, "one", **times) as one:
            await until(lambda: len(one.assignment) == 4)
            await here.stop_broker()
            await here.start_broker()
            assert here.broker is not None
            table = here.broker.domain.members.locks._table
            await until(lambda: len(table._groups.get("g", {})) == 5)
            assert {lock.client_id for lock in table._groups["g"].values()} == {one.client_id}


async def test_a_broker_that_stays_away_longer_than_the_locks_stops_handlers_until_it_is_back(tmp_path: Path) -> None:
    """After 30 s without a renewal a member no longer trusts its lock; another may have it."""
    ledger = Ledger()
    async with servers(tmp_path, rebalance_lock_max_live_time_ms=LOCK_LIFE_MS) as here:
        await send_keys(here, {"k": range(80)})
        async with ordered(here, ledger, "one", seconds=0.02) as consumer:
            await until(lambda: len(ledger.entered) >= 3)
            assert consumer.inspect().rebalancer.assignment.owned
            await here.stop_broker()
            locks = consumer.inspect().locks
            assert locks is not None
            await until(lambda: not any(locks.held(one) for one in consumer.inspect().rebalancer.assignment))
            await until(lambda: not ledger.running.total())
            stopped = len(ledger.entered)
            await until(lambda: len(here.lines("RESULT")) == stopped)
            assert stopped < 80
            await here.start_broker()
            await until(lambda: not ledger.missing({"k": 80}), 30)
    assert ledger.numbers("k") == list(range(80)), "what was cached went on where it had stopped"


async def test_while_a_handler_runs_its_queue_is_not_given_to_the_next_owner(tmp_path: Path) -> None:
    """RocketMQ: the consume lock. The result of that handler still counts for nothing (cause O9)."""
    ledger, go_on = Ledger(), asyncio.Event()

    async def slow(message: ReceivedMessage) -> None:
        ledger.running[message.queue] += 1
        await go_on.wait()
        ledger.running[message.queue] -= 1

    times = TIMES | {"unlock_delay_time_ms": NO_END_MS}
    async with servers(tmp_path, rebalance_lock_max_live_time_ms=NO_END_MS) as here:
        await send_keys(here, {f"k{number}": range(1) for number in range(16)})
        one = here.consumer(ordered=True, **times)
        one.subscribe("orders", slow)
        async with one:
            await until(lambda: ledger.running.total() == 4)
            async with ordered(here, ledger, "two", **times) as two:
                await until(lambda: len(one.assignment) == 2)
                await until(lambda: _refusals(here, two.client_id) >= 10)
                assert two.assignment == ()
                go_on.set()
                await until(lambda: len(two.assignment) == 2)
                await until(lambda: ledger.entered)
    assert ledger.overlaps == []
    dropped = [line for line in here.lines("RESULT") if line.get("pq_dropped")]
    assert len(dropped) == 2


async def test_a_handler_that_runs_too_long_loses_its_lock_by_force(tmp_path: Path) -> None:
    """Cause R11: after 20 s without renewal the queue is unlocked under it, and the next owner handles it as well."""
    ledger, go_on, entered = Ledger(), asyncio.Event(), list[str]()

    async def stuck(message: ReceivedMessage) -> None:
        entered.append(message.body.decode())
        await go_on.wait()

    async with servers(tmp_path, rebalance_lock_max_live_time_ms=NO_END_MS) as here:
        await send_keys(here, {f"k{number}": range(1) for number in range(16)})
        one = here.consumer(ordered=True, await_termination_ms=5_000, **TIMES)
        one.subscribe("orders", stuck)
        async with one:
            await until(lambda: len(entered) == 4)
            async with ordered(here, ledger, "two"):
                await until(lambda: ledger.entered)
                go_on.set()
    assert {f"{key}:{number}" for _, key, number in ledger.entered} & set(entered), "two members had it at once"
    assert sum(line.get("forced", False) for line in here.lines("UNLOCK")) == 2


async def test_a_member_cut_off_ends_the_message_in_hand_and_hands_out_no_other(tmp_path: Path) -> None:
    """Cause R9: its lock ends at the broker under the running handler, which the next owner repeats."""
    ledger, go_on, entered = Ledger(), asyncio.Event(), list[str]()

    async def slow(message: ReceivedMessage) -> None:
        entered.append(message.body.decode())
        await go_on.wait()

    async with servers(tmp_path, rebalance_lock_max_live_time_ms=LOCK_LIFE_MS) as here:
        await send_keys(here, {"k": range(5)})
        one = here.consumer(ordered=True, await_termination_ms=1_000, **TIMES)
        one.subscribe("orders", slow)
        async with one:
            await until(lambda: entered)
            await _cut_off(one, "locks", "presence", "rebalance", "persist")
            async with ordered(here, ledger, "two"):
                await until(lambda: len(ledger.entered) == 5)
                go_on.set()
                await until(lambda: here.lines("RESULT", one.boot_id))
                await until(lambda: _refusals(here, one.client_id) >= 1)
    assert entered == ["k:0"]
    assert ledger.numbers("k") == list(range(5))


async def test_queues_of_two_brokers_are_locked_and_consumed_in_order(tmp_path: Path) -> None:
    topics, counts = {"orders": 4}, dict.fromkeys((f"k{number}" for number in range(16)), 20)
    ledger = Ledger()
    settings = {"rebalance_lock_max_live_time_ms": NO_END_MS}
    async with Cluster(brokers=2, topics=topics, settings=settings, time_scale=0.05, directory=tmp_path) as cluster:

        def member(name: str) -> PushConsumer:
            consumer = cluster.push_consumer("g", ordered=True, consume_from=ConsumeFrom.FIRST_OFFSET)

            async def handler(message: ReceivedMessage) -> None:
                await ledger.handle(name, message, 0.001)

            consumer.subscribe("orders", handler)
            return consumer

        async with cluster.producer("p") as producer, member("one") as one, member("two") as two:
            await until(lambda: len(one.assignment) == len(two.assignment) == 4)
            assert {queue.broker_name for queue in one.assignment + two.assignment} == {"broker-a", "broker-b"}
            for number in range(20):
                sends = (Message("orders", f"{key}:{number}".encode(), sharding_key=key) for key in counts)
                await asyncio.gather(*map(producer.send, sends))
            await until(lambda: len(ledger.entered) >= 100)
            await one.close()
            await until(lambda: not ledger.missing(counts))
    assert ledger.skips() == ledger.overlaps == []
    assert len(ledger.entered) == 320, "a hand-over on close repeats nothing"


async def test_a_member_that_finds_its_lock_taken_gives_the_queue_up_and_does_not_touch_its_progress(
    tmp_path: Path,
) -> None:
    """As after a freeze of a minute: somebody else owns the queue and commits its offset."""
    ledger = Ledger()
    async with servers(tmp_path, rebalance_lock_max_live_time_ms=NO_END_MS) as here:
        await send_keys(here, {"k": range(3)})
        async with ordered(here, ledger, "one") as one:
            await until(lambda: len(ledger.entered) == 3)
            assert here.broker is not None
            table = here.broker.domain.members.locks._table
            for lock in table._groups["g"].values():
                lock.client_id = "somebody else"
            await until(lambda: not one.assignment)
            boot_id = one.boot_id
            dropped = [line for line in here.lines("PQ_DROP", boot_id) if line["reason"] == "lock_lost"]
            assert len(dropped) == 5
            numbers = {line["pq_id"] for line in dropped}
            lines = here.lines("", boot_id)
            after = lines[lines.index(dropped[0]) :]
            assert not [line for line in after if line["event"] == "PERSIST" and line["pq_id"] in numbers]
            for lock in table._groups["g"].values():
                lock.client_id = one.client_id
            await until(lambda: len(one.assignment) == 4)
            await send_keys(here, {"k": range(3, 6)})
            await until(lambda: ledger.numbers("k")[-1] == 5)
    assert ledger.skips() == []


async def test_handlers_that_fail_at_random_never_break_the_order(tmp_path: Path, chance: random.Random) -> None:
    ledger = Ledger()

    def member(name: str) -> PushConsumer:
        consumer = here.consumer(ordered=True, **TIMES | {"suspend_current_queue_time_ms": 10})

        async def handler(message: ReceivedMessage) -> None:
            await ledger.handle(name, message)
            if chance.random() < 0.1:
                raise ValueError("by chance")

        consumer.subscribe("orders", handler)
        return consumer

    async with servers(tmp_path, rebalance_lock_max_live_time_ms=NO_END_MS) as here:
        await send_keys(here, KEYS)
        async with member("one"), member("two"):
            await until(lambda: not ledger.missing(COUNTS), 30)
    assert ledger.skips() == []
    assert ledger.overlaps == []


def _refusals(here: Servers, client_id: str) -> int:
    mine = [line for line in here.server_lines("LOCK") if line["client_id"] == client_id]
    return sum(not line["granted"] for line in mine)


async def _send_slowly(here: Servers, start: int, stop: int) -> None:
    for number in range(start, stop, 5):
        await send_keys(here, {key: range(number, number + 5) for key in KEYS})


async def _cut_off(consumer: PushConsumer, *parts: str) -> None:
    """What a SIGKILL looks like to the broker; with ``parts`` only these tasks end, and handlers go on."""
    instance = consumer.inspect().instance
    for task in tuple(instance.inspect().tasks):
        if not parts or task.get_name().removeprefix("dejamq-") in parts:
            task.cancel()
    for link in instance.inspect().links.values():
        link.heartbeats.break_off("the test cut it")
