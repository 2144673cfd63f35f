import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from consumer_fakes import FakeLink, a_fetcher, context, until
from dejamq.handling.subscriptions import Subscriptions
from dejamq.rebalance.consume_from import ConsumeFrom, StartRule
from dejamq.rebalance.plan import SharedQueues
from dejamq.rebalance.rebalancer import Rebalancer, RebalancerParts
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.values.config import ConsumerConfig, client_config
from dejamq.values.message import MessageQueue
from dejamq_proto.allocation import averagely
from dejamq_proto.codes import BrokerUnavailable, Code, ConfigError, RouteNotFound
from dejamq_proto.wire.messages import PullAnswer
from journalled import journalled
from msgspec.structs import replace

ORDERS = [MessageQueue("orders", "broker-a", number) for number in range(4)]
RETRY = MessageQueue("%RETRY%g", "broker-a", 0)


class Bench:
    """A rebalancer with everything around it replaced by what a test says."""

    def __init__(
        self, directory: Path | None = None, *, rule: ConsumeFrom = ConsumeFrom.LAST_OFFSET, **settings: Any
    ) -> None:
        self.link = FakeLink()
        self.routes: dict[str, Sequence[MessageQueue]] = {"orders": ORDERS, "%RETRY%g": [RETRY]}
        self.others: dict[str, FakeLink] = {}
        made = context(self.link, directory, **settings)
        self.context: ConsumerContext = replace(made, link=lambda name: self.others.get(name, self.link))
        self.subscriptions = Subscriptions("g", lambda: 7)
        self.subscriptions.add("orders", self._handler, tags="a || b")
        deliveries = Deliveries(self.context)
        offsets = RemoteOffsetStore(self.context, deliveries)
        fetcher = a_fetcher(self.context, deliveries, offsets, lambda owned, messages: None)
        start = StartRule(self.context, offsets, rule, 1234)
        self.tasks: list[asyncio.Task[None]] = []
        parts = RebalancerParts(self.subscriptions, deliveries, offsets, start, fetcher, self._route, self._spawn)
        self.rebalancer = Rebalancer(self.context, parts, "averagely", averagely)

    @property
    def queue_ids(self) -> list[int]:
        return [queue.queue_id for queue in self.rebalancer.assignment.queues()]

    async def _handler(self, message: object) -> None: ...

    async def _route(self, topic: str) -> SharedQueues:
        if topic not in self.routes:
            raise RouteNotFound(topic)
        return SharedQueues(self.routes[topic], "127.0.0.1:9876", "digest")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]


@asynccontextmanager
async def bench(directory: Path | None = None, **options: Any) -> AsyncIterator[Bench]:
    made = Bench(directory, **options)
    try:
        yield made
    finally:
        for task in made.tasks:
            task.cancel()
        if made.tasks:
            await asyncio.wait(made.tasks)
        made.context.journal.close()


async def test_alone_in_the_group_it_takes_everything_and_the_retry_queue() -> None:
    async with bench() as here:
        assert await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 2, 3]
        assert RETRY in here.rebalancer.assignment
        assert here.rebalancer.settled.is_set()
        owned = here.rebalancer.assignment.owned
        assert (owned[ORDERS[0]].expression, owned[ORDERS[0]].subscription_version) == ("a || b", 7)
        assert owned[RETRY].expression == "*"


async def test_when_another_member_comes_its_share_is_committed_and_let_go(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.rebalancer.round()
        for owned in here.rebalancer.assignment:
            owned.process_queue.advance(50)
        here.link.members = ["me", "you"]
        assert await here.rebalancer.round()
        assert here.queue_ids == [0, 1]
    committed = here.link.committed
    assert committed == {("orders", 2): 50, ("orders", 3): 50}
    told = [(line["event"], line.get("queue_id")) for line in journalled(tmp_path)]
    second = told[[number for number, line in enumerate(told) if line[0] == "ASSIGN"][2] :]
    assert [event for event in second if event[1] in (2, 3)] == [
        ("PQ_DROP", 2), ("PQ_DROP", 3), ("PERSIST", 2), ("PERSIST", 3)
    ]  # fmt: skip


async def test_a_queue_let_go_is_not_pulled_any_more() -> None:
    async with bench() as here:
        await here.rebalancer.round()
        leaving = here.rebalancer.assignment.owned[ORDERS[3]]
        here.link.members = ["me", "you"]
        await here.rebalancer.round()
        assert leaving.dropped
        assert leaving.fetching is not None
        assert leaving.fetching.done()


async def test_a_queue_regained_is_a_new_ownership_from_the_committed_offset() -> None:
    async with bench() as here:
        await here.rebalancer.round()
        before = here.rebalancer.assignment.owned[ORDERS[3]]
        here.link.members = ["me", "you"]
        await here.rebalancer.round()
        here.link.committed["orders", 3] = 99
        here.link.members = ["me"]
        await here.rebalancer.round()
        after = here.rebalancer.assignment.owned[ORDERS[3]]
        assert (after.next_offset, after.number > before.number) == (99, True)


async def test_a_member_list_without_this_client_gives_everything_up() -> None:
    async with bench() as here:
        await here.rebalancer.round()
        here.link.members = ["you"]
        assert not await here.rebalancer.round()
        assert not here.rebalancer.assignment.owned
        assert not here.rebalancer.settled.is_set()


async def test_when_members_or_queues_cannot_be_learnt_everything_stays() -> None:
    async with bench() as here:
        await here.rebalancer.round()
        here.link.refuse["consumer_list"] = BrokerUnavailable("gone")
        assert not await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 2, 3]
        here.link.refuse.clear()
        here.link.members = []
        assert not await here.rebalancer.round()
        here.routes.clear()
        assert not await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 2, 3]


