"""Settings of the clients, with RocketMQ's names and defaults. Keyword arguments of a client are fields of these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dejamq_proto.calling import MAX_FRAME_BYTES
from dejamq_proto.clock import ClockSettings
from dejamq_proto.codes import ConfigError
from dejamq_proto.settings import Minutes, load, setting

from dejamq.flow import FlowConfig
from dejamq.handover_config import HandoverConfig
from dejamq.ordered_config import OrderedConfig

LARGEST_BODY = MAX_FRAME_BYTES - (1 << 20)
"""Bytes of a body or a batch that surely fit one frame."""


@dataclass(frozen=True)
class ClientConfig(ClockSettings):
    """What every client has. Source: RocketMQ ``ClientConfig``.

    Each field is a keyword argument of the clients and a variable ``DEJAMQ_…`` of the environment. RocketMQ's
    names in camel case are understood too.
    """

    namesrv: str = setting(
        "127.0.0.1:9876", rocketmq="namesrvAddr", help="name servers, host:port, several separated by ; or ,"
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
        True, rocketmq="vipChannelEnabled",
        help="send and pull at the fast port of brokers that have one and can be reached there; RocketMQ's default is "
        "false",
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

    def validate(self) -> None:
        """Raise ConfigError for what no client can work with."""
        parse_addresses(self.namesrv)
        self.validate_clock()
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
        help="a message whose handler takes longer is sent back, looked at as often; consumeTimeout is in minutes",
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
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(f"name server address {address!r} is not host:port, e.g. 127.0.0.1:9876")
        found.append(address)
    if not found:
        raise ConfigError("no name server address: give namesrv='host:port' or set DEJAMQ_NAMESRV")
    return tuple(dict.fromkeys(found))
