"""Flow control: when a consumer stops to pull because its handlers are behind.

Source: RocketMQ ``DefaultMQPushConsumerImpl.pullMessage``, ``RebalancePushImpl.messageQueueChanged``.
"""

import sys
from dataclasses import dataclass

from dejamq_proto.codes import ConfigError
from dejamq_proto.settings import setting

from dejamq.process_queue import Limits

NO_LIMIT = -1


@dataclass(frozen=True)
class FlowConfig:
    """The thresholds of flow control; part of ``ConsumerConfig``.

    They are checked before a pull and exceeded by more than their value, so that a queue may hold up to one pull above
    them.
    """

    pull_threshold_for_queue: int = setting(
        1000, rocketmq="pullThresholdForQueue", help="unfinished messages of a queue above which it is not pulled"
    )
    pull_threshold_size_for_queue: int = setting(
        100, rocketmq="pullThresholdSizeForQueue", unit="MiB", help="the same for their bodies"
    )
    pull_threshold_for_topic: int = setting(
        NO_LIMIT, rocketmq="pullThresholdForTopic",
        help="in place of pull_threshold_for_queue, shared out among all assigned queues; -1: not used",
    )  # fmt: skip
    pull_threshold_size_for_topic: int = setting(
        NO_LIMIT, rocketmq="pullThresholdSizeForTopic", unit="MiB", help="the same for their bodies"
    )
    consume_concurrently_max_span: int = setting(
        2000, rocketmq="consumeConcurrentlyMaxSpan", help="distance of unfinished messages above which it is not pulled"
    )
    max_cached_bytes: int = setting(64 << 20, unit="bytes", help="bodies of unfinished messages of all queues together")
    flow_control_interval_ms: int = setting(
        50, unit="ms", scale="interval", help="until it is looked again whether there is room, while queues wait for it"
    )
    pull_interval_ms: int = setting(
        0, rocketmq="pullInterval", unit="ms", scale="interval", help="to wait after a pull that brought messages"
    )

    def validate_flow(self) -> None:
        """Raise ConfigError outside of RocketMQ's ranges."""
        most = {
            "pull_threshold_for_queue": 65_535, "pull_threshold_size_for_queue": 1024,
            "pull_threshold_for_topic": 6_553_500, "pull_threshold_size_for_topic": 102_400,
            "consume_concurrently_max_span": 65_535,
        }  # fmt: skip
        for name, limit in most.items():
            value, unused = getattr(self, name), NO_LIMIT if name.endswith("_topic") else None
            if value != unused and not 1 <= value <= limit:
                raise ConfigError(f"{name} must be 1 to {limit}{'' if unused is None else ', or -1'}, not {value}")
        if not 0 <= self.pull_interval_ms <= 65_535:
            raise ConfigError(f"pull_interval_ms must be 0 to 65535, not {self.pull_interval_ms}")
        if self.max_cached_bytes < 1:
            raise ConfigError(f"max_cached_bytes must be more than 0, not {self.max_cached_bytes}")


class Thresholds:
    """The limits of one queue, while so many are assigned. Pure."""

    def __init__(self, config: FlowConfig, *, in_order: bool = False) -> None:
        """``in_order``: how far unfinished messages are apart does not matter."""
        self._config = config
        self._span = sys.maxsize if in_order else config.consume_concurrently_max_span
        self._by_count: dict[int, Limits] = {}

    def limits(self, queue_count: int) -> Limits:
        """What a topic may hold is divided by the number of all assigned queues, as in RocketMQ; at least 1 remains."""
        limits = self._by_count.get(queue_count)
        if limits is None:
            config, share = self._config, max(1, queue_count)
            count, size = config.pull_threshold_for_queue, config.pull_threshold_size_for_queue
            if config.pull_threshold_for_topic != NO_LIMIT:
                count = max(1, config.pull_threshold_for_topic // share)
            if config.pull_threshold_size_for_topic != NO_LIMIT:
                size = max(1, config.pull_threshold_size_for_topic // share)
            limits = self._by_count[queue_count] = Limits(count, size << 20, self._span)
        return limits
