"""Settings of producers of transactions, with RocketMQ's names and defaults."""

from dataclasses import dataclass

from dejamq_proto.codes import ConfigError
from dejamq_proto.settings import setting

from dejamq.producer_config import ProducerConfig


@dataclass(frozen=True)
class TransactionProducerConfig(ProducerConfig):
    """Source: RocketMQ ``TransactionMQProducer``. A check that finds no room is dropped; the broker asks again."""

    check_thread_pool_max_size: int = setting(
        1, rocketmq="checkThreadPoolMaxSize", help="checks that are answered at a time, by threads or in the loop"
    )
    check_request_hold_max: int = setting(2_000, rocketmq="checkRequestHoldMax", help="checks that wait, at most")
    execute_concurrency: int = setting(
        64, help="plain functions of send_in_transaction that run at a time, each in a thread of its own"
    )

    def validate(self) -> None:
        """As the base, and for numbers that let nothing happen."""
        super().validate()
        for name in ("check_thread_pool_max_size", "check_request_hold_max", "execute_concurrency"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1")
