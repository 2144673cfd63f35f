"""What a measurement gives, in the shape that ``dejamq bench -o json`` prints."""

from typing import Any

import msgspec
import numpy as np


class BenchResult(msgspec.Struct, frozen=True):
    """One measurement. Times of single messages are in ms and None where a measurement has none."""

    what: str
    messages: int
    body_bytes: int
    seconds: float
    messages_per_second: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    baseline: dict[str, float] = {}
    settings: dict[str, Any] = {}


class Load(msgspec.Struct, frozen=True):
    """How much to send and how.

    ``mode`` is submit (as fast as the backlog takes them), await (``concurrency`` senders that wait) or single
    (one of them). ``rate`` is messages a second, for latency.
    """

    messages: int = 100_000
    body_bytes: int = 1024
    mode: str = "submit"
    concurrency: int = 256
    rate: int = 10_000
    journal_level: str = "audit"


def percentiles(samples_ms: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    p50, p99 = np.percentile(np.array(samples_ms), (50, 99))
    return round(float(p50), 3), round(float(p99), 3)
