"""Opening queues with their locks and letting them go again, in RocketMQ's order (RebalancePushImpl)."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from consumer_fakes import FakeLink, a_fetcher, context, until
from dejamq.handling.subscriptions import Subscriptions
from dejamq.rebalance.consume_from import ConsumeFrom, StartRule
from dejamq.rebalance.locks import QueueLocks
from dejamq.rebalance.plan import SharedQueues
from dejamq.rebalance.rebalancer import Rebalancer, RebalancerParts
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.values.message import MessageQueue
from dejamq_proto.allocation import averagely
from dejamq_proto.codes import BrokerUnavailable
from dejamq_proto.wire.messages import Key
from journalled import journalled
from msgspec.structs import replace

ORDERS = [MessageQueue("orders", "broker-a", number) for number in range(4)]
RETRY = MessageQueue("%RETRY%g", "broker-a", 0)


class Bench:
    """A rebalancer of an ordered consumer; ``handlers`` are the queues with a handler that runs."""

    def __init__(self, directory: Path | None, **settings: Any) -> None:
        self.link, self.handlers, self.tasks = FakeLink(), set[MessageQueue](), list[asyncio.Task[None]]()
        self.others, self.orders = dict[str, FakeLink](), ORDERS
        made = context(self.link, directory, **{"unlock_delay_time_ms": 600_000} | settings)
        self.context = replace(made, link=lambda name: self.others.get(name, self.link))
        self.subscriptions = Subscriptions("g", lambda: 7)
        self.subscriptions.add("orders", self._handler, tags="*")
        deliveries = Deliveries(self.context)
        offsets = RemoteOffsetStore(self.context, deliveries)
        self.locks = QueueLocks(self.context, lambda: self.rebalancer.assignment, self._quiet, lambda: None)
        self.fetcher = a_fetcher(
            self.context, deliveries, offsets, lambda owned, messages: None, locked=self.locks.held
        )
        start = StartRule(self.context, offsets, ConsumeFrom.LAST_OFFSET, 0)
        parts = RebalancerParts(
            self.subscriptions, deliveries, offsets, start, self.fetcher, self._route, self._spawn, self.locks
        )
        self.rebalancer = Rebalancer(self.context, parts, "averagely", averagely)

    @property
    def queue_ids(self) -> list[int]:
        return [queue.queue_id for queue in self.rebalancer.assignment.queues()]

    async def _handler(self, message: object) -> None: ...

    async def _quiet(self, owned: OwnedQueue, timeout_s: float) -> bool:
        return owned.queue not in self.handlers

    async def _route(self, topic: str) -> SharedQueues:
        return SharedQueues(self.orders if topic == "orders" else [RETRY], "127.0.0.1:9876", "digest")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]


@asynccontextmanager
async def bench(directory: Path | None = None, **settings: Any) -> AsyncIterator[Bench]:
    made = Bench(directory, **settings)
    try:
        yield made
    finally:
        for task in made.tasks:
            task.cancel()
        if made.tasks:
            await asyncio.wait(made.tasks)
        made.context.journal.close()


def keys(*numbers: int) -> set[Key]:
    return {("orders", number) for number in numbers}


async def test_queues_that_others_hold_are_passed_over_and_asked_for_again_soon() -> None:
    async with bench() as here:
        here.link.locked_by_others = keys(1, 3)
        assert not await here.rebalancer.round(), "not balanced, so the next round comes after a second"
        assert here.queue_ids == [0, 2]
        here.link.locked_by_others = keys(3)
        assert not await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 2]
        here.link.locked_by_others = set()
        assert await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 2, 3]


async def test_the_lock_comes_before_the_offset_is_read() -> None:
    async with bench() as here:
        here.link.refuse["query_offset"] = BrokerUnavailable("gone")
        here.link.locked_by_others = keys(0, 1, 2)
        await here.rebalancer.round()
        assert here.queue_ids == []
        assert set(here.link.unlocked) == {("orders", 3), ("%RETRY%g", 0)}, "locked, not opened, given back"


async def test_locks_of_a_round_that_is_cancelled_are_given_back() -> None:
    async with bench() as here:
        reading = asyncio.Event()

        async def endless(group: str, topic: str, queue_id: int, *, seq: int = 0) -> int | None:
            reading.set()
            await asyncio.Event().wait()
            return None

        here.link.query_offset = endless  # type: ignore[method-assign]
        round_ = asyncio.create_task(here.rebalancer.round())
        await reading.wait()
        round_.cancel()
        await asyncio.wait([round_])
        asked_for = [("%RETRY%g", 0), *(("orders", number) for number in range(4))]
        assert here.link.lock_calls == [asked_for]
        assert here.link.unlocked == asked_for


class SilentLink(FakeLink):
    """A broker that does not answer to requests for locks."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def lock_batch(self, group: str, keys: Sequence[Key], *, timeout_ms: float, seq: int = 0) -> set[Key]:
        self.asked.set()
        await asyncio.Event().wait()
        return set()


async def test_locks_that_were_asked_for_when_a_round_was_cancelled_are_given_back() -> None:
    """The answer may be on its way, and nobody would have the queues for a minute."""
    async with bench() as here:
        here.link = silent = SilentLink()
        round_ = asyncio.create_task(here.rebalancer.round())
        await silent.asked.wait()
        round_.cancel()
        await asyncio.wait([round_])
        assert silent.unlocked == [("%RETRY%g", 0), *(("orders", number) for number in range(4))]


