"""The broker's statistics by RocketMQ's items: sums of the last minute, hour and day. Pure: the time is an argument.

Every ten seconds the counters are looked at, and those that moved are copied; that is all the windows cost. Source:
RocketMQ ``BrokerStatsManager``, ``StatsItem``.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from dejamq_broker.base.counts import Counts, Gets, GroupGets, Puts, TopicPuts

SAMPLE_MS = 10_000
HOUR_STEP, DAY_STEP = 60, 360  # samples from one of the hour, and of the day, to the next
MINUTE_SAMPLES, HOUR_SAMPLES, DAY_SAMPLES = 7, 7, 25
At = tuple[type, str, str]
"""The kind of counter, its topic and its group; '' where it has none."""


class CallRates(msgspec.Struct, frozen=True):
    """``tps`` is by the second of the time that was looked at, ``average`` by call."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0


class StatisticsItem(msgspec.Struct, frozen=True):
    """One item of one key; keys are ``topic``, ``topic@group`` or the cluster's name, as in RocketMQ."""

    item: str
    key: str
    minute: CallRates
    hour: CallRates
    day: CallRates


class Sums(NamedTuple):
    """A counter at a moment, and how often it was added to."""

    value: int
    times: int


Snapshot = dict[At, Any]
ITEMS: dict[type, dict[str, Callable[[Any], Sums]]] = {
    TopicPuts: {
        "TOPIC_PUT_NUMS": lambda it: Sums(it.messages, it.calls),
        "TOPIC_PUT_SIZE": lambda it: Sums(it.bytes, it.calls),
        "TOPIC_PUT_LATENCY": lambda it: Sums(it.us // 1000, it.calls),
    },
    GroupGets: {
        "GROUP_GET_NUMS": lambda it: Sums(it.messages, it.calls),
        "GROUP_GET_SIZE": lambda it: Sums(it.bytes, it.calls),
        "GROUP_GET_LATENCY": lambda it: Sums(it.us // 1000, it.calls),
        "GROUP_GET_FALL_SIZE": lambda it: Sums(it.fall_bytes, it.calls),
        "GROUP_GET_FALL_TIME": lambda it: Sums(it.fall_ms, it.calls),
        "SNDBCK_PUT_NUMS": lambda it: Sums(it.sent_back, it.sent_back),
        "DLQ_PUT_NUMS": lambda it: Sums(it.dead, it.dead),
    },
    Puts: {"BROKER_PUT_NUMS": lambda it: Sums(it.messages, it.times)},
    Gets: {"BROKER_GET_NUMS": lambda it: Sums(it.messages, it.found)},
}


class _Moment(NamedTuple):
    at_ms: int
    counts: Snapshot


class Stats:
    """Windows over the counters of one broker. Owned by the event loop; ``sample`` is called every ``SAMPLE_MS``."""

    def __init__(self, counts: Counts, cluster: str, clock_ms: Callable[[], int]) -> None:
        self._counts, self._cluster, self._clock_ms = counts, cluster, clock_ms
        begin = _Moment(clock_ms(), {})
        self._minute = deque([begin], MINUTE_SAMPLES)
        self._hour = deque([begin], HOUR_SAMPLES)
        self._day = deque([begin], DAY_SAMPLES)
        self._samples = 0

    def sample(self) -> None:
        """Keep this moment's counters. Topics and groups for which nothing happened for a day are forgotten."""
        self._samples += 1
        moment = _Moment(self._clock_ms(), self._snapshot())
        self._minute.append(moment)
        if self._samples % HOUR_STEP == 0:
            self._hour.append(moment)
        if self._samples % DAY_STEP == 0:
            self._day.append(moment)
            if len(self._day) == DAY_SAMPLES:
                self._forget_idle(self._day[0].counts)

    def lines(self, item: str = "", key: str = "") -> list[StatisticsItem]:
        """All counts so far, of one item and one key when they are given, sorted by both."""
        now_ms = self._clock_ms()
        found = []
        for at, counted in self._all():
            text = self._text(at)
            if key in ("", text):
                names = (name for name in ITEMS[at[0]] if item in ("", name))
                found += [self._line(name, text, at, counted, now_ms) for name in names]
        return sorted((line for line in found if line.day.sum), key=lambda line: (line.item, line.key))

    def _line(self, name: str, text: str, at: At, counted: Any, now_ms: int) -> StatisticsItem:
        read = ITEMS[at[0]][name]
        begins = self._minute[0], self._hour[0], self._day[0]
        windows = [_window(read(counted), read(one.counts.get(at) or at[0]()), now_ms - one.at_ms) for one in begins]
        return StatisticsItem(name, text, *windows)

    def _all(self) -> Iterator[tuple[At, Any]]:
        counts = self._counts
        for topic, puts in counts.topics.items():
            yield (TopicPuts, topic, ""), puts
        for (topic, group), gets in counts.groups.items():
            yield (GroupGets, topic, group), gets
        yield (Puts, "", ""), counts.puts
        yield (Gets, "", ""), counts.gets

    def _text(self, at: At) -> str:
        _, topic, group = at
        return f"{topic}@{group}" if group else topic or self._cluster

    def _snapshot(self) -> Snapshot:
        """A count that did not move since the last sample is the same object again."""
        last = self._minute[-1].counts
        taken = {}
        for at, counted in self._all():
            before = last.get(at)
            taken[at] = before if before == counted else msgspec.structs.replace(counted)
        return taken

    def _forget_idle(self, oldest: Snapshot) -> None:
        counts = self._counts
        for topic in [one for one, it in counts.topics.items() if oldest.get((TopicPuts, one, "")) == it]:
            del counts.topics[topic]
        for key in [one for one, it in counts.groups.items() if oldest.get((GroupGets, *one)) == it]:
            del counts.groups[key]


def _window(now: Sums, before: Sums, took_ms: int) -> CallRates:
    total, times = now.value - before.value, now.times - before.times
    return CallRates(total, total * 1000 / max(took_ms, 1), total / times if times else 0.0)
