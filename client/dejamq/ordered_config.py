"""Settings of consumption in order, with RocketMQ's names and defaults; part of ``ConsumerConfig``."""

from dataclasses import dataclass

from dejamq_proto.codes import ConfigError
from dejamq_proto.settings import setting


@dataclass(frozen=True)
class OrderedConfig:
    """Times of queue locks and suspensions. Source: RocketMQ ``ProcessQueue``, ``ConsumeMessageOrderlyService``.

    A broker keeps a lock for 60 s, this client believes in it for 30 s and renews it every 20 s: what cannot be
    renewed is no longer consumed here before anybody else may have it.
    """

    lock_interval_ms: int = setting(
        20_000, rocketmq="lockInterval", unit="ms", scale="interval", help="between renewals of queue locks"
    )
    lock_max_live_time_ms: int = setting(
        30_000, rocketmq="lockMaxLiveTime", unit="ms", scale="interval",
        help="a queue whose lock was not renewed for so long is not consumed until it is",
    )  # fmt: skip
    lock_timeout_ms: int = setting(
        1_000, unit="ms", scale="timeout", help="to lock or unlock queues; fixed in RocketMQ"
    )
    lock_retry_ms: int = setting(
        3_000, unit="ms", scale="interval", help="after a lock could not be renewed; fixed in RocketMQ"
    )
    consume_lock_wait_ms: int = setting(
        500, unit="ms", scale="interval", help="how long giving a queue up waits for its handler; fixed in RocketMQ"
    )
    unlock_delay_time_ms: int = setting(
        20_000, rocketmq="unlockDelayTimeMills", unit="ms", scale="interval",
        help="after its last renewal a lost queue is unlocked although its handler runs",
    )  # fmt: skip
    max_time_consume_continuously_ms: int = setting(
        60_000, rocketmq="maxTimeConsumeContinuously", unit="ms", scale="interval",
        help="of one queue, before others have their turn",
    )  # fmt: skip
    suspend_current_queue_time_ms: int = setting(
        1_000, rocketmq="suspendCurrentQueueTimeMillis", unit="ms", scale="interval",
        help="how long a queue rests after a handler failed or rolled back, 10 to 30,000",
    )  # fmt: skip

    def validate_ordered(self) -> None:
        """Raise ConfigError for times by which no lock could be kept."""
        for name in ("lock_interval_ms", "lock_max_live_time_ms", "lock_timeout_ms", "lock_retry_ms"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0")
        if self.lock_interval_ms >= self.lock_max_live_time_ms:
            raise ConfigError(
                f"lock_interval_ms {self.lock_interval_ms} must be below lock_max_live_time_ms "
                f"{self.lock_max_live_time_ms}: locks would end between two renewals"
            )
