"""How far groups are behind, and the messages that wait for their time. Source: RocketMQ ``ConsumerLagCalculator``.

A lag is never negative: messages that retention removed are not waited for, and an offset beyond the end is at the end.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
from dejamq_proto.names import RETRY_PREFIX, SCHEDULE_TOPIC, is_system
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from dejamq_broker.deferred.delay_progress import DelayProgress
from dejamq_broker.store import MessageStore
from dejamq_broker.tables.offsets import OffsetTable, Position

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


class LagMetrics:
    """Gathered from the offsets of groups and the progress of delay levels, as they are when asked."""

    def __init__(
        self, store: MessageStore, offsets: OffsetTable, progress: DelayProgress, levels: int,
        clock_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._store, self._offsets, self._progress = store, offsets, progress
        self._levels, self._clock_ms = levels, clock_ms

    async def gather(self, node: Node) -> AsyncIterator[Metric]:
        """By topic and group; other work goes on between some of them."""
        told = {
            "rocketmq_consumer_lag_messages": "Messages that are not committed.",
            "rocketmq_consumer_lag_latency": "Age of the oldest message that is not committed, ms.",
            "rocketmq_consumer_inflight_messages": "Messages that were pulled and are not committed.",
            "rocketmq_consumer_ready_messages": "Messages that were not pulled.",
            "rocketmq_consumer_queueing_latency": "Age of the oldest message that was not pulled, ms.",
        }
        gauges = [GaugeMetricFamily(name, text, labels=GROUP) for name, text in told.items()]
        for number, (topic, group, committed) in enumerate(self._offsets.everything()):
            lag = self._lag_of(topic, group, committed)
            retry = topic.startswith(RETRY_PREFIX)
            labels = (*node, topic, group, str(retry).lower(), str(is_system(topic)).lower())
            values = lag.messages, lag.latency_ms, lag.in_flight, lag.messages - lag.in_flight, lag.queueing_ms
            for gauge, value in zip(gauges, values, strict=True):
                gauge.add_metric(labels, value)
            if number % GROUPS_AT_A_TIME == 0:
                await asyncio.sleep(0)
        for gauge in gauges:
            yield gauge
        yield self._delayed(node)

    def _lag_of(self, topic: str, group: str, committed: dict[int, int]) -> Lag:
        """Over all queues of which the group has committed an offset."""
        lag, store, now_ms = Lag(), self._store, self._clock_ms()
        for queue_id, offset in committed.items():
            end = store.max_offset(topic, queue_id)
            begin = min(max(offset, store.min_offset(topic, queue_id)), end)
            pulled = min(max(begin, self._offsets.pulled(Position(group, topic, queue_id)) or 0), end)
            lag.messages += end - begin
            lag.in_flight += pulled - begin
            if begin < end:
                lag.latency_ms = max(lag.latency_ms, self._age(topic, queue_id, begin, now_ms))
            if pulled < end:
                lag.queueing_ms = max(lag.queueing_ms, self._age(topic, queue_id, pulled, now_ms))
        return lag

    def _delayed(self, node: Node) -> Metric:
        text = "Messages that wait for their time."
        gauge = GaugeMetricFamily("dejamq_delayed_messages", text, labels=(*NODE, "level"))
        for level in range(1, self._levels + 1):
            waiting = self._store.max_offset(SCHEDULE_TOPIC, level - 1) - self._progress.get(level)
            gauge.add_metric((*node, str(level)), max(0, waiting))
        return gauge

    def _age(self, topic: str, queue_id: int, queue_offset: int, now_ms: int) -> int:
        stored_ms = self._store.stored_ms(topic, queue_id, queue_offset)
        return max(0, now_ms - stored_ms) if stored_ms else 0
