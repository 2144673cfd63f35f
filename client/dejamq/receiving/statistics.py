"""Recent statistics of a consumer, by topic and queue, in RocketMQ's terms. Pure: the time is an argument.

Workers and fetch loops only add to counters; rates are worked out when somebody asks. Source: RocketMQ
``ConsumerStatsManager``, ``StatsItem``, ``ConsumeStatus``, ``ProcessQueueInfo``.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.counts import QueueCounts
from dejamq.values.message import MessageQueue
from dejamq.values.namespace import unwrap, unwrap_queue

SAMPLE_S = 10.0
"""Between samples of the last minute; there are seven, and as many of the last hour."""
SAMPLES, SAMPLES_AN_HOUR_SAMPLE = 7, 60


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Of the last minute; ``consume_rt_ms`` of the last hour where there was no call in the last minute.

    RocketMQ: pullRT, pullTPS, consumeRT, consumeOKTPS, consumeFailedTPS; consumeFailedMsgs counts the last hour. A pull
    counts when it brought messages; ``*_rt_ms`` are means, of one call of a handler whatever number of messages it had.
    """

    pull_rt_ms: float = 0.0
    pull_tps: float = 0.0
    consume_rt_ms: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0


class QueueStatistics(Rates, frozen=True, kw_only=True):
    """One owned queue. ``lag``: from the low-water mark to the end that the broker told last; None before it told."""

    commit_offset: int
    cached_msg_count: int
    cached_msg_bytes: int
    in_flight: int
    lag: int | None


class TopicStatistics(Rates, frozen=True, kw_only=True):
    """All queues of a topic that this consumer owns or owned lately; ``lag`` is the sum of the owned ones'.

    Retries count for the group's retry topic, as in RocketMQ.
    """

    lag: int | None


class ConsumerStatistics(msgspec.Struct, frozen=True):
    """A moment's view."""

    topics: dict[str, TopicStatistics]
    queues: dict[MessageQueue, QueueStatistics]


class Statistics:
    """The counters of one consumer. Owned by the event loop; ``sample`` is called every ``SAMPLE_S``."""

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._counts: dict[MessageQueue, QueueCounts] = {}
        self._minute: deque[_Sample] = deque([_Sample(now_s, {})], maxlen=SAMPLES)
        self._hour: deque[_Sample] = deque([_Sample(now_s, {})], maxlen=SAMPLES)
        self._samples = 0

    def of(self, queue: MessageQueue) -> QueueCounts:
        """The queue's counters, the same over all ownerships."""
        return self._counts.setdefault(queue, QueueCounts())

    def sample(self, now_s: float, owned: Iterable[OwnedQueue]) -> None:
        """Keep this moment's counters; queues that are not owned and did nothing for an hour are forgotten."""
        self._samples += 1
        counts = {queue: counted.copy() for queue, counted in self._counts.items()}
        self._minute.append(_Sample(now_s, counts))
        if self._samples % SAMPLES_AN_HOUR_SAMPLE == 0:
            self._hour.append(_Sample(now_s, counts))
            self._forget_idle({one.queue for one in owned})

    def _forget_idle(self, kept: set[MessageQueue]) -> None:
        oldest = self._hour[0].counts
        idle = [queue for queue, counted in self._counts.items() if queue not in kept and counted == oldest.get(queue)]
        for queue in idle:
            del self._counts[queue]
            for sample in (*self._minute, *self._hour):
                sample.counts.pop(queue, None)

    def view(self, now_s: float, owned: Iterable[OwnedQueue]) -> ConsumerStatistics:
        """Rates from the oldest samples to now."""
        queues = {one.queue: self._of_queue(one, now_s) for one in owned}
        topics = {}
        for topic in sorted({queue.topic for queue in (*self._counts, *queues)}):
            lags = [found.lag for queue, found in queues.items() if queue.topic == topic and found.lag is not None]
            members = [queue for queue in self._counts if queue.topic == topic]
            rates = msgspec.structs.asdict(self._rates(members, now_s))
            topics[topic] = TopicStatistics(**rates, lag=sum(lags) if lags else None)
        return ConsumerStatistics(topics, queues)

    def _of_queue(self, owned: OwnedQueue, now_s: float) -> QueueStatistics:
        held = owned.process_queue
        return QueueStatistics(
            **msgspec.structs.asdict(self._rates([owned.queue], now_s)), commit_offset=held.low_water,
            cached_msg_count=len(held), cached_msg_bytes=held.cached_bytes, in_flight=held.in_flight,
            lag=None if owned.max_offset is None else max(0, owned.max_offset - held.low_water),
        )  # fmt: skip

    def _rates(self, queues: Iterable[MessageQueue], now_s: float) -> Rates:
        minute, hour, queues = self._minute[0], self._hour[0], tuple(queues)
        lately, before = self._since(minute, queues), self._since(hour, queues)
        seconds = max(now_s - minute.at_s, 1e-9)
        calls = lately if lately.calls else before
        return Rates(
            pull_rt_ms=1000 * lately.pull_s / lately.pulls if lately.pulls else 0.0,
            pull_tps=lately.pulled / seconds,
            consume_rt_ms=1000 * calls.call_s / calls.calls if calls.calls else 0.0,
            consume_ok_tps=lately.succeeded / seconds,
            consume_failed_tps=lately.failed / seconds,
            consume_failed_msgs=before.failed,
        )

    def _since(self, sample: "_Sample", queues: Iterable[MessageQueue]) -> QueueCounts:
        total = QueueCounts()
        for queue in queues:
            total.add(self._counts.get(queue, NOTHING), sample.counts.get(queue, NOTHING))
        return total


def outside(namespace: str, view: ConsumerStatistics) -> ConsumerStatistics:
    """The same, topics as the program knows them."""
    if not namespace:
        return view
    topics = {unwrap(namespace, topic): found for topic, found in view.topics.items()}
    return ConsumerStatistics(topics, {unwrap_queue(namespace, queue): one for queue, one in view.queues.items()})


class _Sample(msgspec.Struct, frozen=True):
    at_s: float
    counts: dict[MessageQueue, QueueCounts]


NOTHING = QueueCounts()