async def test_a_round_asks_a_broker_once_for_the_members_of_all_topics() -> None:
    async with bench() as here:
        await here.rebalancer.round()
        assert (here.link.asked_for_members, len(here.rebalancer.assignment.by_topic())) == (1, 2)
        here.link.members = ["before me", "me"]
        await here.rebalancer.round()
        assert here.link.asked_for_members == 2


async def test_what_cannot_be_learnt_of_one_topic_leaves_the_others_alone() -> None:
    async with bench() as here:
        orders = here.routes.pop("orders")
        assert not await here.rebalancer.round()
        assert here.rebalancer.assignment.by_topic() == {"%RETRY%g": {RETRY}}
        assert not here.rebalancer.settled.is_set()
        here.routes["orders"] = orders
        del here.routes["%RETRY%g"]
        assert not await here.rebalancer.round()
        assert here.rebalancer.assignment.by_topic() == {"%RETRY%g": {RETRY}, "orders": {*ORDERS}}
        assert here.rebalancer.settled.is_set(), "what programs subscribed to is there"


@asynccontextmanager
async def unfinished_round(here: Bench) -> AsyncIterator[None]:
    round_ = asyncio.create_task(here.rebalancer.round())
    try:
        yield
        assert not round_.done()
    finally:
        round_.cancel()
        await asyncio.wait([round_])


async def no_answer(group: str, *, seq: int = 0) -> list[str]:
    await asyncio.Event().wait()
    return []


async def test_a_broker_that_does_not_answer_keeps_no_others_topics_waiting() -> None:
    async with bench() as here:
        silent = here.others["broker-b"] = FakeLink()
        silent.consumer_list = no_answer  # type: ignore[method-assign]
        here.routes["elsewhere"] = [MessageQueue("elsewhere", "broker-b", 0)]
        here.subscriptions.add("elsewhere", here._handler, tags="*")
        async with unfinished_round(here):
            await until(lambda: here.queue_ids == [0, 1, 2, 3])
        here.link.members = ["me", "you"]
        async with unfinished_round(here):
            await until(lambda: here.queue_ids == [0, 1])


async def test_a_round_that_is_stopped_moves_nothing_more() -> None:
    """Whoever stops it lets go of everything."""
    async with bench() as here:
        answer = here.link.consumer_list

        async def stopped_meanwhile(group: str, *, seq: int = 0) -> list[str]:
            here.rebalancer.stop()
            return await answer(group, seq=seq)

        here.link.consumer_list = stopped_meanwhile  # type: ignore[method-assign]
        assert not await here.rebalancer.round()
        assert not here.rebalancer.assignment.owned


async def test_a_queue_whose_offset_cannot_be_read_is_not_opened_this_round() -> None:
    async with bench() as here:
        here.link.refuse["query_offset"] = BrokerUnavailable("gone")
        assert not await here.rebalancer.round()
        assert here.queue_ids == []
        here.link.refuse.clear()
        assert await here.rebalancer.round()


async def test_an_unsubscribed_topic_is_dropped_without_a_commit(tmp_path: Path) -> None:
    """Cause O14."""
    async with bench(tmp_path) as here:
        await here.rebalancer.round()
        here.rebalancer.assignment.owned[ORDERS[0]].process_queue.advance(50)
        here.subscriptions.remove("orders")
        await here.rebalancer.round()
        assert (here.queue_ids, here.link.committed) == ([], {})
    assert {line["reason"] for line in journalled(tmp_path) if line["event"] == "PQ_DROP"} == {"unsubscribed"}


