"""Families of metrics from values that are at hand. Imported by servers that serve metrics only."""

from collections.abc import Iterable, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dejamq_proto.serving.timings import BOUNDS_MS, Timings

Labelled = Iterable[tuple[Sequence[str], float]]
"""Values with their labels."""


def gauge(name: str, told: str, labels: Sequence[str], values: Labelled) -> Metric:
    """A value that goes up and down."""
    made = GaugeMetricFamily(name, told, labels=labels)
    for key, value in values:
        made.add_metric(key, value)
    return made


def counter(name: str, told: str, labels: Sequence[str], values: Labelled) -> Metric:
    """A sum since the start; ``_total`` is added to the name."""
    made = CounterMetricFamily(name, told, labels=labels)
    for key, value in values:
        made.add_metric(key, value)
    return made


def histogram(
    name: str, told: str, labels: Sequence[str],
    values: Iterable[tuple[Sequence[str], Sequence[float], Sequence[int], float]],
) -> Metric:  # fmt: skip
    """``values`` are labels, upper bounds, how many lie up to each bound and above the last, and the sum of all."""
    made = HistogramMetricFamily(name, told, labels=labels)
    for key, bounds, numbers, total in values:
        buckets, below = [], 0
        for bound, number in zip((*bounds, "+Inf"), numbers, strict=True):
            below += number
            buckets.append((str(bound), below))
        made.add_metric(key, buckets, sum_value=total)
    return made


def calls_metric(timings: Timings, labels: Sequence[str], node: Sequence[str]) -> Metric:
    """RocketMQ's rpc_latency; the request code is our method's name, the response code RocketMQ's."""
    return histogram(
        "rocketmq_rpc_latency", "Time of calls, ms.",
        (*labels, "request_code", "response_code", "is_long_polling"),
        [
            ((*node, method, code, "false"), BOUNDS_MS, timed.by_time, timed.sum_ms)
            for (method, code), timed in timings.calls.items()
        ],
    )  # fmt: skip
