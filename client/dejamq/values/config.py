"""Settings of the clients, with RocketMQ's names and defaults. Keyword arguments of a client are fields of these."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dejamq_proto.account import Account, account_of
from dejamq_proto.clock import ClockSettings
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import Minutes, load, setting
from dejamq_proto.config.tls import TlsClientSettings
from dejamq_proto.texts import number_of
from dejamq_proto.wire.calling import MAX_FRAME_BYTES

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


# Settings of consumption in order, with RocketMQ's names and defaults; part of ConsumerConfig.


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


# Settings of graceful hand-over, which RocketMQ does not have; part of ConsumerConfig.


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


LARGEST_BODY = MAX_FRAME_BYTES - (1 << 20)
"""Bytes of a body or a batch that surely fit one frame."""


@dataclass(frozen=True)
class ClientConfig(ClockSettings, TlsClientSettings):
    """The settings of every client. Source: RocketMQ ``ClientConfig``.

    Each field is a keyword argument of the clients and a variable ``DEJAMQ_…`` of the environment. RocketMQ's
    names in camel case are understood too.
    """

    namesrv: str = setting(
        "127.0.0.1:9876", rocketmq="namesrvAddr", help="name servers, host:port, several separated by ; or ,"
    )
    access_key: str | None = setting(
        None, rocketmq="accessKey", help="name of the user of a cluster with access control; both keys or none"
    )
    secret_key: str | None = setting(
        None, rocketmq="secretKey", help="the user's secret; better in DEJAMQ_SECRET_KEY than in a program"
    )
    namespace: str = setting("", rocketmq="namespace", help="in front of topics and groups, unseen by the program")
    client_id: str | None = setting(
        None,
        help="unique for each start by default; stable for BROADCASTING, the same for all of a host: several members "
        "of one group there need one each",
    )
    client_ip: str | None = setting(None, rocketmq="clientIP", help="IPv4 address in the client id; default: detected")
    poll_name_server_interval_ms: int = setting(
        30_000, rocketmq="pollNameServerInterval", unit="ms", scale="interval", help="between two reads of the routes"
    )
    heartbeat_broker_interval_ms: int = setting(
        30_000, rocketmq="heartbeatBrokerInterval", unit="ms", scale="interval", help="between heartbeats to a broker"
    )
    reconnect_interval_ms: int = setting(
        1_000, unit="ms", scale="interval", help="before a broken heartbeat channel is opened again"
    )
    vip_channel_enabled: bool = setting(
        False, rocketmq="vipChannelEnabled",
        help="send and pull without gRPC, at the fast port of brokers that can be reached there",
    )  # fmt: skip
    persist_consumer_offset_interval_ms: int = setting(
        5_000, rocketmq="persistConsumerOffsetInterval", unit="ms", scale="interval", help="between commits of offsets"
    )
    mq_client_api_timeout_ms: int = setting(
        3_000, rocketmq="mqClientApiTimeout", unit="ms", scale="timeout", help="for one call, unless said otherwise"
    )
    consumer_progress_timeout_ms: int = setting(
        5_000, unit="ms", scale="timeout", help="for a send-back, and to commit or read an offset; fixed in RocketMQ"
    )
    await_termination_ms: int = setting(
        20_000, rocketmq="awaitTerminationMillisWhenShutdown", unit="ms", help="how long close waits for work to end"
    )
    journal_dir: str | None = setting(None, help="where this process writes its journal; none without it")
    journal_level: str = setting("audit", help="off, audit (buffered 100 ms) or forensic (survives SIGKILL)")
    journal_max_bytes: int = setting(1 << 30, unit="bytes", help="of one process's journal; the oldest file goes")
    journal_business_key: str | None = setting(
        None, help="message property whose value identifies the business event; KEYS for the first key"
    )

    @property
    def account(self) -> Account | None:
        """By which a client shows who it is; None without keys. Raises ConfigError for one key alone."""
        return account_of(self.access_key, self.secret_key)

    def validate(self) -> None:
        """Raise ConfigError for what no client can work with."""
        parse_addresses(self.namesrv)
        account_of(self.access_key, self.secret_key)
        self.validate_clock()
        self.validate_tls_client()
        if self.journal_level not in ("off", "audit", "forensic"):
            raise ConfigError(f"journal_level is off, audit or forensic, not {self.journal_level!r}")
        for name in (
            "poll_name_server_interval_ms", "heartbeat_broker_interval_ms", "mq_client_api_timeout_ms",
            "consumer_progress_timeout_ms",
        ):  # fmt: skip
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0")


@dataclass(frozen=True)
class ConsumerConfig(ClientConfig, OrderedConfig, FlowConfig, HandoverConfig):
    """Source: RocketMQ ``DefaultMQPushConsumer`` and its internal constants."""

    pull_batch_size: int = setting(
        1024, rocketmq="pullBatchSize", help="messages asked for by one pull; RocketMQ's default is 32"
    )
    post_subscription_when_pull: bool = setting(
        True, rocketmq="postSubscriptionWhenPull",
        help="pulls bring their own filter; else the one of the group's newest heartbeat holds (RocketMQ's default)",
    )  # fmt: skip
    pull_batch_size_in_bytes: int = setting(
        1 << 20, rocketmq="pullBatchSizeInBytes", unit="bytes", help="of one pull; RocketMQ's default is 256 KiB"
    )
    broker_suspend_max_time_ms: int = setting(
        15_000, unit="ms", scale="interval", help="how long a broker may hold a pull that finds nothing"
    )
    consumer_timeout_when_suspend_ms: int = setting(
        30_000, unit="ms", scale="interval", help="how long a pull waits for its answer"
    )
    pull_time_delay_when_exception_ms: int = setting(
        1_000, rocketmq="pullTimeDelayMillsWhenException", unit="ms", scale="interval", help="after a failed pull"
    )
    pull_max_idle_time_ms: int = setting(
        120_000, unit="ms", scale="interval", help="a queue not pulled for so long is dropped and opened anew"
    )
    rebalance_wait_interval_ms: int = setting(
        20_000, unit="ms", scale="interval", help="between rounds of allocation while all is as it should be"
    )
    rebalance_min_interval_ms: int = setting(
        1_000, unit="ms", scale="interval", help="between rounds otherwise; two are never closer"
    )
    consume_retry_delay_ms: int = setting(
        5_000, unit="ms", scale="interval", help="before a message whose send-back failed is tried again locally"
    )
    shutdown_mode: str = setting(
        "drain", help="drain: handlers end before offsets are committed; rocketmq: its order, without waiting"
    )
    acknowledge_commits: bool = setting(
        False, help="wait for the broker's word on each commit and log what failed; RocketMQ sends them oneway"
    )
    local_offset_store_dir: str | None = setting(
        None, rocketmq="localOffsetStoreDir", help="where BROADCASTING keeps offsets; default ~/.rocketmq_offsets"
    )
    consume_timeout_ms: int = setting(
        900_000, rocketmq=Minutes("consumeTimeout"), unit="ms", scale="interval",
        help="a message whose handler takes longer is sent back; the check is as often; consumeTimeout is in minutes",
    )  # fmt: skip

    def validate(self) -> None:
        """As the base, and RocketMQ's ranges."""
        super().validate()
        self.validate_ordered()
        self.validate_flow()
        if self.shutdown_mode not in ("drain", "rocketmq"):
            raise ConfigError(f"shutdown_mode is drain or rocketmq, not {self.shutdown_mode!r}")
        if self.shutdown_mode == "rocketmq" and self.graceful_handover:
            raise ConfigError("graceful_handover hands queues over drained; shutdown_mode='rocketmq' drains nothing")
        self.validate_handover()
        if not 1 <= self.pull_batch_size <= 1024:
            raise ConfigError(f"pull_batch_size must be 1 to 1024, not {self.pull_batch_size}")
        if self.pull_batch_size_in_bytes < 1:
            raise ConfigError(f"pull_batch_size_in_bytes must be more than 0, not {self.pull_batch_size_in_bytes}")
        for name in ("rebalance_wait_interval_ms", "rebalance_min_interval_ms", "consumer_timeout_when_suspend_ms"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0")


Config = TypeVar("Config", bound=ClientConfig)


def client_config(cls: type[Config], namesrv: str | Sequence[str] | None, settings: Mapping[str, Any]) -> Config:
    """A client's settings: environment, then what the program gives. Raises ConfigError."""
    given = dict(settings)
    if namesrv is not None:
        given["namesrv"] = namesrv
    return load(cls, overrides=given)


def parse_addresses(text: str) -> tuple[str, ...]:
    """``host:port`` separated by ; or , (a scheme such as http:// is dropped). Raises ConfigError.

    Each address once, in the order given. Names are not resolved here: gRPC does that, again at each reconnect.
    """
    found = []
    for piece in text.replace(",", ";").split(";"):
        address = piece.strip().rpartition("//")[2]
        if not address:
            continue
        host, _, port = address.rpartition(":")
        if not host or not number_of(port, 65535):
            raise ConfigError(f"name server address {address!r} is not host:port, e.g. 127.0.0.1:9876")
        found.append(address)
    if not found:
        raise ConfigError("no name server address: give namesrv='host:port' or set DEJAMQ_NAMESRV")
    return tuple(dict.fromkeys(found))


# Settings of lite pull consumers.


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


# Settings of simple consumers.


@dataclass(frozen=True)
class SimpleConfig(ClientConfig):
    """Source: RocketMQ 5 ``SimpleConsumerBuilder``, and the proxy's ``DefaultReceiptHandleManager``."""

    receive_timeout_ms: int = setting(
        20_000, rocketmq="awaitDuration", unit="ms", help="how long a receive waits for a message unless told"
    )
    broker_suspend_max_time_ms: int = setting(
        20_000, unit="ms", scale="interval", help="how long a broker may hold a request that finds nothing"
    )
    renew_ahead_ms: int = setting(
        10_000, unit="ms", scale="interval",
        help="`async for`: a message in hand is renewed so long before its time is over, at half of it at the latest",
    )  # fmt: skip
    renew_for_ms: int = setting(10_800_000, unit="ms", scale="interval", help="`async for`: for so long altogether")

    def validate(self) -> None:
        """As the base."""
        super().validate()
        for name in ("broker_suspend_max_time_ms", "renew_ahead_ms", "renew_for_ms"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0")
        if self.receive_timeout_ms < 0:
            raise ConfigError(f"receive_timeout_ms must be 0 or more, not {self.receive_timeout_ms}")


FOR_HANDLERS = {"consume_retry_delay_ms", "consume_timeout_ms"} | {
    field.name for kind in (OrderedConfig, HandoverConfig) for field in dataclasses.fields(kind)
}


def lite_config(namesrv: str | Sequence[str] | None, settings: Mapping[str, Any]) -> LitePullConfig:
    """From the environment and what the program gives. Raises ConfigError, also for a setting of push consumers."""
    for name in sorted(settings.keys() & FOR_HANDLERS):
        raise ConfigError(f"{name} is for push consumers and their handlers; a LitePullConsumer has none")
    return client_config(LitePullConfig, namesrv, settings)
