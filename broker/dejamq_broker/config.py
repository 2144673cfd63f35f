"""The broker's settings: RocketMQ's names and defaults (BrokerConfig, MessageStoreConfig), units in our names."""

import dataclasses
import re
from dataclasses import dataclass

from dejamq_proto import names
from dejamq_proto.clock import ClockSettings
from dejamq_proto.codes import ConfigError
from dejamq_proto.journal import Level
from dejamq_proto.settings import setting

from dejamq_broker.ha_config import HaSettings
from dejamq_broker.limits_config import LimitSettings
from dejamq_broker.offsets_config import OffsetSettings
from dejamq_broker.slave_config import SlaveSettings
from dejamq_broker.store import StoreConfig
from dejamq_broker.transactions_config import TransactionSettings
from dejamq_broker.watching_config import BrokerWatchingConfig

ADDRESS = re.compile(r"(?:[^:=\s]+|\[[0-9a-fA-F:]+\]):\d{1,5}")
NAME = re.compile(r"[%|a-zA-Z0-9_.-]+")


@dataclass(frozen=True)
class BrokerConfig(
    BrokerWatchingConfig, OffsetSettings, TransactionSettings, HaSettings, SlaveSettings, LimitSettings, ClockSettings
):
    """Everything a broker can be told; each field says its RocketMQ name, unit and meaning."""

    broker_name: str = setting("broker-a", rocketmq="brokerName", help="masters and slaves of one name share topics")
    broker_id: int = setting(0, rocketmq="brokerId", help="0 is the master, slaves count from 1")
    cluster_name: str = setting("DefaultCluster", rocketmq="brokerClusterName", help="label of the whole cluster")
    listen: str = setting("127.0.0.1:10911", help="host:port to serve on; port 0 takes a free one")
    fast_port: int = setting(
        0, help="of sends and pulls without gRPC, on the host of listen: 0 is its port - 2, or any if that is in use; "
        "-1: none",
    )  # fmt: skip
    advertise: str = setting(
        "", help="[NAME=]HOST:PORT;… that clients are told; NAME=: those that dialled their name server by NAME"
    )
    namesrv: str = setting("127.0.0.1:9876", rocketmq="namesrvAddr", help="host:port;… of all, '' for none")
    store_directory: str = setting("store", rocketmq="storePathRootDir", help="everything durable lives here")
    store: StoreConfig = dataclasses.field(default_factory=StoreConfig)

    auto_create_topic_enable: bool = setting(True, rocketmq="autoCreateTopicEnable", help="first send makes the topic")
    default_topic_queue_nums: int = setting(8, rocketmq="defaultTopicQueueNums", help="most queues of such a topic")
    auto_create_subscription_group: bool = setting(
        True, rocketmq="autoCreateSubscriptionGroup", help="first use makes the group"
    )
    broker_permission: int = setting(6, rocketmq="brokerPermission", help="4 read + 2 write, AND-ed into every topic's")

    store_reply_message_enable: bool = setting(
        True, rocketmq="storeReplyMessageEnable", help="keep replies in the log too, not only hand them on"
    )

    sync_flush_timeout_ms: int = setting(
        5000, rocketmq="syncFlushTimeout", unit="ms", scale="timeout", help="longest wait for the disk with SYNC_FLUSH"
    )
    flush_consumer_offset_interval_ms: int = setting(
        5000, rocketmq="flushConsumerOffsetInterval", unit="ms", scale="interval", help="a crash loses newer commits"
    )
    flush_delay_offset_interval_ms: int = setting(
        10_000, rocketmq="flushDelayOffsetInterval", unit="ms", scale="interval",
        help="a crash repeats newer deliveries of delayed and retried messages",
    )  # fmt: skip
    schedule_poll_interval_ms: int = setting(
        100, unit="ms", scale="interval", help="how often due messages are looked for"
    )
    schedule_error_backoff_ms: int = setting(
        10_000, unit="ms", scale="interval", help="pause of a delay level whose delivery failed"
    )

    register_name_server_period_ms: int = setting(
        30_000,
        rocketmq="registerNameServerPeriod",
        unit="ms",
        scale="interval",
        help="registration at each name server",
    )
    register_broker_timeout_ms: int = setting(
        24_000, rocketmq="registerBrokerTimeoutMills", unit="ms", scale="timeout", help="of one registration"
    )
    namesrv_reconnect_ms: int = setting(
        1000, unit="ms", scale="interval", help="pause before a lost name server is tried again"
    )

    channel_expired_timeout_ms: int = setting(
        120_000, rocketmq="channelExpiredTimeout", unit="ms", scale="interval", help="silent members are removed"
    )
    client_housekeeping_interval_ms: int = setting(
        10_000, unit="ms", scale="interval", help="how often silence is looked for"
    )
    rebalance_lock_max_live_time_ms: int = setting(
        60_000, rocketmq="lockMaxLiveTime", unit="ms", scale="interval",
        help="an ordered consumer's lock on a queue that is not renewed for so long may be taken by another member",
    )  # fmt: skip
    claim_life_ms: int = setting(
        60_000, unit="ms", scale="interval",
        help="graceful hand-over: a queue whose owner does not renew its claim for so long may go to another member",
    )  # fmt: skip
    claim_settle_ms: int = setting(
        3_000, unit="ms", scale="interval",
        help="after a restart owners renew their claims first; no queue goes to anybody else for so long",
    )  # fmt: skip
    notify_consumer_ids_changed_enable: bool = setting(
        True, rocketmq="notifyConsumerIdsChangedEnable", help="tell members at once who came or went"
    )
    long_polling_enable: bool = setting(True, rocketmq="longPollingEnable", help="hold pulls that find nothing")
    short_polling_time_ms: int = setting(
        1000, rocketmq="shortPollingTimeMills", unit="ms", scale="interval", help="hold time without long polling"
    )
    enable_property_filter: bool = setting(
        False, rocketmq="enablePropertyFilter", help="serve subscriptions with SQL92 filters"
    )
    filter_support_retry: bool = setting(
        False, rocketmq="filterSupportRetry", help="SQL92 filters of retry topics look at the topic of the first try"
    )
    lite_pull_message_enable: bool = setting(True, rocketmq="litePullMessageEnable", help="serve lite pull consumers")
    shutdown_grace_ms: int = setting(5000, unit="ms", scale="timeout", help="time for what runs to end on stop")

    journal_dir: str | None = setting(None, help="folder of the journal, none without one")
    journal_level: str = setting("audit", help="off, audit, or forensic (survives SIGKILL line by line)")
    journal_max_bytes: int = setting(1 << 30, unit="bytes", help="older lines of this process are dropped")

    def validate(self) -> None:
        """Raise ConfigError for the first value that cannot work.

        Also checks the store's settings. Nothing is touched on disk or in the network; names are not resolved
        here.
        """
        if not NAME.fullmatch(self.broker_name):
            raise ConfigError(
                f"broker name {self.broker_name!r} may hold only letters, digits and the characters % | _ . -"
            )
        if self.broker_id < 0:
            raise ConfigError(f"broker id {self.broker_id} is negative; 0 is the master, slaves count from 1")
        self.check_role(self.broker_id)
        self.validate_clock()
        if not _is_address(self.listen):
            raise ConfigError(f"listen address {self.listen!r} is not HOST:PORT, port 0 to 65535")
        if not -1 <= self.fast_port <= 65_535:
            raise ConfigError(f"fast_port {self.fast_port} is no port, nor 0 for a free one or -1 for none")
        if self.journal_level not in set(Level):
            raise ConfigError(f"journal level {self.journal_level!r} is none of {', '.join(Level)}")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.metadata.get("scale") and value <= 0:
                raise ConfigError(f"setting {field.name}: {value} is not a time above 0")
        self.advertised()
        self.namesrvs()
        self.validate_watching()
        self.store.validate()

    def advertised(self) -> dict[str, str]:
        """Listener name -> address; '' is the default one, absent when the listen address serves.

        Raises ConfigError.

        Names exist because one broker may be reached by two kinds of clients: by containers under its own name,
        by the host through a published port. The name that a client dialled its name server by decides which
        address it is told.
        """
        table = {}
        for part in _split(self.advertise):
            name, _, address = part.rpartition("=")
            if not _is_address(address):
                raise ConfigError(f"advertised address {part!r} is not HOST:PORT or NAME=HOST:PORT, port 0 to 65535")
            table[name] = address
        return table

    @property
    def writable(self) -> bool:
        """Whether ``broker_permission`` lets messages be written; producers learn it from the route."""
        return bool(self.broker_permission & names.PERM_WRITE)

    def namesrvs(self) -> list[str]:
        """Each name server once, in the order given. Raises ConfigError."""
        addresses = list(dict.fromkeys(_split(self.namesrv)))
        for address in addresses:
            if not _is_address(address):
                raise ConfigError(f"name server address {address!r} is not HOST:PORT, port 0 to 65535")
        return addresses


def _split(text: str) -> list[str]:
    return [part.strip() for part in re.split("[;,]", text) if part.strip()]


def _is_address(text: str) -> bool:
    """Ports are checked here: gRPC would take one that is too large modulo 65536."""
    return ADDRESS.fullmatch(text) is not None and int(text.rpartition(":")[2]) <= 65_535
