"""Flow control: when a consumer stops to pull because its handlers are behind.

Source: RocketMQ ``DefaultMQPushConsumerImpl.pullMessage``, ``RebalancePushImpl.messageQueueChanged``.
"""

import sys

from dejamq.receiving.process_queue import FlowLimits
from dejamq.values.config import NO_LIMIT, FlowConfig


class Thresholds:
    """The limits of one queue, while so many are assigned. Pure."""

    def __init__(self, config: FlowConfig, *, in_order: bool = False) -> None:
        """``in_order``: how far unfinished messages are apart does not matter."""
        self._config = config
        self._span = sys.maxsize if in_order else config.consume_concurrently_max_span
        self._by_count: dict[int, FlowLimits] = {}

    def limits(self, queue_count: int) -> FlowLimits:
        """The limit of a topic is divided by the number of all assigned queues, as in RocketMQ; at least 1 remains."""
        limits = self._by_count.get(queue_count)
        if limits is None:
            config, share = self._config, max(1, queue_count)
            count, size = config.pull_threshold_for_queue, config.pull_threshold_size_for_queue
            if config.pull_threshold_for_topic != NO_LIMIT:
                count = max(1, config.pull_threshold_for_topic // share)
            if config.pull_threshold_size_for_topic != NO_LIMIT:
                size = max(1, config.pull_threshold_size_for_topic // share)
            limits = self._by_count[queue_count] = FlowLimits(count, size << 20, self._span)
        return limits
