"""How far a group is behind, whatever became of the queue and of its offset."""

from types import SimpleNamespace
from typing import Any

import pytest
from dejamq_broker.metrics_lag import Lag, lag_of

NOW_MS, FIRST_MS = 100_000, 60_000


def lag(committed: int, pulled: int | None, *, low: int = 10, high: int = 20) -> Lag:
    """Of a queue whose entry n was stored n seconds after ``FIRST_MS``."""

    def stored_ms(topic: str, queue_id: int, queue_offset: int) -> int:
        assert low <= queue_offset < high
        return FIRST_MS + queue_offset * 1000

    store = SimpleNamespace(max_offset=lambda *_: high, min_offset=lambda *_: low, stored_ms=stored_ms)
    domain: Any = SimpleNamespace(store=store, offsets=SimpleNamespace(pulled=lambda at: pulled))
    return lag_of(domain, "t", "g", {0: committed}, NOW_MS)


@pytest.mark.parametrize(
    ("committed", "pulled", "expected"),
    [
        (15, 18, Lag(messages=5, in_flight=3, latency_ms=25_000, queueing_ms=22_000)),
        (15, 20, Lag(messages=5, in_flight=5, latency_ms=25_000)),
        (15, None, Lag(messages=5, latency_ms=25_000, queueing_ms=25_000)),
        (20, 20, Lag()),
        (3, None, Lag(messages=10, latency_ms=30_000, queueing_ms=30_000)),
        (15, 12, Lag(messages=5, latency_ms=25_000, queueing_ms=25_000)),
        (99, 120, Lag()),
    ],
    ids=["in the middle", "all pulled", "never pulled", "done", "expired", "reset", "beyond the end"],
)
def test_a_lag_is_what_is_there_and_not_committed(committed: int, pulled: int | None, expected: Lag) -> None:
    assert lag(committed, pulled) == expected


def test_a_queue_without_messages_has_no_lag() -> None:
    assert lag(0, None, low=0, high=0) == lag(7, 7, low=5, high=5) == Lag()
