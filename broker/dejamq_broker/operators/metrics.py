"""A broker's metrics for Prometheus, under RocketMQ's names and labels.

Everything is read when it is asked for; the paths of messages only add to ``Counts``. Source: RocketMQ
``BrokerMetricsConstant``, ``DefaultStoreMetricsConstant``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

from dejamq_proto.config.live_settings import LiveSettings
from dejamq_proto.names import HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, is_system
from dejamq_proto.serving.metric_families import calls_metric, counter, gauge, histogram
from dejamq_proto.serving.metrics import process_metrics
from dejamq_proto.serving.timings import Timings
from prometheus_client.metrics_core import CounterMetricFamily, Metric

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.counts import SIZE_BOUNDS, Counts
from dejamq_broker.base.identity import Site
from dejamq_broker.members.clients import Clients
from dejamq_broker.operators.lag import LagMetrics
from dejamq_broker.operators.runtime_info import RuntimeInfo
from dejamq_broker.store import MessageStore
from dejamq_broker.table_set import Tables

NODE = ("cluster", "node_type", "node_id")
TOPIC = (*NODE, "topic", "message_type", "is_system")
GROUP = (*NODE, "topic", "consumer_group", "is_retry", "is_system")
TYPES = {SCHEDULE_TOPIC: "delay", TIMER_TOPIC: "delay", HALF_TOPIC: "transaction"}
"""Told by where a message lies; one in order looks like any other."""


class BrokerMetrics:
    """Gathers for a ``MetricsServer``. Belongs to the event loop."""

    def __init__(
        self, site: Site, store: MessageStore, tables: Tables, clients: Clients, settings: LiveSettings[BrokerConfig],
        counts: Counts, runtime: RuntimeInfo, timings: Timings, clock_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._store, self._tables, self._clients, self._settings = store, tables, clients, settings
        self._counts, self._runtime, self._timings, self._clock_ms = counts, runtime, timings, clock_ms
        levels = len(settings.config.store.delay_levels_ms)
        self._lag = LagMetrics(store, tables.offsets, tables.progress, levels, clock_ms)
        self._node = (
            site.cluster,
            "broker",
            site.broker_name if site.master else f"{site.broker_name}-{site.broker_id}",
        )

    async def gather(self) -> AsyncIterator[Metric]:
        """Every metric; other work goes on between two."""
        for metrics in (
            self._topics(),
            self._groups(),
            self._transactions(),
            self._broker(),
            self._of_store(),
            [calls_metric(self._timings, NODE, self._node)],
            process_metrics(),
        ):
            for metric in metrics:
                yield metric
                await asyncio.sleep(0)
        async for metric in self._lag.gather(self._node):
            yield metric

    def _topics(self) -> Iterator[Metric]:
        messages = CounterMetricFamily("rocketmq_messages_in", "Messages stored.", labels=TOPIC)
        size = CounterMetricFamily("rocketmq_throughput_in", "Bytes of records stored.", labels=TOPIC)
        for topic, puts in self._counts.topics.items():
            labels = (*self._node, topic, TYPES.get(topic, "normal"), _truth(is_system(topic)))
            messages.add_metric(labels, puts.messages)
            size.add_metric(labels, puts.bytes)
        sizes = self._counts.puts
        yield from (messages, size)
        yield histogram(
            "rocketmq_message_size", "Bytes of a stored message, of a run on average.", NODE,
            [(self._node, SIZE_BOUNDS, sizes.sizes, sizes.bytes)],
        )  # fmt: skip

    def _groups(self) -> Iterator[Metric]:
        messages = CounterMetricFamily("rocketmq_messages_out", "Messages handed to consumers.", labels=GROUP)
        size = CounterMetricFamily("rocketmq_throughput_out", "Bytes handed to consumers.", labels=GROUP)
        back = CounterMetricFamily("rocketmq_send_back_messages", "Failed messages taken back.", labels=GROUP)
        dead = CounterMetricFamily("rocketmq_send_to_dlq_messages", "Messages that became dead letters.", labels=GROUP)
        took = CounterMetricFamily("rocketmq_group_get_latency_milliseconds", "Time spent reading.", labels=GROUP)
        for (topic, group), gets in self._counts.groups.items():
            retry = topic.startswith(RETRY_PREFIX)
            labels = (*self._node, topic, group, _truth(retry), _truth(is_system(topic)))
            if gets.calls:
                messages.add_metric(labels, gets.messages)
                size.add_metric(labels, gets.bytes)
                took.add_metric(labels, gets.us / 1000)
            if gets.sent_back:
                back.add_metric(labels, gets.sent_back)
            if gets.dead:
                dead.add_metric(labels, gets.dead)
        yield from (messages, size, took, back, dead)

    def _transactions(self) -> Iterator[Metric]:
        counts = self._counts
        for name, told, ended in (
            ("rocketmq_commit_messages", "Transactions committed.", counts.committed),
            ("rocketmq_rollback_messages", "Transactions rolled back.", counts.rolled_back),
        ):
            values = [((*self._node, topic), number) for topic, number in ended.items()]
            yield counter(name, told, (*NODE, "topic"), values)

    def _broker(self) -> Iterator[Metric]:
        topics, permission = sum(1 for _ in self._tables.topics), self._settings.config.broker_permission
        yield gauge("rocketmq_broker_permission", "4 read + 2 write.", NODE, [(self._node, permission)])
        yield gauge("rocketmq_topic_number", "Topics, all kinds.", NODE, [(self._node, topics)])
        groups = sum(1 for _ in self._tables.groups)
        yield gauge("rocketmq_consumer_group_number", "Groups that are kept.", NODE, [(self._node, groups)])
        waiting, _ = self._runtime.sends()
        labels = (*NODE, "processor")
        yield gauge("rocketmq_processor_watermark", "Runs that wait.", labels, [((*self._node, "send"), waiting)])
        yield from self._connections()

    def _connections(self) -> Iterator[Metric]:
        producers: dict[tuple[str, ...], int] = {}
        consumers: dict[tuple[str, ...], int] = {}
        modes = {
            name: "BROADCASTING" if self._clients.groups.broadcasting(name) else "CLUSTERING"
            for name in self._clients.groups.names()
        }
        for one in self._clients.connections():
            if one.role == "producer":
                key: tuple[str, ...] = (*self._node, "PYTHON", one.version)
                producers[key] = producers.get(key, 0) + 1
            else:
                key = (*self._node, one.group, "PYTHON", one.version, modes.get(one.group, ""))
                consumers[key] = consumers.get(key, 0) + 1
        yield gauge(
            "rocketmq_producer_connections", "Producers.", (*NODE, "language", "version"), producers.items()
        )  # fmt: skip
        yield gauge(
            "rocketmq_consumer_connections", "Members of groups.",
            (*NODE, "consumer_group", "language", "version", "consume_mode"), consumers.items(),
        )  # fmt: skip

    def _of_store(self) -> Iterator[Metric]:
        store, counts, now_ms = self._store, self._counts, self._clock_ms()
        earliest_ms = self._runtime.earliest_ms()
        values = {
            "rocketmq_storage_size": ("Bytes of the log.", store.log_max - store.log_min),
            "rocketmq_storage_flush_behind_bytes": ("Not on disk yet.", store.log_max - store.flushed),
            "rocketmq_storage_dispatch_behind_bytes": ("Not in queues yet.", store.log_max - store.dispatched),
            "rocketmq_storage_message_reserve_time": (
                "Age of the oldest message, ms.", max(0, now_ms - earliest_ms) if earliest_ms >= 0 else 0
            ),
        }  # fmt: skip
        for name, (told, value) in values.items():
            yield gauge(name, told, NODE, [(self._node, value)])
        counters = {
            "dejamq_puts": ("Appends to the log.", counts.puts.times),
            "dejamq_puts_failed": ("Appends that the store refused.", counts.puts.failed),
            "dejamq_gets_found": ("Pulls that found messages.", counts.gets.found),
            "dejamq_gets_missed": ("Looks for messages that found none.", counts.gets.missed),
        }
        for name, (told, value) in counters.items():
            yield counter(name, told, NODE, [(self._node, value)])


def _truth(value: bool) -> str:
    return str(value).lower()
