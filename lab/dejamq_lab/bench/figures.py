"""Figures that are measured side by side, their goals, and the number of messages for each side."""

from typing import Literal

import msgspec

from dejamq_lab.bench.client.result import BenchResult, Load
from dejamq_lab.bench.client.worker import OWN

Unit = Literal["/s", "ms"]
FRAMES = f"{OWN}, frames"
"""dejamq again, with runs and pulls at the fast port; ``OWN`` is dejamq as it is by default, over gRPC."""
BATCHES = "rocketmq, batches of 32"
SLOW = "rabbitmq"


class Figure(msgspec.Struct, frozen=True):
    """One row of the table. ``sides``: who is measured -> how many messages, about two seconds' worth for each.

    ``value`` is a field of a result; the goal is told in words and, where it is a number of that field, as one.
    """

    key: str
    title: str
    what: str
    load: Load
    sides: dict[str, int]
    value: Literal["messages_per_second", "p50_ms", "p99_ms"] = "messages_per_second"
    goal: str = ""
    at_least: float | None = None
    at_most: float | None = None
    alone: bool = False
    """With servers of its own, though those that stand have its settings: as the figure it is compared with has."""

    @property
    def unit(self) -> Unit:
        return "/s" if self.value == "messages_per_second" else "ms"

    @property
    def stands_alone(self) -> bool:
        """Whether it has servers of its own."""
        return self.alone or self.load.journal_level != "audit" or self.load.flush_mode != "async"

    def of(self, result: BenchResult) -> float:
        """The figure's value in a result. Raises ValueError where the result has none."""
        value: float | None = getattr(result, self.value)
        if value is None:
            raise ValueError(f"{self.key} has no {self.value}")
        return value

    def load_of(self, side: str) -> Load:
        load = msgspec.structs.replace(self.load, messages=self.sides[side])
        if side == BATCHES:
            return msgspec.structs.replace(load, mode="batch", batch_size=32)
        return msgspec.structs.replace(load, transport="frames") if side == FRAMES else load


def ours(messages: int) -> dict[str, int]:
    """Both sides of dejamq, each with ``messages`` messages."""
    return {OWN: messages, FRAMES: messages}


FIGURES = (
    Figure(
        "send", "sent as fast as can be, each acknowledged", "send", Load(),
        ours(400_000)
        | {"kafka": 300_000, "redis": 100_000, "nats": 60_000, "rocketmq": 60_000, BATCHES: 200_000, SLOW: 8_000},
        goal="≥ 500 k/s; ≥ 1.5 × Kafka, ≥ 3 × Redis", at_least=500_000,
    ),
    Figure(
        "consume", "consumed one by one, bodies read, acknowledged", "consume", Load(),
        ours(800_000) | {"redis": 100_000, "nats": 60_000, "rocketmq": 150_000, SLOW: 8_000},
        goal="≥ 600 k/s", at_least=600_000,
    ),
    Figure(
        "poll", "polled by 500, body and id read", "poll", Load(), ours(500_000) | {"kafka": 300_000},
        goal="≥ 1 M/s (Kafka about that)", at_least=1_000_000,
    ),
    Figure(
        "single", "one send at a time, median", "send", Load(mode="single"),
        ours(1_500) | {"redis": 1_500, "nats": 1_500, "kafka": 500, "rocketmq": 1_500, SLOW: 500},
        value="p50_ms", goal="≤ 0.8 × a bare gRPC echo",
    ),
    Figure(
        "early", "send to handler at 5 k/s, median", "latency", Load(rate=5_000),
        ours(10_000) | {"redis": 10_000, "nats": 10_000, "kafka": 10_000, "rocketmq": 10_000},
        value="p50_ms",
    ),
    Figure(
        "await", "256 senders that wait", "send", Load(mode="await"), ours(150_000),
        goal="≥ 220 k/s", at_least=220_000,
    ),
    Figure(
        "small", "sent, bodies of 100 bytes", "send", Load(body_bytes=100), ours(400_000),
        goal="≥ 600 k/s", at_least=600_000,
    ),
    Figure(
        "batches", "consumed in batches of 64", "consume", Load(batch_size=64), ours(400_000),
        goal="≥ 1 M/s", at_least=1_000_000,
    ),
    Figure(
        "together", "through, sent and consumed together", "consume", Load(together=True), ours(800_000),
        goal="≥ 350 k/s", at_least=350_000,
    ),
    Figure(
        "late50", "send to handler at 50 k/s, median", "latency", Load(rate=50_000), ours(250_000),
        value="p50_ms", goal="≤ 1.5 ms", at_most=1.5,
    ),
    Figure(
        "late99", "send to handler at 50 k/s, 99th percentile", "latency", Load(rate=50_000), ours(250_000),
        value="p99_ms", goal="≤ 5 ms", at_most=5.0,
    ),
    Figure(
        "sync", "sync flush, 64 senders that wait", "send", Load(mode="await", concurrency=64, flush_mode="sync"),
        ours(100_000), goal="≥ 0.8 × 64 / (fdatasync + round trip)",
    ),
    Figure(
        "forensic", "consumed one by one, journal at forensic", "consume", Load(journal_level="forensic"),
        {OWN: 100_000}, goal="≥ 100 k/s", at_least=100_000,
    ),
    Figure("send_on", "sent, a broker of its own, journal at audit", "send", Load(), {OWN: 1_200_000}, alone=True),
    Figure("send_off", "sent, the same without journal", "send", Load(journal_level="off"), {OWN: 1_200_000}),
    Figure(
        "consume_on", "consumed one by one, a broker of its own, journal at audit", "consume", Load(), {OWN: 1_600_000},
        alone=True,
    ),
    Figure(
        "consume_off", "consumed one by one, the same without journal", "consume", Load(journal_level="off"),
        {OWN: 1_600_000},
    ),
)  # fmt: skip
