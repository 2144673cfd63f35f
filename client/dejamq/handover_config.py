"""Settings of graceful hand-over, which RocketMQ does not have; part of ``ConsumerConfig``."""

from dataclasses import dataclass

from dejamq_proto.codes import ConfigError
from dejamq_proto.settings import setting


@dataclass(frozen=True)
class HandoverConfig:
    """When a queue changes its owner within a group.

    A broker keeps a claim for 60 s (``claim_life_ms`` there), this client believes in it for 30 s and renews it every
    20 s: what cannot be renewed is no longer consumed here before anybody else may have it.
    """

    graceful_handover: bool = setting(
        False, help="a queue goes to another member only when its handlers ended and its offset is committed"
    )
    handover_wait_ms: int = setting(
        60_000, unit="ms", scale="interval",
        help="how long handlers of such a queue are waited for; after that their messages are delivered again",
    )  # fmt: skip
    claim_interval_ms: int = setting(
        20_000, unit="ms", scale="interval", help="between renewals of the claims on owned queues"
    )
    claim_trust_ms: int = setting(
        30_000, unit="ms", scale="interval",
        help="a queue whose claim was not renewed for so long is left alone; must be below the brokers' claim_life_ms",
    )  # fmt: skip

    def validate_handover(self) -> None:
        """Raise ConfigError for times by which no claim could be kept."""
        for name in ("claim_interval_ms", "claim_trust_ms"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0")
        if self.claim_interval_ms >= self.claim_trust_ms:
            raise ConfigError(
                f"claim_interval_ms {self.claim_interval_ms} must be below claim_trust_ms {self.claim_trust_ms}: "
                "claims would end between two renewals"
            )