async def test_a_corrected_offset_is_committed_and_the_queue_opened_there(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.link.committed["orders", 0] = 500
        here.link.answers = [PullAnswer(code=Code.PULL_OFFSET_MOVED, next_offset=20)]
        here.routes = {"orders": ORDERS[:1]}
        await here.rebalancer.round()
        await until(lambda: here.rebalancer.assignment.owned[ORDERS[0]].dropped)
        await here.rebalancer.round()
        assert here.rebalancer.assignment.owned[ORDERS[0]].next_offset == 20
    drop = next(line for line in journalled(tmp_path, "PQ_DROP"))
    assert (drop["reason"], here.link.committed["orders", 0]) == ("illegal", 20)


async def test_a_queue_that_was_not_pulled_for_long_is_opened_anew() -> None:
    """Cause R7."""
    async with bench() as here:
        await here.rebalancer.round()
        before = here.rebalancer.assignment.owned[ORDERS[0]]
        before.last_pull_s -= 121
        if before.fetching is not None:
            before.fetching.cancel()
        await here.rebalancer.round()
        assert here.rebalancer.assignment.owned[ORDERS[0]] is not before


async def test_without_a_committed_offset_the_rule_decides() -> None:
    expected = {
        ConsumeFrom.LAST_OFFSET: ((70, "last"), (0, "first")),
        ConsumeFrom.FIRST_OFFSET: ((0, "first"), (0, "first")),
        ConsumeFrom.TIMESTAMP: ((1234, "timestamp"), (70, "last")),
    }
    for rule, (orders, retry) in expected.items():
        async with bench() as here:
            here.link.max = 70
            start = StartRule(here.context, RemoteOffsetStore(here.context, Deliveries(here.context)), rule, 1234)
            assert (await start.start_of(ORDERS[0]), await start.start_of(RETRY)) == (orders, retry)
            here.link.committed["orders", 0] = 5
            assert await start.start_of(ORDERS[0]) == (5, "broker")


async def test_what_comes_into_an_empty_queue_while_a_new_group_asks_where_to_begin_is_not_passed_over() -> None:
    """The broker says 0 for a young queue, but nothing for an empty one; the end of it is another question."""
    async with bench() as here:
        end = here.link.max_offset

        async def sent_meanwhile(topic: str, queue_id: int) -> int:
            here.link.max, here.link.committed[topic, queue_id] = 1, 0  # as a broker answers of a young queue
            return await end(topic, queue_id)

        here.link.max_offset = sent_meanwhile  # type: ignore[method-assign]
        assert await start_of(here, ConsumeFrom.LAST_OFFSET) == (0, "broker")


@pytest.mark.parametrize(
    ("rule", "end", "expected", "questions"),
    [
        (ConsumeFrom.LAST_OFFSET, 70, (70, "last"), 2),
        (ConsumeFrom.LAST_OFFSET, 0, (0, "last"), 1),
        (ConsumeFrom.FIRST_OFFSET, 70, (0, "first"), 1),
        (ConsumeFrom.TIMESTAMP, 70, (1234, "timestamp"), 1),
    ],
)
async def test_the_committed_offset_is_asked_for_twice_only_where_messages_may_have_come_meanwhile(
    rule: ConsumeFrom, end: int, expected: tuple[int, str], questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench() as here:
        here.link.max, asked, query = end, list[int](), here.link.query_offset

        async def counted(group: str, topic: str, queue_id: int, *, seq: int = 0) -> int | None:
            asked.append(queue_id)
            return await query(group, topic, queue_id, seq=seq)

        monkeypatch.setattr(here.link, "query_offset", counted)
        assert (await start_of(here, rule), len(asked)) == (expected, questions)


async def start_of(here: Bench, rule: ConsumeFrom) -> tuple[int, str]:
    offsets = RemoteOffsetStore(here.context, Deliveries(here.context))
    return await StartRule(here.context, offsets, rule, 1234).start_of(ORDERS[0])


async def test_a_round_that_began_before_subscriptions_changed_settles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as here:
        await here.rebalancer.round()
        asked, members = asyncio.Event(), here.link.consumer_list

        async def resubscribed_meanwhile(group: str) -> list[str]:
            if not asked.is_set():
                asked.set()
                here.subscriptions.remove("orders")
                here.subscriptions.add("orders", here._handler, tags="c")
                here.rebalancer.unsettle()
            return await members(group)

        monkeypatch.setattr(here.link, "consumer_list", resubscribed_meanwhile)
        await here.rebalancer.round()
        assert asked.is_set()
        assert not here.rebalancer.settled.is_set()
        await here.rebalancer.round()
        assert here.rebalancer.settled.is_set()
        assert here.rebalancer.assignment.owned[ORDERS[0]].tags == {"c"}


async def test_rounds_come_at_intervals_and_at_once_when_woken() -> None:
    async with bench() as here:
        running = asyncio.create_task(here.rebalancer.run())
        await until(here.rebalancer.settled.is_set)
        here.link.members = ["me", "you"]
        here.rebalancer.wake()
        await until(lambda: here.queue_ids == [0, 1])
        here.link.members = ["me"]
        await until(lambda: here.queue_ids == [0, 1, 2, 3])
        here.rebalancer.stop()
        await running


async def test_rounds_come_at_the_minimum_until_all_is_as_it_should_be_and_then_at_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RocketMQ: 1 s and 20 s."""
    config = client_config(ConsumerConfig, None, {})
    assert (config.rebalance_min_interval_ms, config.rebalance_wait_interval_ms) == (1_000, 20_000)
    async with bench(rebalance_wait_interval_ms=600_000) as here:
        rounds, once = list[bool](), here.rebalancer.round

        async def counted() -> bool:
            rounds.append(await once())
            return rounds[-1]

        monkeypatch.setattr(here.rebalancer, "round", counted)
        here.link.refuse["query_offset"] = BrokerUnavailable("gone")
        running = asyncio.create_task(here.rebalancer.run())
        await until(lambda: len(rounds) >= 5)
        here.link.refuse.clear()
        await until(lambda: rounds[-1])
        balanced = len(rounds)
        await asyncio.sleep(0.1)  # twenty times the minimum
        assert len(rounds) == balanced
        here.rebalancer.stop()
        await running


async def test_rounds_never_come_closer_than_the_minimum_however_often_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[float] = []
    async with bench(rebalance_min_interval_ms=200) as here:
        once = here.rebalancer.round

        async def round_and_wake() -> bool:
            began.append(time.monotonic())
            here.rebalancer.wake()
            return await once()

        monkeypatch.setattr(here.rebalancer, "round", round_and_wake)
        running = asyncio.create_task(here.rebalancer.run())
        await until(lambda: len(began) == 3)
        here.rebalancer.stop()
        await running
    # half the minimum: a loaded machine may be late in noting when a round began, never 100 ms early
    assert all(later - earlier >= 0.1 for earlier, later in pairwise(began))


async def test_a_suspended_consumer_does_not_rebalance() -> None:
    """Cause R5."""
    async with bench() as here:
        running = asyncio.create_task(here.rebalancer.run())
        await until(here.rebalancer.settled.is_set)
        here.rebalancer.suspended = True
        here.link.members = ["me", "you"]
        here.rebalancer.wake()
        await asyncio.sleep(0.1)
        assert here.queue_ids == [0, 1, 2, 3]
        here.rebalancer.stop()
        await running


async def test_a_strategy_that_never_worked_is_a_fault_of_the_program() -> None:
    async with bench() as here:
        here.rebalancer.planner.shares.strategy = lambda queues, members, me: [] if queues == [RETRY] else [RETRY]
        with pytest.raises(ConfigError, match="none of the topic's queues"):
            await here.rebalancer.round()


async def test_a_strategy_that_stops_working_leaves_everything_as_it_is_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As with a member whose machine room nobody knows: it must not take the others down."""
    async with bench() as here:
        await here.rebalancer.round()

        def spoiled(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
            raise LookupError("no room for you")

        here.rebalancer.planner.shares.strategy = spoiled
        here.link.members = ["me", "you"]
        for _ in range(3):
            assert not await here.rebalancer.round()
        assert here.queue_ids == [0, 1, 2, 3]
        here.rebalancer.planner.shares.strategy = averagely
        assert await here.rebalancer.round()
        assert here.queue_ids == [0, 1]
    told = [record for record in caplog.records if "no room for you" in record.getMessage()]
    assert [record.levelname for record in told] == ["ERROR", "ERROR"], "one for each topic"


async def test_a_round_says_what_it_saw(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.link.members = ["you", "me"]
        await here.rebalancer.round()
    line = next(line for line in journalled(tmp_path) if line["event"] == "ASSIGN" and line["topic"] == "orders")
    assert (line["members"], line["queues"], line["strategy"]) == (
        ["me", "you"], ["broker-a:0", "broker-a:1"], "averagely"
    )  # fmt: skip
    assert (line["namesrv"], line["route_digest"], line["broker_name"]) == ("127.0.0.1:9876", "digest", "broker-a")
    opened = next(line for line in journalled(tmp_path, "PQ_OPEN"))
    assert (opened["start_offset"], opened["source"]) == (0, "first")
