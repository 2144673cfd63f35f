"""A name server's metrics for Prometheus. RocketMQ's has no metrics; the names are ours."""

from collections.abc import AsyncIterator

from dejamq_proto.serving.metric_families import calls_metric, gauge
from dejamq_proto.serving.metrics import process_metrics
from dejamq_proto.serving.timings import Timings
from prometheus_client.metrics_core import Metric

from dejamq_namesrv.registry import Registry

NODE = ("node_type", "node_id")


class NamesrvMetrics:
    """Gathers for a ``MetricsServer``. Belongs to the event loop."""

    def __init__(self, registry: Registry, timings: Timings, name: str) -> None:
        self._registry, self._timings, self._node = registry, timings, ("namesrv", name)

    async def gather(self) -> AsyncIterator[Metric]:
        """Live brokers, their topics, and how long calls took: routes asked for are the calls of ``GetRoute``.

        Clients read the routes of several topics again by ``GetRoutes``.
        """
        brokers = self._registry.cluster_info("")
        replicas = sum(len(one.addresses) for one in brokers)
        yield gauge(
            "dejamq_namesrv_broker_names", "Broker names with a live broker.", NODE, [(self._node, len(brokers))]
        )
        yield gauge("dejamq_namesrv_brokers", "Live brokers, slaves too.", NODE, [(self._node, replicas)])
        topics = len(self._registry.topics())
        yield gauge("dejamq_namesrv_topics", "Topics of live brokers.", NODE, [(self._node, topics)])
        yield calls_metric(self._timings, NODE, self._node)
        for metric in process_metrics():
            yield metric
