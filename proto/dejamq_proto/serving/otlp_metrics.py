"""Families of Prometheus as OpenTelemetry's data. Imported by servers that export metrics by OTLP only.

Names, labels and values stay as they are on ``/metrics``, so that one table describes both. Source: OpenTelemetry's
rules for Prometheus and OpenMetrics compatibility.
"""

from collections.abc import Iterable, Mapping
from importlib import metadata
from time import time_ns
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as Told
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from dejamq_proto.serving.otlp_target import OtlpTarget

CUMULATIVE = AggregationTemporality.CUMULATIVE
BOUND = "le"


class Converter:
    """For one server: counters count since it was made."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._resource, self._began_ns = Resource.create(dict(resource)), time_ns()
        self._scope = InstrumentationScope("dejamq", metadata.version("dejamq"))

    def data(self, families: Iterable[Metric]) -> MetricsData:
        """All of them, as they are now."""
        now_ns, told = time_ns(), []
        for family in families:
            found = self._data(family, now_ns)
            if found is not None:
                name = f"{family.name}_total" if family.type == "counter" else family.name
                told.append(Told(name, family.documentation, family.unit, found))
        scope = ScopeMetrics(self._scope, told, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _data(self, family: Metric, now_ns: int) -> Sum | Gauge | Histogram | None:
        if family.type == "histogram":
            return self._histogram(family, now_ns)
        name = f"{family.name}_total" if family.type == "counter" else family.name
        points = [
            NumberDataPoint(sample.labels, self._began_ns, now_ns, sample.value)
            for sample in family.samples if sample.name == name
        ]  # fmt: skip
        if not points:
            return None
        return Sum(points, CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(points)

    def _histogram(self, family: Metric, now_ns: int) -> Histogram | None:
        """Prometheus counts what lies below each bound, OpenTelemetry what lies between two."""
        by_labels: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
        for sample in family.samples:
            labels = tuple((name, text) for name, text in sample.labels.items() if name != BOUND)
            by_labels.setdefault(labels, []).append(sample)
        points = [self._point(family.name, dict(labels), samples, now_ns) for labels, samples in by_labels.items()]
        return Histogram(points, CUMULATIVE) if points else None

    def _point(self, name: str, labels: dict[str, str], samples: list[Sample], now_ns: int) -> HistogramDataPoint:
        below = [(float(one.labels[BOUND]), int(one.value)) for one in samples if one.name == f"{name}_bucket"]
        counts = [count - before for (_, count), (_, before) in zip(below, [(0.0, 0), *below], strict=False)]
        total = next((one.value for one in samples if one.name == f"{name}_sum"), 0.0)
        unknown: Any = None  # neither is on ``/metrics``
        return HistogramDataPoint(
            labels, self._began_ns, now_ns, below[-1][1], total, counts, [bound for bound, _ in below[:-1]],
            min=unknown, max=unknown,
        )  # fmt: skip


class Exporter:
    """Sends; blocks until it was answered or its time is over."""

    def __init__(self, target: OtlpTarget) -> None:
        parts = urlsplit(target.address if "//" in target.address else f"https://{target.address}")
        # RocketMQ too takes an address without a scheme for one with TLS
        self._timeout_ms = target.timeout_ms
        self._inner = OTLPMetricExporter(
            f"{parts.scheme}://{parts.netloc}", insecure=parts.scheme == "http", headers=target.headers,
            timeout=target.timeout_ms / 1000,
        )  # fmt: skip

    def send(self, data: MetricsData) -> bool:
        """Whether it arrived."""
        return self._inner.export(data, self._timeout_ms) is MetricExportResult.SUCCESS

    def shutdown(self) -> None:
        """Ends a ``send`` that still waits, too."""
        self._inner.shutdown()
