"""Sums of a broker's work since it started: the hot paths add to them once a run, never once a message.

Rates, windows and metrics are worked out from these when somebody asks. Source: RocketMQ ``StoreStatsService`` and
``BrokerStatsManager``.
"""

from bisect import bisect_left
from collections.abc import Iterable

import msgspec
from dejamq_proto.names import DLQ_PREFIX

PUT_BOUNDS_US = (0, 10_000, 50_000, 100_000, 200_000, 500_000, *(n * 1_000_000 for n in (1, 2, 3, 4, 5, 10)))
"""Upper bounds of RocketMQ's ``putMessageDistributeTime``; the last bucket is above all of them."""
FINE_BOUNDS_US = tuple(10 * 2**step for step in range(21))
"""10 µs to 10 s, each twice the one before: for percentiles."""
SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
"""Bytes of messages, RocketMQ's buckets of ``rocketmq_message_size``."""
SHORTEST_PUT_US = 1_000
MOST_GROUPS = 50_000
"""Pairs of topic and group: pulls of strangers name any group, and each would be kept for a day."""
OTHERS = ("*", "*")
"""Where those above it are counted."""


class TopicPuts(msgspec.Struct):
    """Sums of the messages stored under one topic; ``us`` is the time of all together."""

    messages: int = 0
    bytes: int = 0
    calls: int = 0
    us: int = 0


class GroupGets(msgspec.Struct):
    """Sums of the messages that one group got of one topic, and of those it gave back.

    ``fall_bytes`` and ``fall_ms`` are how far behind the end of the log, and how old, the last message of a pull was.
    They are summed over ``calls`` (RocketMQ: recordDiskFallSize, recordDiskFallTime).
    """

    messages: int = 0
    bytes: int = 0
    calls: int = 0
    us: int = 0
    fall_bytes: int = 0
    fall_ms: int = 0
    sent_back: int = 0
    dead: int = 0


class Puts(msgspec.Struct):
    """All appends. ``failed`` ones stored nothing."""

    times: int = 0
    messages: int = 0
    bytes: int = 0
    failed: int = 0
    longest_us: int = 0
    lately_longest_us: int = 0
    """The taker of samples sets it back."""
    by_time: list[int] = msgspec.field(default_factory=lambda: [0] * (len(PUT_BOUNDS_US) + 1))
    fine: list[int] = msgspec.field(default_factory=lambda: [0] * (len(FINE_BOUNDS_US) + 1))
    sizes: list[int] = msgspec.field(default_factory=lambda: [0] * (len(SIZE_BOUNDS) + 1))


class Gets(msgspec.Struct):
    """All reads of queues for consumers: those that ``found`` messages, those that ``missed``, messages handed out."""

    found: int = 0
    missed: int = 0
    messages: int = 0
    bytes: int = 0
    longest_us: int = 0


class Counts:
    """Owned by the event loop. Keys that did nothing for a day are forgotten by ``Stats``."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicPuts] = {}
        self.groups: dict[tuple[str, str], GroupGets] = {}
        """By topic and group."""
        self.puts, self.gets = Puts(), Gets()
        self.committed: dict[str, int] = {}
        """Transactions by the topic that their message was for; the next one too."""
        self.rolled_back: dict[str, int] = {}

    def stored(self, topic: str, messages: int, size: int, took_us: int) -> None:
        """These messages of one topic were appended together."""
        self.stored_run(((topic, messages, size),), took_us)

    def stored_run(self, of_topics: Iterable[tuple[str, int, int]], took_us: int) -> None:
        """One append: of each topic, how many messages and their bytes."""
        for topic, messages, size in of_topics:
            self._add(topic, messages, size, took_us)
        puts = self.puts
        puts.times += 1
        puts.fine[bisect_left(FINE_BOUNDS_US, took_us)] += 1
        puts.by_time[bisect_left(PUT_BOUNDS_US, took_us) if took_us >= SHORTEST_PUT_US else 0] += 1
        if took_us > puts.lately_longest_us:
            puts.lately_longest_us = took_us
            puts.longest_us = max(puts.longest_us, took_us)

    def _add(self, topic: str, messages: int, size: int, took_us: int) -> None:
        of_topic = self.topics.get(topic)
        if of_topic is None:
            of_topic = self.topics[topic] = TopicPuts()
        of_topic.messages += messages
        of_topic.bytes += size
        of_topic.calls += 1
        of_topic.us += took_us
        puts = self.puts
        puts.messages += messages
        puts.bytes += size
        puts.sizes[bisect_left(SIZE_BOUNDS, size // messages)] += messages

    def refused(self) -> None:
        """The store took nothing of a run."""
        self.puts.failed += 1

    def given_back(self, topic: str, group: str) -> None:
        """A failed message of this topic was stored again for its group."""
        self._of_group(topic, group).sent_back += 1

    def buried(self, topic: str, messages: int = 1) -> None:
        """Messages became dead letters: ``topic`` is ``%DLQ%group``."""
        self._of_group(topic, topic.removeprefix(DLQ_PREFIX)).dead += messages

    def ended(self, topic: str, *, commit: bool) -> None:
        """A transaction ended."""
        ends = self.committed if commit else self.rolled_back
        ends[topic] = ends.get(topic, 0) + 1

    def found(self, topic: str, group: str, messages: int, size: int, took_us: int) -> GroupGets:
        """A pull got messages; for the caller to add what else it knows."""
        of_group = self._of_group(topic, group)
        of_group.messages += messages
        of_group.bytes += size
        of_group.calls += 1
        of_group.us += took_us
        gets = self.gets
        gets.found += 1
        gets.messages += messages
        gets.bytes += size
        gets.longest_us = max(gets.longest_us, took_us)
        return of_group

    def missed(self, took_us: int) -> None:
        """A pull got nothing."""
        self.gets.missed += 1
        self.gets.longest_us = max(self.gets.longest_us, took_us)

    def forget(self, *, topic: str = "", group: str = "") -> None:
        """The topic or the group was deleted; whatever comes later begins at 0. RocketMQ: onTopicDeleted."""
        self.topics.pop(topic, None)
        for ends in (self.committed, self.rolled_back):
            ends.pop(topic, None)
        for key in [one for one in self.groups if topic == one[0] or group == one[1]]:
            del self.groups[key]

    def _of_group(self, topic: str, group: str) -> GroupGets:
        key = topic, group
        found = self.groups.get(key)
        if found is None:
            key = key if len(self.groups) < MOST_GROUPS else OTHERS
            found = self.groups.setdefault(key, GroupGets())
        return found
