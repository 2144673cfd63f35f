"""Counters, windows and rates: what a broker says it did. The time is the test's."""

import pytest
from dejamq_broker.base import counts
from dejamq_broker.base.counts import FINE_BOUNDS_US, Counts
from dejamq_broker.operators.stats import SAMPLE_MS, StatisticsItem, Stats
from dejamq_broker.operators.store_rates import StoreRates, distribution, percentile_ms

DAY_MS = 86_400_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


class Site:
    """Counters with their windows, and a clock that moves."""

    def __init__(self) -> None:
        self.clock, self.counts = Clock(), Counts()
        self.stats = Stats(self.counts, "DefaultCluster", self.clock)
        self.rates = StoreRates(self.counts, self.clock, lambda now_ms: now_ms // DAY_MS)

    def samples(self, number: int) -> None:
        for _ in range(number):
            self.clock.now_ms += SAMPLE_MS
            self.stats.sample()

    def seconds(self, number: int) -> None:
        for _ in range(number):
            self.clock.now_ms += 1000
            self.rates.sample()

    def line(self, item: str) -> StatisticsItem:
        (line,) = self.stats.lines(item)
        return line


def test_what_is_stored_counts_for_its_topic_and_for_the_broker() -> None:
    site = Site()
    site.counts.stored("orders", 100, 20_000, 250)
    site.counts.stored("bills", 1, 300, 50)
    site.clock.now_ms = 10_000
    assert [(line.key, line.minute.sum) for line in site.stats.lines("TOPIC_PUT_NUMS")] == [
        ("bills", 1),
        ("orders", 100),
    ]
    (orders,) = site.stats.lines("TOPIC_PUT_SIZE", "orders")
    assert (orders.minute.sum, orders.minute.tps, orders.minute.average) == (20_000, 2_000.0, 20_000.0)
    assert (site.line("BROKER_PUT_NUMS").key, site.line("BROKER_PUT_NUMS").minute.sum) == ("DefaultCluster", 101)


def test_what_a_group_gets_and_gives_back_counts_for_topic_and_group() -> None:
    site = Site()
    site.counts.found("orders", "g", 32, 6_400, 2_000).fall_bytes += 512
    site.counts.given_back("orders", "g")
    site.counts.buried("%DLQ%g")
    assert {line.item: (line.key, line.minute.sum) for line in site.stats.lines()} == {
        "GROUP_GET_NUMS": ("orders@g", 32), "GROUP_GET_SIZE": ("orders@g", 6_400),
        "GROUP_GET_LATENCY": ("orders@g", 2), "GROUP_GET_FALL_SIZE": ("orders@g", 512),
        "SNDBCK_PUT_NUMS": ("orders@g", 1), "DLQ_PUT_NUMS": ("%DLQ%g@g", 1),
        "BROKER_GET_NUMS": ("DefaultCluster", 32),
    }  # fmt: skip


def test_a_window_forgets_what_is_older_than_it() -> None:
    site = Site()
    site.counts.stored("orders", 7, 700, 10)
    site.samples(6)
    assert site.line("TOPIC_PUT_NUMS").minute.sum == 7
    site.samples(1)
    line = site.line("TOPIC_PUT_NUMS")
    assert (line.minute.sum, line.hour.sum, line.day.sum) == (0, 7, 7)
    site.samples(420)
    line = site.line("TOPIC_PUT_NUMS")
    assert (line.hour.sum, line.day.sum) == (0, 7)


def test_what_did_nothing_for_a_day_is_forgotten() -> None:
    site = Site()
    site.counts.stored("orders", 7, 700, 10)
    site.counts.found("orders", "g", 7, 700, 10)
    site.samples(360 * 24)
    assert set(site.counts.topics) == {"orders"}
    site.counts.stored("alive", 1, 100, 10)
    site.samples(360)
    assert set(site.counts.topics) == {"alive"}
    assert site.counts.groups == {}


def test_groups_of_strangers_find_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MOST_GROUPS", 3)
    made = Counts()
    for number in range(10):
        made.found("orders", f"g{number}", 1, 100, 1)
    made.found("orders", "g1", 1, 100, 1)
    assert {key: gets.messages for key, gets in made.groups.items()} == {
        ("orders", "g0"): 1, ("orders", "g1"): 2, ("orders", "g2"): 1, ("*", "*"): 7,
    }  # fmt: skip
    assert made.gets.messages == 11


def test_what_was_deleted_begins_at_nothing() -> None:
    counts = Counts()
    for topic in ("orders", "bills"):
        counts.stored(topic, 1, 100, 1)
        counts.ended(topic, commit=True)
        for group in ("g", "h"):
            counts.found(topic, group, 1, 100, 1)
    counts.forget(topic="orders")
    assert (set(counts.topics), counts.committed) == ({"bills"}, {"bills": 1})
    assert set(counts.groups) == {("bills", "g"), ("bills", "h")}
    counts.forget(group="g")
    assert set(counts.groups) == {("bills", "h")}
    assert counts.puts.messages == 2


def test_rates_are_of_ten_seconds_a_minute_and_ten_minutes() -> None:
    site = Site()
    for _ in range(600):
        site.counts.stored("orders", 10, 1_000, 20)
        site.seconds(1)
    assert site.rates.put_tps() == "10.0 10.0 10.0"
    site.seconds(30)
    assert site.rates.put_tps() == "0.0 5.0 9.5"


def test_a_young_broker_tells_rates_of_what_there_is() -> None:
    site = Site()
    site.counts.missed(10)
    site.clock.now_ms += 500
    assert (site.rates.miss_tps(), site.rates.found_tps(), site.rates.total_tps()) == (
        "2.0 2.0 2.0", "0.0 0.0 0.0", "2.0 2.0 2.0",
    )  # fmt: skip


def test_the_totals_of_the_mornings_are_kept() -> None:
    site = Site()
    site.counts.stored("orders", 5, 500, 10)
    site.clock.now_ms = DAY_MS - 1000
    site.seconds(1)
    site.counts.stored("orders", 3, 300, 10)
    assert [totals.put for totals in site.rates.mornings()] == [0, 5, 8]
    site.clock.now_ms = 2 * DAY_MS
    site.rates.sample()
    assert [totals.put for totals in site.rates.mornings()] == [5, 8, 8]


def test_the_longest_put_is_told_for_a_minute() -> None:
    site = Site()
    site.counts.stored("orders", 1, 100, 7_000)
    site.seconds(1)
    site.counts.stored("orders", 1, 100, 9)
    site.seconds(58)
    assert site.rates.longest_put_lately_ms() == 7.0
    site.seconds(2)
    assert site.rates.longest_put_lately_ms() == 0.009
    assert site.counts.puts.longest_us == 7_000


def test_puts_are_told_apart_by_how_long_they_took() -> None:
    counts = Counts()
    for took_us in (3, 999, 1_000, 10_000, 10_001, 1_500_000, 60_000_000):
        counts.stored("orders", 1, 100, took_us)
    assert distribution(counts.puts.by_time) == (
        "[<=0ms]:2 [0~10ms]:2 [10~50ms]:1 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 [1~2s]:1 "
        "[2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1"
    )


def test_percentiles_are_the_bound_of_the_bucket_that_holds_them() -> None:
    counts = Counts()
    for took_us, times in ((15, 98), (300, 1), (90_000, 1)):
        for _ in range(times):
            counts.stored("orders", 1, 100, took_us)
    fine = counts.puts.fine
    assert (percentile_ms(fine, 0.5), percentile_ms(fine, 0.99), percentile_ms(fine, 0.999)) == (0.02, 0.32, 163.84)
    assert percentile_ms([0] * (len(FINE_BOUNDS_US) + 1), 0.99) == 0.0


def test_latency_is_of_the_last_minutes_only() -> None:
    site = Site()
    site.counts.stored("orders", 1, 100, 5_000_000)
    site.seconds(120)
    site.counts.stored("orders", 1, 100, 8)
    assert site.rates.put_latency_ms(0.99) == 0.01


def test_sizes_are_those_of_a_run_on_average() -> None:
    counts = Counts()
    counts.stored("orders", 10, 10_240, 5)
    counts.stored("orders", 1, 5 << 20, 5)
    assert counts.puts.sizes == [10, 0, 0, 0, 0, 0, 1]