async def test_a_broker_that_does_not_lock_keeps_no_queues_of_others_waiting() -> None:
    async with bench() as here:
        here.orders = [*ORDERS, MessageQueue("orders", "broker-b", 4)]
        here.others["broker-b"] = silent = SilentLink()
        round_ = asyncio.create_task(here.rebalancer.round())
        await until(lambda: here.queue_ids == [0, 1, 2, 3])
        assert silent.asked.is_set()
        assert not round_.done()
        round_.cancel()
        await asyncio.wait([round_])


async def test_a_lost_queue_is_dropped_then_committed_then_unlocked(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.rebalancer.round()
        for owned in here.rebalancer.assignment:
            owned.process_queue.advance(50)
        here.link.members = ["me", "you"]
        assert await here.rebalancer.round()
        assert here.queue_ids == [0, 1]
        assert set(here.link.unlocked) == keys(2, 3)
    events = [
        line["event"] for line in journalled(tmp_path) if line.get("queue_id") == 3 and line["event"] != "PQ_OPEN"
    ]
    assert events == ["PQ_DROP", "PERSIST", "UNLOCK"]


async def test_a_queue_with_a_running_handler_is_committed_now_and_unlocked_in_a_later_round() -> None:
    async with bench() as here:
        await here.rebalancer.round()
        for owned in here.rebalancer.assignment:
            owned.process_queue.advance(50)
        here.handlers = {ORDERS[3]}
        here.link.members = ["me", "you"]
        assert not await here.rebalancer.round()
        assert (set(here.link.unlocked), here.link.committed["orders", 3]) == (keys(2), 50)
        here.handlers = set()
        assert await here.rebalancer.round()
        assert set(here.link.unlocked) == keys(2, 3)


async def test_a_queue_regained_while_its_old_handler_runs_is_opened_when_that_ended() -> None:
    async with bench() as here:
        await here.rebalancer.round()
        here.handlers = {ORDERS[3]}
        here.link.members = ["me", "you"]
        await here.rebalancer.round()
        here.link.members = ["me"]
        assert not await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 2]
        here.handlers = set()
        assert await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 2, 3]


async def test_a_queue_whose_lock_was_lost_is_let_go_without_a_commit_or_an_unlock(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.rebalancer.round()
        for owned in here.rebalancer.assignment:
            owned.process_queue.advance(50)
        here.link.locked_by_others = keys(2)
        await here.locks.renew(list(here.rebalancer.assignment))
        assert not await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 3]
        assert (here.link.committed, here.link.unlocked) == ({}, [])
    dropped = journalled(tmp_path, "PQ_DROP")
    assert [(line["queue_id"], line["reason"]) for line in dropped] == [(2, "lock_lost")]


async def test_at_the_end_everything_is_unlocked_also_what_waited_for_its_handler() -> None:
    async with bench() as here:
        await here.rebalancer.round()
        here.handlers = {ORDERS[3]}
        here.link.members = ["me", "you"]
        await here.rebalancer.round()
        here.handlers = set()
        await here.rebalancer.release_all("shutdown")
        assert set(here.link.unlocked) == keys(0, 1, 2, 3) | {("%RETRY%g", 0)}


async def test_an_unsubscribed_topic_is_unlocked_and_not_committed() -> None:
    async with bench() as here:
        await here.rebalancer.round()
        for owned in here.rebalancer.assignment:
            owned.process_queue.advance(50)
        here.subscriptions.remove("orders")
        await here.rebalancer.round()
        assert set(here.link.unlocked) == keys(0, 1, 2, 3)
        assert here.link.committed == {}


async def test_a_queue_is_pulled_only_while_its_lock_is_believed_in() -> None:
    async with bench(lock_max_live_time_ms=60_000) as here:
        await here.rebalancer.round()
        owned = here.rebalancer.assignment.owned[ORDERS[0]]
        owned.locked_at_s = time.monotonic() - 61
        await _five_pulls_of(here, 1)  # one of queue 0 may be under way
        before = _pulls_of(here, 0)
        await _five_pulls_of(here, 1)
        assert _pulls_of(here, 0) == before
        owned.locked_at_s = time.monotonic()
        await _five_pulls_of(here, 0)


async def test_how_far_messages_are_apart_does_not_stop_pulling_in_order() -> None:
    async with bench(consume_concurrently_max_span=10) as here:
        await here.rebalancer.round()
        owned = here.rebalancer.assignment.owned[ORDERS[0]]
        owned.process_queue.put([0, 5_000], [1, 1])
        await _five_pulls_of(here, 0)


def _pulls_of(here: Bench, queue_id: int) -> int:
    return sum((pull.topic, pull.queue_id) == ("orders", queue_id) for pull in here.link.pulls)


async def _five_pulls_of(here: Bench, queue_id: int) -> None:
    """Until the queue was pulled five more times."""
    start = _pulls_of(here, queue_id)
    async with asyncio.timeout(10):
        while _pulls_of(here, queue_id) < start + 5:
            await asyncio.sleep(0.001)
