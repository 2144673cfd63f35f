"""Settings of how a broker is watched; part of ``BrokerConfig``."""

from dataclasses import dataclass

from dejamq_proto.settings import setting
from dejamq_proto.watching import WatchingConfig


@dataclass(frozen=True, kw_only=True)
class BrokerWatchingConfig(WatchingConfig):
    """What every server has, and how long a broker waits for the word of a client."""

    client_answer_timeout_ms: int = setting(
        10_000, unit="ms", scale="timeout",
        help="for a client's word on its running info, or on a message given to it directly; fixed in RocketMQ",
    )  # fmt: skip
