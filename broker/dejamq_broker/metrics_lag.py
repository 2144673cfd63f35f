"""How far groups are behind, and what waits for its time. Source: RocketMQ ``ConsumerLagCalculator``.

A lag is never negative: what retention removed is not waited for, and an offset beyond the end is at the end.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec
from dejamq_proto.names import RETRY_PREFIX, SCHEDULE_TOPIC, is_system
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from dejamq_broker.offsets import Position

if TYPE_CHECKING:
    from dejamq_broker.domain import Domain

Node = tuple[str, str, str]
NODE = ("cluster", "node_type", "node_id")
GROUP = (*NODE, "topic", "consumer_group", "is_retry", "is_system")
GROUPS_AT_A_TIME = 50


class Lag(msgspec.Struct):
    """One group in one topic. ``messages`` are not committed, ``in_flight`` of them pulled; times in ms."""

    messages: int = 0
    in_flight: int = 0
    latency_ms: int = 0
    """Age of the oldest one that is not committed."""
    queueing_ms: int = 0
    """Age of the oldest one that was not pulled."""


def lag_of(domain: "Domain", topic: str, group: str, committed: dict[int, int], now_ms: int) -> Lag:
    """Over all queues of which the group has committed an offset."""
    lag, store = Lag(), domain.store
    for queue_id, offset in committed.items():
        end = store.max_offset(topic, queue_id)
        begin = min(max(offset, store.min_offset(topic, queue_id)), end)
        pulled = min(max(begin, domain.offsets.pulled(Position(group, topic, queue_id)) or 0), end)
        lag.messages += end - begin
        lag.in_flight += pulled - begin
        if begin < end:
            lag.latency_ms = max(lag.latency_ms, _age(domain, topic, queue_id, begin, now_ms))
        if pulled < end:
            lag.queueing_ms = max(lag.queueing_ms, _age(domain, topic, queue_id, pulled, now_ms))
    return lag


async def lag_metrics(domain: "Domain", node: Node) -> AsyncIterator[Metric]:
    """By topic and group; other work goes on between some of them."""
    told = {
        "rocketmq_consumer_lag_messages": "Messages that are not committed.",
        "rocketmq_consumer_lag_latency": "Age of the oldest message that is not committed, ms.",
        "rocketmq_consumer_inflight_messages": "Messages that were pulled and are not committed.",
        "rocketmq_consumer_ready_messages": "Messages that were not pulled.",
        "rocketmq_consumer_queueing_latency": "Age of the oldest message that was not pulled, ms.",
    }
    gauges = [GaugeMetricFamily(name, text, labels=GROUP) for name, text in told.items()]
    for number, (topic, group, committed) in enumerate(domain.offsets.everything()):
        lag = lag_of(domain, topic, group, committed, domain.clock_ms())
        retry = topic.startswith(RETRY_PREFIX)
        labels = (*node, topic, group, str(retry).lower(), str(is_system(topic)).lower())
        values = lag.messages, lag.latency_ms, lag.in_flight, lag.messages - lag.in_flight, lag.queueing_ms
        for gauge, value in zip(gauges, values, strict=True):
            gauge.add_metric(labels, value)
        if number % GROUPS_AT_A_TIME == 0:
            await asyncio.sleep(0)
    for gauge in gauges:
        yield gauge
    yield _delayed(domain, node)


def _delayed(domain: "Domain", node: Node) -> Metric:
    gauge = GaugeMetricFamily("dejamq_delayed_messages", "Messages that wait for their time.", labels=(*NODE, "level"))
    for level in range(1, len(domain.config.store.delay_levels_ms) + 1):
        waiting = domain.store.max_offset(SCHEDULE_TOPIC, level - 1) - domain.progress.get(level)
        gauge.add_metric((*node, str(level)), max(0, waiting))
    return gauge


def _age(domain: "Domain", topic: str, queue_id: int, queue_offset: int, now_ms: int) -> int:
    stored_ms = domain.store.stored_ms(topic, queue_id, queue_offset)
    return max(0, now_ms - stored_ms) if stored_ms else 0
