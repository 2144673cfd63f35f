import asyncio
from typing import Any

import pytest
from consumer_fakes import FakeLink, a_fetcher, context, owned_queue, stored, until
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.flow import Thresholds
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.receiving.process_queue import FlowLimits
from dejamq.values.config import ConsumerConfig, client_config
from dejamq_proto.codes import ConfigError


def thresholds(*, in_order: bool = False, **settings: Any) -> Thresholds:
    return Thresholds(client_config(ConsumerConfig, None, settings), in_order=in_order)


def test_the_limits_of_a_queue_are_rocketmqs() -> None:
    assert thresholds().limits(1) == thresholds().limits(64) == FlowLimits(1000, 100 << 20, 2000)


@pytest.mark.parametrize(
    ("queues", "limits"), [(0, (1000, 64)), (1, (1000, 64)), (10, (100, 6)), (3, (333, 21)), (4000, (1, 1))]
)
def test_the_limits_of_a_topic_are_shared_out_among_all_assigned_queues(queues: int, limits: tuple[int, int]) -> None:
    """RocketMQ's own example: 1000 for the topic and 10 queues assigned are 100 for each."""
    shared = thresholds(pullThresholdForTopic=1000, pull_threshold_size_for_topic=64).limits(queues)
    assert (shared.count, shared.size_bytes >> 20) == limits


def test_in_order_it_does_not_matter_how_far_unfinished_messages_are_apart() -> None:
    assert thresholds(in_order=True).limits(1).span > 1 << 60


@pytest.mark.parametrize(
    "settings",
    [
        {"pull_threshold_for_topic": 0}, {"pull_threshold_for_topic": 6_553_501}, {"pull_threshold_size_for_topic": -2},
        {"pull_threshold_for_queue": -1}, {"consume_concurrently_max_span": 65_536}, {"pull_interval_ms": 65_536},
        {"max_cached_bytes": 0}, {"pull_batch_size_in_bytes": 0}, {"pull_threshold_size_for_queue": 1025},
    ],
)  # fmt: skip
def test_values_outside_of_rocketmqs_ranges_are_refused(settings: dict[str, int]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=name):
        client_config(ConsumerConfig, None, settings)


async def test_a_queue_takes_its_share_of_what_its_topic_may_hold() -> None:
    link, owned, taken, queues = FakeLink(), owned_queue(), list[int](), 10
    link.records = [stored(offset) for offset in range(300)]
    made = context(link, pull_threshold_for_topic=100, pull_batch_size=10)
    deliveries = Deliveries(made)
    store = RemoteOffsetStore(made, deliveries)
    fetcher = a_fetcher(made, deliveries, store, lambda owned, messages: taken.extend(m.queue_offset for m in messages))
    fetcher.queue_count = lambda: queues
    task = asyncio.create_task(fetcher.run(owned))
    await until(lambda: len(taken) == 20)  # checked before each pull and exceeded by more than the share of 10
    await asyncio.sleep(0.03)
    assert len(taken) == 20
    queues = 2
    await until(lambda: len(taken) == 60)
    task.cancel()
    await asyncio.wait((task,))


async def test_only_after_messages_does_the_next_pull_wait_for_the_interval() -> None:
    """An answer without any was held by the broker already."""
    link, owned, taken = FakeLink(), owned_queue(), list[int]()
    made = context(link, pull_interval_ms=60_000, pull_batch_size=1)
    deliveries = Deliveries(made)
    store = RemoteOffsetStore(made, deliveries)
    fetcher = a_fetcher(made, deliveries, store, lambda owned, messages: taken.append(len(link.pulls)))
    task = asyncio.create_task(fetcher.run(owned))
    await until(lambda: len(link.pulls) > 2)
    link.records = [stored(offset) for offset in range(5)]
    await until(lambda: taken)
    await asyncio.sleep(0.03)
    assert taken == [len(link.pulls)]
    task.cancel()
    await asyncio.wait((task,))
