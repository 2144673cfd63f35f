"""Opening queues with claims on them, and letting them go drained, committed and released."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from consumer_fakes import FakeLink, a_fetcher, context, until
from dejamq.handling.subscriptions import Subscriptions
from dejamq.net.broker import Claimed
from dejamq.rebalance.consume_from import ConsumeFrom, StartRule
from dejamq.rebalance.handover import Handover
from dejamq.rebalance.plan import SharedQueues
from dejamq.rebalance.rebalancer import Rebalancer, RebalancerParts
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.values.config import ConsumerConfig, client_config
from dejamq.values.message import MessageQueue
from dejamq_proto.allocation import averagely
from dejamq_proto.codes import BrokerUnavailable, ConfigError, SendTimeout
from dejamq_proto.wire.messages import Key
from journalled import journalled

ORDERS = [MessageQueue("orders", "broker-a", number) for number in range(4)]
RETRY = MessageQueue("%RETRY%g", "broker-a", 0)
GONE = BrokerUnavailable("gone", definite=True)


class Bench:
    """A rebalancer with graceful hand-over; whether handlers run is what a test says of the process queues."""

    def __init__(self, directory: Path | None, **settings: Any) -> None:
        self.link, self.tasks = FakeLink(), list[asyncio.Task[None]]()
        self.context = context(
            self.link, directory, **{"claim_interval_ms": 100_000, "claim_trust_ms": 200_000} | settings
        )
        self.subscriptions = Subscriptions("g", lambda: 7)
        self.subscriptions.add("orders", self._handler, tags="*")
        deliveries = Deliveries(self.context)
        offsets = RemoteOffsetStore(self.context, deliveries)
        fetcher = a_fetcher(self.context, deliveries, offsets, lambda owned, messages: None)
        start = StartRule(self.context, offsets, ConsumeFrom.LAST_OFFSET, 0)
        self.handover = Handover(
            self.context, deliveries, self._spawn, owned=lambda: self.rebalancer.assignment,
            drop=lambda leaving, reason: self.rebalancer.release(leaving, reason),
            on_lost=lambda: self.rebalancer.wake(),
        )  # fmt: skip
        self.claims = self.handover.claims
        parts = RebalancerParts(
            self.subscriptions, deliveries, offsets, start, fetcher, self._route, self._spawn, handover=self.handover
        )
        self.rebalancer = Rebalancer(self.context, parts, "averagely", averagely)

    @property
    def queue_ids(self) -> list[int]:
        return [queue.queue_id for queue in self.rebalancer.assignment.queues()]

    def owned(self, number: int) -> OwnedQueue:
        return self.rebalancer.assignment.owned[ORDERS[number]]

    def released(self) -> dict[int, int]:
        """Offset by queue number of the topic."""
        return {queue_id: offset for (topic, queue_id), _, offset in self.link.released if topic == "orders"}

    async def share(self) -> None:
        """Half of the queues are another member's from now on."""
        self.link.members = ["me", "you"]
        assert not await self.rebalancer.round()

    async def _handler(self, message: object) -> None: ...

    async def _route(self, topic: str) -> SharedQueues:
        return SharedQueues(ORDERS if topic == "orders" else [RETRY], "127.0.0.1:9876", "digest")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]


@asynccontextmanager
async def bench(directory: Path | None = None, **settings: Any) -> AsyncIterator[Bench]:
    made = Bench(directory, **settings)
    try:
        await made.rebalancer.round()
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
        await here.rebalancer.release_all("shutdown")
        here.link.claimed_by_others = keys(1, 3)
        assert not await here.rebalancer.round(), "not balanced, so the next round comes after a second"
        assert here.queue_ids == [0, 2]
        here.link.claimed_by_others = set()
        assert await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 2, 3]


