"""A receiver of OTLP over gRPC for tests, in place of a collector: the services of opentelemetry-proto, in memory."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class _Metrics(metrics_grpc.MetricsServiceServicer):
    def __init__(self) -> None:
        self.requests: list[metrics_pb2.ExportMetricsServiceRequest] = []
        self.headers: dict[str, str] = {}

    def Export(self, request: Any, context: Any) -> metrics_pb2.ExportMetricsServiceResponse:
        self.headers = {name: str(value) for name, value in context.invocation_metadata()}
        self.requests.append(request)
        return metrics_pb2.ExportMetricsServiceResponse()


class _Traces(trace_grpc.TraceServiceServicer):
    def __init__(self) -> None:
        self.requests: list[trace_pb2.ExportTraceServiceRequest] = []

    def Export(self, request: Any, context: Any) -> trace_pb2.ExportTraceServiceResponse:
        self.requests.append(request)
        return trace_pb2.ExportTraceServiceResponse()


class Receiver:
    """What came so far."""

    def __init__(self) -> None:
        self.address = ""
        self._metrics, self._traces = _Metrics(), _Traces()

    def metrics(self, service: str) -> dict[str, Metric]:
        """The last of each name from this service."""
        return {
            metric.name: metric
            for request in self._metrics.requests
            for resource in request.resource_metrics
            if attributes(resource.resource)["service.name"] == service
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def spans(self) -> list[tuple[str, Span]]:
        """All, with the names of their services."""
        return [
            (attributes(resource.resource)["service.name"], span)
            for request in self._traces.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def headers(self) -> dict[str, str]:
        """Of the last request with metrics."""
        return self._metrics.headers

    @property
    def exports(self) -> int:
        """How many requests with metrics came."""
        return len(self._metrics.requests)

    def listen(self, server: grpc.Server, port: int) -> None:
        metrics_grpc.add_MetricsServiceServicer_to_server(self._metrics, server)  # type: ignore[no-untyped-call]
        trace_grpc.add_TraceServiceServicer_to_server(self._traces, server)  # type: ignore[no-untyped-call]
        self.address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
        server.start()


def attributes(of: Any) -> dict[str, Any]:
    """Of a resource, a span or a data point."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value") for one in of.attributes}


@contextmanager
def receiver(port: int = 0) -> Iterator[Receiver]:
    """Listens, port 0: on a free one, until the end of the block."""
    made, server = Receiver(), grpc.server(ThreadPoolExecutor(4))
    made.listen(server, port)
    try:
        yield made
    finally:
        server.stop(None).wait(10)
