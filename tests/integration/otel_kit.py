"""Telemetry for tests: spans and metrics of OpenTelemetry's own SDK, kept in memory."""

from collections.abc import Iterator, Mapping
from typing import Any

from dejamq.telemetry import Telemetry
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, Tracer
from opentelemetry.util.types import AttributeValue


class Kept:
    """What was told so far."""

    def __init__(self, **choices: Any) -> None:
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics])
        self.telemetry = Telemetry(tracer_provider=self.tracers, meter_provider=self.meters, **choices)

    @property
    def tracer(self) -> Tracer:
        """The program's own."""
        return self.tracers.get_tracer("program")

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Ended ones of this name, in the order of their ends."""
        return [span for span in self._spans.get_finished_spans() if name in ("", span.name)]

    def span(self, name: str) -> ReadableSpan:
        """The only one."""
        (found,) = self.spans(name)
        return found

    def points(self, name: str) -> Iterator[tuple[Mapping[str, Any], Any]]:
        """Attributes and data of a metric."""
        data = self._metrics.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        yield from ((dict(point.attributes or {}), point) for point in metric.data.data_points)

    def total(self, name: str, **wanted: str) -> int:
        """The sum of a counter, or the count of a histogram, where attributes (``__`` is a dot) are these."""
        named = {key.replace("__", "."): value for key, value in wanted.items()}
        return sum(
            int(getattr(point, "count", 0) or getattr(point, "value", 0))
            for attributes, point in self.points(name)
            if named.items() <= attributes.items()
        )


def told(span: ReadableSpan) -> dict[str, AttributeValue]:
    """Its attributes."""
    return dict(span.attributes or {})


def linked(span: ReadableSpan) -> list[int]:
    """The span ids where its links go."""
    return [link.context.span_id for link in span.links]


def context(span: ReadableSpan) -> SpanContext:
    found: SpanContext | None = span.get_span_context()
    assert found is not None
    return found


def parent(span: ReadableSpan) -> int | None:
    """The parent's span id."""
    return span.parent.span_id if span.parent else None


def span_id(span: ReadableSpan) -> int:
    return context(span).span_id
