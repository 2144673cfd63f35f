"""The latency fault strategy: RocketMQ's table, who is avoided, for how long, and who is chosen when all are ill."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from dejamq import BrokerUnavailable, DejamqError, Message, MessageQueue
from dejamq.net.routes import BrokerQueues, TopicRoute
from dejamq.sending.destinations import Destinations
from dejamq.sending.detector import Detector
from dejamq.sending.encoding import template
from dejamq.sending.fault_strategy import ISOLATION_MS, FaultTable, avoided_for
from dejamq.sending.sends import ONEWAY, Sends
from dejamq.values.producer_config import ProducerConfig
from hypothesis import given
from hypothesis import strategies as st

STEPS = {0: 0, 49: 0, 50: 0, 100: 0, 549: 0, 550: 2_000, 1_799: 2_000, 1_800: 5_000, 3_000: 6_000, 5_000: 10_000,
         14_999: 10_000, 15_000: 30_000, 99_999: 30_000}  # fmt: skip


@pytest.mark.parametrize(("latency_ms", "avoided_ms"), STEPS.items())
def test_a_slow_broker_is_avoided_for_as_long_as_rocketmqs_table_says(latency_ms: int, avoided_ms: int) -> None:
    table = FaultTable()
    table.update("a", latency_ms, now_ms=1_000)
    assert avoided_for(latency_ms) == avoided_ms
    assert table.available("a", 1_000 + avoided_ms)
    assert not avoided_ms or not table.available("a", 1_000 + avoided_ms - 1)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_slower_the_longer(one: float, other: float) -> None:
    assert avoided_for(min(one, other)) <= avoided_for(max(one, other))


def test_a_broker_nobody_heard_of_is_well() -> None:
    assert FaultTable().available("a", 0)
    assert FaultTable().reachable("a")


def test_a_failure_isolates_for_ten_seconds_however_fast_it_came() -> None:
    table = FaultTable()
    table.update("a", 3, now_ms=0, isolated=True, reachable=False)
    assert not table.available("a", ISOLATION_MS - 1)
    assert table.available("a", ISOLATION_MS)
    assert not table.reachable("a")


def test_a_later_success_makes_it_reachable_but_the_time_of_avoidance_only_grows() -> None:
    table = FaultTable()
    table.update("a", 3, now_ms=0, isolated=True, reachable=False)
    table.update("a", 600, now_ms=100)
    assert table.reachable("a")
    assert not table.available("a", 9_999)
    table.update("a", 20_000, now_ms=200)
    assert not table.available("a", 30_199)


def test_each_broker_is_probed_once_in_an_interval() -> None:
    table = FaultTable()
    table.update("a", 1, now_ms=0)
    table.update("b", 1, now_ms=0)
    assert table.take_due(0, 2_000) == ["a", "b"]
    assert table.take_due(1_999, 2_000) == []
    table.forget("b")
    assert table.take_due(2_000, 2_000) == ["a"]


# --- choosing


def destinations(faults: FaultTable | None, **brokers: int) -> Destinations:
    """Of topic ``t`` at these brokers, with so many queues each."""
    instance: Any = SimpleNamespace(routes=SimpleNamespace(on_change=[]))
    made = Destinations(instance, routed=lambda sends: None, failed=lambda sends, error: None, faults=faults)
    queues = tuple(BrokerQueues(name, number, number, 6) for name, number in brokers.items())
    instance.routes.on_change[0](TopicRoute("t", queues, {name: {0: f"{name}:1"} for name in brokers}))
    return made


def sends(count: int = 1, *, at: MessageQueue | None = None) -> Sends:
    message, common, queues = Message("t", b"x"), template("t", 0, None), [] if at is None else [at] * count
    return Sends(
        ONEWAY, 0.0, [message] * count, [common] * count, [100] * count, [None] * count, queues, range(count),
        [1e18] * count,
    )  # fmt: skip


def chosen(made: Destinations, times: int = 40) -> set[str]:
    return {queue.broker_name for queue in made.place(sends(times)).queues}


def ill(*names: str, reachable: bool) -> FaultTable:
    """A table in which these brokers failed just now."""
    table = FaultTable()
    for name in names:
        table.update(name, 1, now_ms=1e15, isolated=True, reachable=reachable)
    return table


def test_without_the_strategy_every_broker_has_its_turn() -> None:
    assert chosen(destinations(None, a=2, b=2)) == {"a", "b"}


def test_a_broker_to_be_avoided_has_no_turn() -> None:
    assert chosen(destinations(ill("a", reachable=True), a=2, b=2)) == {"b"}


def test_where_all_are_to_be_avoided_the_reachable_ones_have_their_turn() -> None:
    faults = ill("a", "b", "c", reachable=True)
    faults.update("a", 1, now_ms=1e15, isolated=True, reachable=False)
    assert chosen(destinations(faults, a=2, b=2, c=1)) == {"b", "c"}


def test_where_none_can_be_reached_any_has_its_turn() -> None:
    assert chosen(destinations(ill("a", "b", reachable=False), a=2, b=2)) == {"a", "b"}


def test_a_retry_goes_neither_to_the_failed_broker_nor_to_an_avoided_one() -> None:
    made = destinations(ill("b", reachable=True), a=2, b=2, c=2)
    for _ in range(20):
        (again,) = made.place_again(sends(at=MessageQueue("t", "a", 0)))
        assert again.queues[0].broker_name == "c"


def test_a_retry_with_one_broker_only_goes_there_again() -> None:
    made = destinations(ill("a", reachable=False), a=2)
    (again,) = made.place_again(sends(at=MessageQueue("t", "a", 0)))
    assert again.queues[0].broker_name == "a"


# --- the detector


class Links:
    """An instance whose brokers answer probes as told: an error to raise, or None for an answer."""

    def __init__(self, **answers: Exception | None) -> None:
        self.answers, self.routes = answers, self
        self.probed: list[str] = []

    def master_address(self, broker_name: str) -> str | None:
        return broker_name if broker_name in self.answers else None

    def link(self, address: str) -> Any:
        async def max_offset(topic: str, queue_id: int) -> int:
            self.probed.append(address)
            error = self.answers[address]
            if error is not None:
                raise error
            return 0

        return SimpleNamespace(max_offset=max_offset)


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


async def detecting(faults: FaultTable, links: Any) -> asyncio.Task[None]:
    config = ProducerConfig(send_latency_enable=True, start_detector_enable=True, detect_interval_ms=1)
    return asyncio.create_task(Detector(faults, links, config).run())


async def test_a_probe_that_gets_through_makes_a_broker_reachable_again() -> None:
    faults, links = ill("a", "b", reachable=False), Links(a=None, b=BrokerUnavailable("no"))
    task = await detecting(faults, links)
    await until(lambda: faults.reachable("a") and links.probed.count("b") > 2)
    assert not faults.reachable("b")
    task.cancel()


async def test_a_refusal_is_an_answer_too() -> None:
    faults = ill("a", reachable=False)
    task = await detecting(faults, Links(a=DejamqError("no such topic")))
    await until(lambda: faults.reachable("a"))
    task.cancel()


async def test_a_broker_that_no_route_names_is_forgotten() -> None:
    faults = ill("a", reachable=False)
    links = Links()
    task = await detecting(faults, links)
    await until(lambda: faults.reachable("a") and faults.available("a", 0))
    assert links.probed == []
    task.cancel()
