"""The choices of a program for its push consumer, besides the settings."""

import msgspec
from dejamq_proto.codes import ConfigError

from dejamq.rebalance.consume_from import ConsumeFrom, MessageModel
from dejamq.values.allocation import Strategy
from dejamq.values.config import ConsumerConfig


def check_bool(**given: object) -> None:
    """Raise ConfigError for the first that is neither True nor False."""
    for name, value in given.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is True or False, not {value!r}")


class Options(msgspec.Struct, frozen=True):
    """``group`` is as brokers know it. Raises ConfigError for what could not work later."""

    group: str
    config: ConsumerConfig
    model: MessageModel
    consume_from: ConsumeFrom
    timestamp_ms: int
    allocation: tuple[str, Strategy]
    max_concurrency: int
    max_reconsume_times: int | None
    ordered: bool = False
    auto_commit: bool = True

    def __post_init__(self) -> None:
        check_bool(ordered=self.ordered, auto_commit=self.auto_commit)
        if not (self.auto_commit or self.ordered):
            raise ConfigError("auto_commit=False needs ordered=True: concurrent handlers acknowledge each by itself")
        for name, value in {
            "max_concurrency": self.max_concurrency, "consume_timestamp_ms": self.timestamp_ms,
            "max_reconsume_times": self.max_reconsume_times or 0,
        }.items():  # fmt: skip
            if not isinstance(value, int):
                raise ConfigError(f"{name} is a whole number, not {value!r}")
        if not 1 <= self.max_concurrency <= 1000:
            raise ConfigError(f"max_concurrency is 1 to 1000, not {self.max_concurrency}")
        times = self.max_reconsume_times
        if times is not None and times < 0:
            raise ConfigError(f"max_reconsume_times is 0 or more, or None for the group's, not {times}")

    @property
    def broadcasting(self) -> bool:
        """Each member gets everything."""
        return self.model is MessageModel.BROADCASTING
