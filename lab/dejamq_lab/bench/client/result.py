"""Jobs and results of measurements, in the shape that ``dejamq bench -o json`` prints."""

from typing import Any

import msgspec
import numpy as np


class BenchResult(msgspec.Struct, frozen=True):
    """One measurement. Times of single messages are in ms and None where a measurement has none.

    ``baseline`` is what the machine gave in the same run, and what a message cost each process in µs of a core.
    """

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
    """The amount to send, and the way of sending.

    ``mode`` is submit (as fast as the backlog takes them), await (``concurrency`` senders that wait), single
    (one of them) or batch (one of them, ``batch_size`` messages at a time). ``rate`` is messages a second, for
    latency. ``batch_size`` is also the number of messages that a handler gets at once; 1: one call for each.
    ``together``: the consumer works during the bulk send. ``flush_mode`` is async or sync. ``transport`` carries
    dejamq's runs and pulls: grpc, or frames at the fast port of a broker that has one.
    """

    messages: int = 100_000
    body_bytes: int = 1024
    mode: str = "submit"
    concurrency: int = 256
    rate: int = 10_000
    journal_level: str = "audit"
    batch_size: int = 1
    queues: int = 4
    topics: int = 1
    flush_mode: str = "async"
    together: bool = False
    transport: str = "grpc"

    def body(self) -> bytes:
        """The same bytes each time: neither compression nor caches are measured."""
        return (bytes(range(256)) * (self.body_bytes // 256 + 1))[: self.body_bytes]


class Span(msgspec.Struct, frozen=True):
    """The measurement of one client process: two moments of the machine's monotonic clock, and its time of a core."""

    began_ns: int
    ended_ns: int
    core_s: float
    p50_ms: float | None = None
    p99_ms: float | None = None

    @property
    def seconds(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e9


class Job(msgspec.Struct, frozen=True):
    """The task of one client process. ``role`` is produce, consume or drop; ``what`` the measurement.

    ``address`` is where the servers are, in the words of the side that started them.
    """

    what: str
    role: str
    address: str
    topics: list[str]
    load: Load
    journal_dir: str | None = None


def percentiles(samples_ms: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    p50, p99 = np.percentile(np.array(samples_ms), (50, 99))
    return round(float(p50), 3), round(float(p99), 3)