async def test_a_queue_is_opened_with_the_generation_of_its_claim(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert here.owned(0).generation == here.claims.held[ORDERS[0]].generation > 0
        generation = here.owned(0).generation
    opened = [line for line in journalled(tmp_path) if line["event"] == "PQ_OPEN" and line["topic"] == "orders"]
    assert [line["generation"] for line in opened] == [generation] * 4


async def test_a_lost_queue_is_drained_then_dropped_then_released_with_its_offset(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        lost = here.owned(3)
        lost.process_queue.put([0, 1], [1, 1])
        lost.process_queue.in_flight = 1
        await here.share()
        await until(lambda: 2 in here.released())
        assert lost.process_queue.draining
        assert not lost.dropped
        assert here.queue_ids == [0, 1, 3], "its results still count"
        lost.process_queue.finish(0)
        lost.process_queue.in_flight = 0
        await until(lambda: 3 in here.released())
        assert here.released() == {2: 0, 3: 1}
        assert await here.rebalancer.round()
        assert here.queue_ids == [0, 1]
    events = [
        line["event"] for line in journalled(tmp_path) if line.get("queue_id") == 3 and line["event"] != "PQ_OPEN"
    ]
    assert events == ["PQ_DROP", "PERSIST"]


async def test_a_failed_message_on_its_way_back_is_waited_for() -> None:
    async with bench() as here:
        lost = here.owned(3)
        lost.process_queue.settling = 1
        await here.share()
        await until(lambda: 2 in here.released())
        assert 3 not in here.released()
        lost.process_queue.settling = 0
        await until(lambda: 3 in here.released())


async def test_a_handler_that_runs_too_long_is_not_waited_for_any_longer(caplog: pytest.LogCaptureFixture) -> None:
    async with bench(handover_wait_ms=20) as here:
        lost = here.owned(3)
        lost.process_queue.put([0], [1])
        lost.process_queue.in_flight = 1
        await here.share()
        await until(lambda: 3 in here.released())
        assert (here.released()[3], lost.dropped) == (0, True)
    assert "handover_hurried queue=orders:broker-a:3: 1 messages come again" in caplog.text


async def test_a_queue_that_drains_is_not_pulled_any_more() -> None:
    async with bench() as here:
        lost = here.owned(3)
        lost.process_queue.in_flight = 1
        await here.share()
        assert lost.fetching is not None
        await until(lost.fetching.done)


async def test_a_queue_wanted_again_while_it_drains_is_opened_anew_afterwards() -> None:
    async with bench() as here:
        before = here.owned(3)
        before.process_queue.in_flight = 1
        await here.share()
        here.link.members = ["me"]
        assert not await here.rebalancer.round()
        assert here.owned(3) is before
        before.process_queue.in_flight = 0
        await until(lambda: 3 in here.released())
        await until(lambda: not here.handover.leaving)
        assert await here.rebalancer.round()
        assert here.owned(3).generation > before.generation


async def test_an_unsubscribed_topic_is_committed_too() -> None:
    """Without graceful hand-over its progress is forgotten, as in RocketMQ (cause O14)."""
    async with bench() as here:
        here.owned(0).process_queue.advance(50)
        here.subscriptions.remove("orders")
        await here.rebalancer.round()
        await until(lambda: here.released() == {0: 50, 1: 0, 2: 0, 3: 0})


async def test_a_release_is_tried_again_until_the_broker_answers(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.link.refuse["release"] = SendTimeout("no answer")
        await here.share()

        def outcomes() -> list[str]:
            told = [line for line in journalled(tmp_path) if line["event"] == "PERSIST" and line["queue_id"] == 3]
            return [line.get("outcome", "sent") for line in told]

        await until(lambda: len(outcomes()) >= 6)
        assert outcomes()[:4] == ["sent", "indefinite"] * 2
        assert ORDERS[3] in here.claims.held
        here.link.refuse.clear()
        await until(lambda: here.released() == {2: 0, 3: 0})
        await until(lambda: ORDERS[3] not in here.claims.held)


async def test_at_the_end_a_broker_that_does_not_answer_is_asked_three_times(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.link.refuse["release"] = GONE
        await here.rebalancer.release_all("shutdown")
        assert here.queue_ids == []
    tried = [line for line in journalled(tmp_path) if line["event"] == "PERSIST" and line.get("outcome") == "failed"]
    assert len(tried) == 15


async def test_at_the_end_everything_is_released_also_what_drains() -> None:
    async with bench() as here:
        lost = here.owned(3)
        lost.process_queue.in_flight = 1
        lost.process_queue.advance(9)
        await here.share()
        here.owned(0).process_queue.advance(7)
        await here.rebalancer.release_all("shutdown")
        assert here.released() == {0: 7, 1: 0, 2: 0, 3: 9}
        assert here.claims.held == {}


async def test_claims_whose_queues_cannot_be_opened_are_given_back_without_an_offset() -> None:
    async with bench() as here:
        await here.rebalancer.release_all("shutdown")
        here.link.released.clear()
        here.link.refuse["query_offset"] = GONE
        await here.rebalancer.round()
        assert here.released() == {0: -1, 1: -1, 2: -1, 3: -1}
        assert here.claims.held == {}


async def test_a_queue_whose_claim_is_lost_while_its_offset_is_read_is_not_opened() -> None:
    async with bench() as here:
        await here.rebalancer.release_all("shutdown")
        reading, go_on = asyncio.Event(), asyncio.Event()

        async def slow(group: str, topic: str, queue_id: int, *, seq: int = 0) -> int | None:
            reading.set()
            await go_on.wait()
            return 7

        here.link.query_offset = slow  # type: ignore[method-assign]
        round_ = asyncio.create_task(here.rebalancer.round())
        await reading.wait()
        here.link.claimed_by_others = {("%RETRY%g", 0)}
        await here.claims.renew()
        go_on.set()
        assert not await round_
        assert RETRY not in here.rebalancer.assignment
        assert here.queue_ids == [0, 1, 2, 3]


async def test_a_claim_whose_answer_is_not_awaited_is_given_back() -> None:
    async with bench() as here:
        await here.rebalancer.release_all("shutdown")
        here.link.released.clear()
        asked = asyncio.Event()

        async def endless(group: str, claims: Sequence[tuple[Key, int]]) -> Claimed:
            asked.set()
            await asyncio.Event().wait()
            return Claimed({}, "")

        here.link.claim = endless  # type: ignore[method-assign]
        round_ = asyncio.create_task(here.rebalancer.round())
        await asked.wait()
        round_.cancel()
        await asyncio.wait([round_])
        asked_for = [("%RETRY%g", 0), *sorted(keys(0, 1, 2, 3))]
        assert here.link.released == [(key, 0, -1) for key in asked_for], "whichever claims the broker gave"


@pytest.mark.parametrize(("error", "given_back"), [(SendTimeout("no answer"), 5), (GONE, 0)])
async def test_a_claim_that_may_have_been_granted_is_given_back(error: Any, given_back: int) -> None:
    async with bench() as here:
        await here.rebalancer.release_all("shutdown")
        here.link.released.clear()
        here.link.refuse["claim"] = error
        assert not await here.rebalancer.round()
        assert here.link.released == [(key, 0, -1) for key in [("%RETRY%g", 0), *sorted(keys(0, 1, 2, 3))][:given_back]]


async def test_a_queue_that_another_member_has_by_now_is_let_go_and_its_progress_left_alone(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.owned(2).process_queue.advance(50)
        lost = here.owned(2)
        here.link.claimed_by_others = keys(2)
        await here.claims.renew()
        assert lost.dropped
        assert not await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 3]
        assert (here.link.released, here.link.committed) == ([], {})
    dropped = journalled(tmp_path, "PQ_DROP")
    assert [(line["queue_id"], line["reason"]) for line in dropped] == [(2, "claim_lost")]


async def test_a_claim_that_could_not_be_renewed_for_too_long_ends_the_ownership_drained() -> None:
    async with bench(claim_interval_ms=10, claim_trust_ms=60_000) as here:
        held = here.claims.held[ORDERS[1]]
        held.asked_s = time.monotonic() - 61
        here.owned(1).process_queue.in_flight = 1
        here.owned(1).process_queue.advance(5)
        lost = here.owned(1)
        here.link.refuse["claim"] = here.link.refuse["release"] = SendTimeout("no answer")
        assert not await here.claims.renew()
        assert lost.process_queue.draining
        assert not lost.dropped
        assert not here.owned(0).process_queue.draining
        here.link.refuse.clear()
        lost.process_queue.in_flight = 0
        await until(lambda: here.released() == {1: 5})
        await until(lambda: not here.handover.leaving)
        assert await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 2, 3]


async def test_after_a_long_stop_no_further_message_is_handed_out_before_the_broker_has_answered() -> None:
    """Cause R6."""
    async with bench(claim_interval_ms=10, claim_trust_ms=60_000) as here:
        asked = asyncio.Event()

        async def endless(group: str, claims: Sequence[tuple[Key, int]]) -> Claimed:
            asked.set()
            await asyncio.Event().wait()
            return Claimed({}, "")

        here.link.claim = endless  # type: ignore[method-assign]
        for claim in here.claims.held.values():
            claim.asked_s -= 61
        here.tasks.append(asyncio.create_task(here.claims.run()))
        await asked.wait()
        assert all(owned.process_queue.draining for owned in here.rebalancer.assignment)


async def test_a_claim_on_its_way_back_is_neither_renewed_nor_asked_for() -> None:
    async with bench() as here:
        here.link.refuse["release"] = SendTimeout("no answer")
        await here.share()
        await until(lambda: here.claims.held[ORDERS[3]].returning)
        here.link.claim_calls.clear()
        assert await here.claims.renew()
        here.link.members = ["me"]
        await here.rebalancer.round()
        assert {key for call in here.link.claim_calls for key in call} == {("%RETRY%g", 0), *keys(0, 1)}


async def test_claims_are_renewed_at_their_interval_and_when_woken() -> None:
    async with bench(claim_interval_ms=10, claim_trust_ms=60_000) as here:
        here.link.claim_calls.clear()
        running = asyncio.create_task(here.claims.run())
        await until(lambda: len(here.link.claim_calls) >= 3)
        assert here.link.claim_calls[0] == {(queue.topic, queue.queue_id): 1 for queue in here.claims.held} | {
            key: here.owned(0).generation for key in keys(0, 1, 2, 3)
        }
        running.cancel()
    async with bench() as here:
        here.link.claim_calls.clear()
        here.tasks.append(asyncio.create_task(here.claims.run()))
        here.claims.wake()
        await until(lambda: here.link.claim_calls)


def test_times_by_which_claims_would_end_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be below claim_trust_ms"):
        client_config(ConsumerConfig, None, {"claim_interval_ms": 30_000})
