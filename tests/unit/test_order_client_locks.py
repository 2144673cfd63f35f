"""The client's side of queue locks, against a broker that exists only in memory."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from consumer_fakes import FakeLink, context
from dejamq.rebalance.locks import QueueLocks
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.process_queue import ProcessQueue
from dejamq.values.message import MessageQueue
from dejamq_proto.codes import BrokerUnavailable
from dejamq_proto.wire.messages import Key
from journalled import journalled

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]


class Bench:
    """Locks of some owned queues; ``handlers`` are the numbers of queues with a handler that runs."""

    def __init__(self, directory: Path | None = None, **settings: Any) -> None:
        self.link, self.owned, self.handlers = FakeLink(), list[OwnedQueue](), set[int]()
        settings = {"lock_max_live_time_ms": 60_000, "lock_interval_ms": 40_000} | settings
        self.context = context(self.link, directory, **settings)
        self.lost = 0
        self.locks = QueueLocks(self.context, lambda: self.owned, self._quiet, self._lose)

    async def open(self, *queues: MessageQueue) -> list[OwnedQueue]:
        for queue, locked_at_s in (await self.locks.lock(queues)).items():
            number = len(self.owned) + 1
            self.owned.append(OwnedQueue(number, queue, ProcessQueue(0), 0, locked_at_s=locked_at_s))
        return self.owned

    def _lose(self) -> None:
        self.lost += 1

    async def _quiet(self, owned: OwnedQueue, timeout_s: float) -> bool:
        return owned.number not in self.handlers


def keys(*numbers: int) -> list[Key]:
    return [("orders", number) for number in numbers]


async def test_only_the_queues_whose_locks_are_granted_are_given() -> None:
    bench = Bench()
    bench.link.locked_by_others = set(keys(1))
    assert [one.queue.queue_id for one in await bench.open(*QUEUES)] == [0, 2]
    assert bench.link.lock_calls == [keys(0, 1, 2)], "one call a broker"


async def test_a_broker_that_does_not_answer_grants_nothing() -> None:
    bench = Bench()
    bench.link.refuse["lock_batch"] = BrokerUnavailable("gone")
    assert await bench.open(*QUEUES) == []


async def test_a_lock_is_believed_in_for_its_life_only() -> None:
    bench = Bench(lock_max_live_time_ms=60_000, lock_interval_ms=1)
    (one,) = await bench.open(QUEUES[0])
    assert bench.locks.held(one)
    assert one.locked_at_s is not None
    one.locked_at_s -= 60
    assert not bench.locks.held(one)
    await bench.locks.renew([one])
    assert bench.locks.held(one)


async def test_a_renewal_that_fails_leaves_the_belief_as_it_was() -> None:
    bench = Bench()
    (one,) = await bench.open(QUEUES[0])
    before = one.locked_at_s
    bench.link.refuse["lock_batch"] = BrokerUnavailable("gone")
    await bench.locks.renew([one])
    assert (one.locked_at_s, one.dropped, one.lock_lost) == (before, False, False)


async def test_a_refused_renewal_drops_the_queue_and_tells() -> None:
    bench = Bench()
    first, second = await bench.open(*QUEUES[:2])
    bench.link.locked_by_others = set(keys(1))
    await bench.locks.renew([first, second])
    assert (first.dropped, second.dropped, second.lock_lost, bench.lost) == (False, True, True, 1)
    await bench.locks.give_up([second])
    assert bench.link.unlocked == [], "it is somebody else's"


async def test_renewals_come_by_their_interval_and_when_woken() -> None:
    bench = Bench(lock_interval_ms=20_000)
    await bench.open(QUEUES[0])
    task = asyncio.create_task(bench.locks.run())
    bench.locks.wake()
    async with asyncio.timeout(20):
        while len(bench.link.lock_calls) < 2:
            await asyncio.sleep(0.001)
    task.cancel()
    quick = Bench(lock_interval_ms=2)
    await quick.open(QUEUES[0])
    task = asyncio.create_task(quick.locks.run())
    async with asyncio.timeout(20):
        while len(quick.link.lock_calls) < 5:
            await asyncio.sleep(0.001)
    task.cancel()


async def test_dropped_queues_are_not_renewed() -> None:
    bench = Bench(lock_interval_ms=2)
    first, second = await bench.open(*QUEUES[:2])
    first.process_queue.dropped = True
    task = asyncio.create_task(bench.locks.run())
    async with asyncio.timeout(20):
        while len(bench.link.lock_calls) < 4:
            await asyncio.sleep(0.001)
    task.cancel()
    assert bench.link.lock_calls[1:4] == [keys(1)] * 3
    assert second.locked_at_s is not None


async def test_a_queue_without_a_handler_is_unlocked_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.locks.give_up(await bench.open(*QUEUES[:2]))
    assert bench.link.unlocked == keys(0, 1)
    bench.context.journal.close()
    told = [
        (line["event"], line["queue_id"], line["pq_id"], line.get("forced", False)) for line in journalled(tmp_path)
    ]
    assert told == [("UNLOCK", 0, 1, False), ("UNLOCK", 1, 2, False)]


async def test_a_queue_with_a_handler_stays_locked_and_is_not_asked_for_again() -> None:
    bench = Bench(unlock_delay_time_ms=600_000)
    (one,) = await bench.open(QUEUES[0])
    bench.handlers = {1}
    await bench.locks.give_up([one])
    await bench.locks.give_up_leaving()
    assert (list(bench.locks.leaving), bench.link.unlocked) == ([1], [])
    assert await bench.locks.lock(QUEUES[:2]) == {QUEUES[1]: pytest.approx(one.locked_at_s, abs=60)}
    bench.handlers = set()
    await bench.locks.give_up_leaving()
    assert (list(bench.locks.leaving), bench.link.unlocked) == ([], keys(0))


async def test_a_handler_that_runs_on_for_longer_loses_the_lock_by_force(tmp_path: Path) -> None:
    bench = Bench(tmp_path, unlock_delay_time_ms=20_000)
    (one,) = await bench.open(QUEUES[0])
    bench.handlers = {1}
    await bench.locks.give_up([one])
    assert one.locked_at_s is not None
    one.locked_at_s -= 20.001
    await bench.locks.give_up_leaving()
    assert bench.link.unlocked == keys(0)
    bench.context.journal.close()
    assert [line["forced"] for line in journalled(tmp_path)] == [True]


async def test_a_lock_that_a_late_renewal_took_again_is_given_back_again() -> None:
    bench, go_on = Bench(), asyncio.Event()
    (one,) = await bench.open(QUEUES[0])
    answer = bench.link.lock_batch

    async def late(group: str, wanted: list[Key], *, timeout_ms: float, seq: int = 0) -> set[Key]:
        await go_on.wait()
        return await answer(group, wanted, timeout_ms=timeout_ms)

    bench.link.lock_batch = late  # type: ignore[method-assign, assignment]
    renewing = asyncio.create_task(bench.locks.renew([one]))
    await asyncio.sleep(0)
    await bench.locks.give_up([one])
    assert bench.link.unlocked == keys(0)
    go_on.set()
    await renewing
    assert bench.link.unlocked == keys(0, 0), "or nobody else could have it for a minute"


async def test_a_late_renewal_of_a_former_ownership_does_not_unlock_the_new_one() -> None:
    bench, go_on = Bench(), asyncio.Event()
    (one,) = await bench.open(QUEUES[0])
    answer, calls = bench.link.lock_batch, list[int]()

    async def once_late(group: str, wanted: list[Key], *, timeout_ms: float, seq: int = 0) -> set[Key]:
        calls.append(1)
        if len(calls) == 1:
            await go_on.wait()
        return await answer(group, wanted, timeout_ms=timeout_ms)

    bench.link.lock_batch = once_late  # type: ignore[method-assign, assignment]
    renewing = asyncio.create_task(bench.locks.renew([one]))
    await asyncio.sleep(0)
    await bench.locks.give_up([one])
    assert len(await bench.locks.lock(QUEUES[:1])) == 1, "regained while its renewal is under way"
    go_on.set()
    await renewing
    assert bench.link.unlocked == keys(0), "only by giving it up"


async def test_locks_that_are_given_back_at_once_are_journalled_with_their_ownership(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    one, other = await bench.open(*QUEUES[:2])
    other.locked_at_s = None
    bench.locks.unlock_owned([one, other])
    assert [(line["event"], line["queue_id"], line["pq_id"]) for line in journalled(tmp_path)] == [("UNLOCK", 0, 1)]
    assert one.locked_at_s is None, "a renewal under way does not take it again"
