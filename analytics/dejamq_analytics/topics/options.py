"""The options of a read. Their names are those of Spark's source for Kafka where it has the same."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from dejamq_proto.codes import ConfigError
from dejamq_proto.remoting_client import Account

from dejamq_analytics.topics.places import EARLIEST, LATEST, TopicQueue, of_json

SECRET = "DEJAMQ_SECRET_KEY"
WORDS = {"earliest": EARLIEST, "latest": LATEST}
NAMES = (
    "namesrv", "topic", "startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp", "failOnDataLoss",
    "maxRecordsPerPartition", "maxOffsetsPerTrigger", "pullBatchSize", "timeoutMs", "commitGroup", "accessKey",
    "secretKey",
)  # fmt: skip
OF_BATCHES, OF_STREAMS = ("endingOffsets", "endingTimestamp"), ("maxOffsetsPerTrigger", "commitGroup")
MESSAGES_A_PULL = 32
"""RocketMQ gives no more at a time unless its ``maxTransferCountOnMessageInMemory`` is raised."""


@dataclass(frozen=True)
class Bound:
    """An end of a read: the messages stored at a time (Unix ms) and later, these offsets, or one end of each queue."""

    timestamp_ms: int | None = None
    offsets: Mapping[TopicQueue, int] | None = None
    word: int = EARLIEST


@dataclass(frozen=True)
class ReadOptions:
    """What a program asks for. ``most_records`` is of a partition, ``most_offsets`` of a micro-batch."""

    namesrvs: tuple[str, ...]
    topics: tuple[str, ...]
    begin: Bound | None
    end: Bound | None
    fail_on_data_loss: bool
    most_records: int | None
    most_offsets: int | None
    messages_a_pull: int
    patience_s: float
    commit_group: str | None
    account: Account | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "ReadOptions":
        """Raises ConfigError for an option that is not known, missing, or has no such value."""
        options = {name.lower(): value for name, value in given.items()}
        known = {name.lower(): name for name in NAMES}
        if unknown := sorted(options.keys() - known.keys()):
            raise ConfigError(f"no option is called {', '.join(unknown)}: there are {', '.join(NAMES)}")
        chosen = {known[name]: value for name, value in options.items()}
        return cls(
            namesrvs=_listed(chosen, "namesrv", ";"), topics=_listed(chosen, "topic", ","),
            begin=_bound(chosen, "starting"), end=_bound(chosen, "ending"),
            fail_on_data_loss=_truth(chosen, "failOnDataLoss", default=True),
            most_records=_number(chosen, "maxRecordsPerPartition"),
            most_offsets=_number(chosen, "maxOffsetsPerTrigger"),
            messages_a_pull=_number(chosen, "pullBatchSize") or MESSAGES_A_PULL,
            patience_s=(_number(chosen, "timeoutMs") or 30_000) / 1000,
            commit_group=chosen.get("commitGroup"), account=_account(chosen),
        )  # fmt: skip

    def check_batch(self) -> None:
        """Raises ConfigError for an option that a batch does not have."""
        if self.most_offsets or self.commit_group:
            raise ConfigError(f"{' and '.join(OF_STREAMS)} are of streams: leave them out of a batch")

    def check_stream(self) -> None:
        """Raises ConfigError for an option that a stream does not have."""
        if self.end is not None:
            raise ConfigError(f"{' and '.join(OF_BATCHES)} are of batches: a stream goes on until it is stopped")


def _listed(chosen: Mapping[str, str], name: str, between: str) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(one.strip() for one in chosen.get(name, "").split(between) if one.strip()))
    if not values:
        raise ConfigError(f"the option {name} is missing: one, or several with {between!r} between")
    return values


def _bound(chosen: Mapping[str, str], which: str) -> Bound | None:
    offsets, time = chosen.get(f"{which}Offsets"), _number(chosen, f"{which}Timestamp", least=0)
    if offsets is not None and time is not None:
        raise ConfigError(f"{which}Offsets and {which}Timestamp say the same thing: leave one out")
    if time is not None:
        return Bound(timestamp_ms=time)
    if offsets is None:
        return None
    if (word := WORDS.get(offsets.lower())) is not None:
        return Bound(word=word)
    try:
        return Bound(offsets=of_json(msgspec.json.decode(offsets)))
    except msgspec.DecodeError as error:
        raise ConfigError(f"{which}Offsets is earliest, latest or JSON, not {offsets!r}: {error}") from None


def _truth(chosen: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = chosen.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{name} is true or false, not {value!r}")
    return value == "true"


def _number(chosen: Mapping[str, str], name: str, least: int = 1) -> int | None:
    if name not in chosen:
        return None
    try:
        value = int(chosen[name])
    except ValueError:
        value = least - 1
    if value < least:
        raise ConfigError(f"{name} is a number from {least}, not {chosen[name]!r}")
    return value


def _account(chosen: Mapping[str, str]) -> Account | None:
    access = chosen.get("accessKey")
    if access is None:
        return None
    secret = chosen.get("secretKey") or os.environ.get(SECRET)
    if not secret:
        raise ConfigError(f"accessKey needs a secret: the option secretKey, or {SECRET} in each process of Spark")
    return Account(access, secret)
