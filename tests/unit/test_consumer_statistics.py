import asyncio

import pytest
from consumer_fakes import (
    QUEUE,
    FakeLink,
    a_fetcher,
    answer,
    context,
    dispatching,
    owned_queue,
    received,
    stored,
    until,
)
from dejamq import PushConsumer
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.handlers import BatchResult
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.receiving.process_queue import ProcessQueue
from dejamq.receiving.statistics import ConsumerStatistics, QueueStatistics, Statistics
from dejamq.values.message import MessageQueue

OTHER = MessageQueue("orders", "broker-a", 1)
RETRY = MessageQueue("%RETRY%g", "broker-a", 0)


def owned(queue: MessageQueue, done: int, end: int | None) -> OwnedQueue:
    one = OwnedQueue(1, queue, ProcessQueue(0), 0)
    one.process_queue.put(range(done, done + 3), [10, 20, 30])
    one.max_offset = end
    return one


def test_rates_are_those_of_the_last_minute() -> None:
    statistics = Statistics(0.0)
    counts = statistics.of(QUEUE)
    for second in range(0, 120, 10):
        counts.found(100, 0.5)
        counts.called(80, 1.6, succeeded=80, failed=0)
        counts.called(10, 0.2, succeeded=5, failed=5)
        statistics.sample(float(second + 10), [])
    view = statistics.view(130.0, [])
    assert view.queues == {}
    (found,) = view.topics.values()
    assert (found.pull_rt_ms, found.consume_failed_msgs, found.lag) == (500.0, 60, None)
    rates = found.consume_rt_ms, found.pull_tps, found.consume_ok_tps, found.consume_failed_tps
    assert rates == pytest.approx((20.0, 600 / 70, 85 * 6 / 70, 30 / 70))


def test_the_response_time_is_the_last_hours_when_the_last_minute_had_no_call() -> None:
    """RocketMQ: ConsumerStatsManager.consumeStatus."""
    statistics = Statistics(0.0)
    statistics.of(QUEUE).called(4, 0.2, succeeded=4)
    for second in range(10, 200, 10):
        statistics.sample(float(second), [])
    found = statistics.view(200.0, []).topics["orders"]
    assert (found.consume_rt_ms, found.consume_ok_tps) == (50.0, 0.0)


def test_a_queue_shows_what_it_holds_and_how_far_it_is_behind_and_a_topic_sums_it_up() -> None:
    statistics = Statistics(0.0)
    queues = [owned(QUEUE, done=7, end=100), owned(OTHER, done=0, end=None), owned(RETRY, done=2, end=5)]
    queues[0].process_queue.in_flight = 2
    statistics.of(OTHER).found(30, 0.1)
    view = statistics.view(10.0, queues)
    assert view.queues[QUEUE] == QueueStatistics(
        commit_offset=7, cached_msg_count=3, cached_msg_bytes=60, in_flight=2, lag=93
    )
    assert (view.queues[OTHER].lag, view.queues[OTHER].pull_tps) == (None, 3.0)
    assert {topic: (found.lag, found.pull_tps) for topic, found in view.topics.items()} == {
        "%RETRY%g": (3, 0.0), "orders": (93, 3.0)
    }  # fmt: skip


def test_queues_that_were_given_up_and_idle_for_an_hour_are_forgotten_and_may_come_back() -> None:
    statistics = Statistics(0.0)
    statistics.of(QUEUE).called(1, 1.0, succeeded=1)
    statistics.of(OTHER).called(1, 1.0, succeeded=1)
    for round_number in range(1, 60 * 10):
        statistics.sample(round_number * 10.0, [owned(OTHER, 0, 9)])
    view = statistics.view(6_000.0, [])
    assert list(statistics._counts) == [OTHER]
    assert view.topics["orders"].consume_ok_tps == 0
    statistics.of(QUEUE).called(1, 1.0, succeeded=1)
    assert statistics.view(6_000.0, []).topics["orders"].consume_ok_tps > 0


async def test_handlers_are_counted_with_what_they_acknowledged() -> None:
    async def handler(messages: list[object]) -> BatchResult | None:
        return BatchResult(ack_index=1) if len(messages) == 4 else None

    one = owned_queue()
    async with dispatching(handler, batch_size=4, workers=1) as dispatcher:
        dispatcher.submit(one, received(one, *range(6)))
        await until(lambda: one.process_queue.commit_offset == 6)
    assert (one.counts.calls, one.counts.succeeded, one.counts.failed) == (2, 4, 2)


async def test_single_messages_are_counted_a_run_at_a_time() -> None:
    async def handler(message: object) -> None:
        if one.counts.succeeded + one.counts.failed == 0 and len(one.process_queue) == 10:
            raise ValueError

    one = owned_queue()
    async with dispatching(handler, workers=1) as dispatcher:
        dispatcher.submit(one, received(one, *range(10)))
        await until(lambda: one.counts.calls == 10)
    assert (one.counts.succeeded, one.counts.failed) == (9, 1)
    assert one.counts.call_s > 0


async def test_pulls_that_brought_messages_are_counted_and_tell_the_end_of_the_queue() -> None:
    link, one = FakeLink(), owned_queue()
    link.answers = [answer([stored(0), stored(1)], 2)]
    link.answers[0].max_offset = 50
    made, statistics = context(link), Statistics(0.0)
    deliveries = Deliveries(made)
    fetcher = a_fetcher(
        made, deliveries, RemoteOffsetStore(made, deliveries), lambda owned, messages: None,
        counts=statistics.of,
    )  # fmt: skip
    task = asyncio.ensure_future(fetcher.run(one))
    await until(lambda: len(link.pulls) == 2)
    assert (one.max_offset, statistics.of(QUEUE).pulls, statistics.of(QUEUE).pulled) == (50, 1, 2)
    task.cancel()
    await asyncio.wait((task,))


def test_before_the_start_there_are_none() -> None:
    assert PushConsumer("g", namesrv="127.0.0.1:1").statistics() == ConsumerStatistics({}, {})
