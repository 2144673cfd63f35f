"""Settings of lite pull consumers."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dejamq_proto.codes import ConfigError
from dejamq_proto.settings import setting

from dejamq.config import ConsumerConfig, client_config
from dejamq.handover_config import HandoverConfig
from dejamq.ordered_config import OrderedConfig


@dataclass(frozen=True)
class LitePullConfig(ConsumerConfig):
    """Source: RocketMQ ``DefaultLitePullConsumer``. Pulling, allocation and persisting are the push consumer's."""

    auto_commit_interval_ms: int = setting(
        5_000, rocketmq="autoCommitIntervalMillis", unit="ms", scale="interval",
        help="between commits into memory, made by poll; the timer of offsets sends them",
    )  # fmt: skip
    poll_timeout_ms: int = setting(
        5_000, rocketmq="pollTimeoutMillis", unit="ms", help="how long a poll waits for a message unless told"
    )
    max_poll_messages: int = setting(
        500, help="what a poll returns at most unless told; in RocketMQ what one pull brought of one queue, 10 or fewer"
    )
    pull_threshold_for_all: int = setting(
        10_000, rocketmq="pullThresholdForAll", help="messages of all queues together above which none is pulled"
    )
    consume_concurrently_max_span: int = setting(
        2_000, rocketmq="consumeMaxSpan", help="distance of unfinished messages above which a queue is not pulled"
    )
    broker_suspend_max_time_ms: int = setting(
        20_000, unit="ms", scale="interval", help="how long a broker may hold a pull that finds nothing"
    )

    def validate(self) -> None:
        """As the base."""
        super().validate()
        for name in ("auto_commit_interval_ms", "max_poll_messages", "pull_threshold_for_all"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0")


FOR_HANDLERS = {"consume_retry_delay_ms", "consume_timeout_ms"} | {
    field.name for kind in (OrderedConfig, HandoverConfig) for field in dataclasses.fields(kind)
}


def lite_config(namesrv: str | Sequence[str] | None, settings: Mapping[str, Any]) -> LitePullConfig:
    """From the environment and what the program gives. Raises ConfigError, also for a setting of push consumers."""
    for name in sorted(settings.keys() & FOR_HANDLERS):
        raise ConfigError(f"{name} is for push consumers and their handlers; a LitePullConsumer has none")
    return client_config(LitePullConfig, namesrv, settings)
