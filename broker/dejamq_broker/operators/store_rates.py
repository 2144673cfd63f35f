"""How fast the store works: rates over ten seconds, a minute, ten minutes, and totals at midnight. Pure.

Source: RocketMQ ``StoreStatsService``, ``BrokerStats``.
"""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dejamq_broker.base.counts import FINE_BOUNDS_US, PUT_BOUNDS_US, Counts

SAMPLE_MS = 1_000
SPANS_MS = (10_000, 60_000, 600_000)
SAMPLES = 601
LATELY = 60  # samples: of them the longest put is told


class RateSample(NamedTuple):
    """The totals at one moment."""

    at_ms: int
    put: int = 0
    found: int = 0
    missed: int = 0
    transferred: int = 0
    longest_put_us: int = 0


class StoreTotals(NamedTuple):
    """Messages stored and handed out since the start."""

    put: int = 0
    got: int = 0


class StoreRates:
    """Owned by the event loop; ``sample`` is called every ``SAMPLE_MS``."""

    def __init__(self, counts: Counts, clock_ms: Callable[[], int], day_of: Callable[[int], int]) -> None:
        """``day_of`` tells the day of a time; another one begins at the operator's midnight."""
        self._counts, self._clock_ms, self._day_of = counts, clock_ms, day_of
        now_ms = clock_ms()
        self._samples: deque[RateSample] = deque([RateSample(now_ms)], SAMPLES)
        self._day = day_of(now_ms)
        self._this_morning = self._yesterday_morning = StoreTotals()
        self._fine: deque[list[int]] = deque([list(counts.puts.fine)], 2)
        self._taken = 0

    def sample(self) -> None:
        """Keep this moment's totals; the first sample of a day also keeps the totals of its morning."""
        sample = self._now()
        self._samples.append(sample)
        self._counts.puts.lately_longest_us = 0
        self._taken += 1
        if self._taken % LATELY == 0:
            self._fine.append(list(self._counts.puts.fine))
        day = self._day_of(sample.at_ms)
        if day != self._day:
            self._day = day
            self._yesterday_morning, self._this_morning = self._this_morning, self._totals()

    def put_tps(self) -> str:
        return self._tps(lambda one: one.put)

    def found_tps(self) -> str:
        return self._tps(lambda one: one.found)

    def miss_tps(self) -> str:
        return self._tps(lambda one: one.missed)

    def total_tps(self) -> str:
        """Of all pulls."""
        return self._tps(lambda one: one.found + one.missed)

    def transferred_tps(self) -> str:
        return self._tps(lambda one: one.transferred)

    def longest_put_lately_ms(self) -> float:
        """Of the last minute."""
        lately = [one.longest_put_us for one in list(self._samples)[-LATELY:]]
        return max(*lately, self._counts.puts.lately_longest_us) / 1000

    def put_latency_ms(self, share: float) -> float:
        """In how long this share of the puts of the last minute or two was done."""
        lately = [now - before for now, before in zip(self._counts.puts.fine, self._fine[0], strict=True)]
        return percentile_ms(lately, share)

    def mornings(self) -> tuple[StoreTotals, StoreTotals, StoreTotals]:
        """Yesterday morning's, this morning's and now."""
        return self._yesterday_morning, self._this_morning, self._totals()

    def _totals(self) -> StoreTotals:
        return StoreTotals(self._counts.puts.messages, self._counts.gets.messages)

    def _now(self) -> RateSample:
        puts, gets = self._counts.puts, self._counts.gets
        return RateSample(
            self._clock_ms(), puts.messages, gets.found, gets.missed, gets.messages, puts.lately_longest_us
        )  # fmt: skip

    def _tps(self, read: Callable[[RateSample], int]) -> str:
        """Three rates as RocketMQ writes them; of a younger broker over what there is."""
        now = self._now()
        rates = []
        for span_ms in SPANS_MS:
            begin = next(one for one in self._samples if one.at_ms >= now.at_ms - span_ms or one is self._samples[-1])
            rates.append((read(now) - read(begin)) * 1000 / max(now.at_ms - begin.at_ms, 1))
        return " ".join(f"{rate:.1f}" for rate in rates)


def distribution(by_time: Sequence[int]) -> str:
    """RocketMQ's text of ``putMessageDistributeTime``."""
    bounds = [_length(bound) for bound in PUT_BOUNDS_US]
    between = [f"{_bare(low) if _unit(low) == _unit(high) else low}~{high}" for low, high in itertools.pairwise(bounds)]
    ranges = ["<=0ms", *between, f"{bounds[-1]}~"]
    return " ".join(f"[{name}]:{count}" for name, count in zip(ranges, by_time, strict=True))


def percentile_ms(fine: Sequence[int], share: float) -> float:
    """The upper bound of the bucket in which this share of all puts lies, in ms; 0 without puts."""
    wanted, seen = sum(fine) * share, 0
    for count, bound in zip(fine, (*FINE_BOUNDS_US, FINE_BOUNDS_US[-1] * 2), strict=True):
        seen += count
        if count and seen >= wanted:
            return float(bound / 1000)
    return 0.0


def _length(us: int) -> str:
    return f"{us // 1_000_000}s" if us >= 1_000_000 else f"{us // 1000}ms"


def _bare(length: str) -> str:
    return length.rstrip("ms")


def _unit(length: str) -> str:
    return length.lstrip("0123456789")
