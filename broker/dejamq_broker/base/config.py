"""The broker's settings: RocketMQ's names and defaults (BrokerConfig, MessageStoreConfig), units in our names."""

import dataclasses
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dejamq_proto import names
from dejamq_proto.access.settings import OF_ROCKETMQ, AccessConfig
from dejamq_proto.clock import ClockSettings
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import bracketed, listen_by_parts, setting
from dejamq_proto.config.tls import TlsClientSettings, TlsServerSettings
from dejamq_proto.journal.writer import Level
from dejamq_proto.names import MASTER_ID
from dejamq_proto.serving.logs import WatchingConfig

from dejamq_broker.store import StoreConfig

# Settings of how a broker is watched; part of BrokerConfig.


@dataclass(frozen=True, kw_only=True)
class BrokerWatchingConfig(WatchingConfig):
    """Settings that every server has, and the time that a broker waits for the word of a client."""

    client_answer_timeout_ms: int = setting(
        10_000, unit="ms", scale="timeout",
        help="for a client's word on its running info, or on a message given to it directly; fixed in RocketMQ",
    )  # fmt: skip


# Settings of transactions, with RocketMQ's names and defaults; part of BrokerConfig.


@dataclass(frozen=True)
class TransactionSettings:
    """Source: RocketMQ ``BrokerConfig``. The last two close what RocketMQ leaves open; see docs/transactions.md."""

    transaction_timeout_ms: int = setting(
        6_000, rocketmq="transactionTimeOut", unit="ms", scale="interval",
        help="a transaction that is not ended so long after its message was made is asked about",
    )  # fmt: skip
    transaction_check_interval_ms: int = setting(
        30_000, rocketmq="transactionCheckInterval", unit="ms", scale="interval",
        help="between rounds that ask producers how their transactions ended",
    )  # fmt: skip
    transaction_check_max: int = setting(
        15, rocketmq="transactionCheckMax", unit="times",
        help="so often a transaction is asked about; then its message goes to TRANS_CHECK_MAX_TIME_TOPIC",
    )  # fmt: skip
    transaction_round_max_ms: int = setting(
        60_000, unit="ms", scale="interval", help="a round ends after so long and is continued by the next; fixed in "
        "RocketMQ",
    )  # fmt: skip
    transaction_op_msg_max_size: int = setting(
        4096, rocketmq="transactionOpMsgMaxSize", unit="bytes", help="of marks that are gathered in one op message"
    )
    transaction_op_batch_interval_ms: int = setting(
        3_000, rocketmq="transactionOpBatchInterval", unit="ms", scale="interval",
        help="so long marks of ended transactions are gathered; a crash loses them, and commits twice (cause P8)",
    )  # fmt: skip
    reject_transaction_message: bool = setting(
        False, rocketmq="rejectTransactionMessage", help="refuse messages of transactions with NO_PERMISSION"
    )
    transaction_finish_once: bool = setting(
        False,
        help="a transaction ends once: a second end is refused, so that nothing is committed twice by a late "
        "commit or by two checks (cause P7). Costs some memory for each transaction that has not ended; a start reads "
        "their messages",
    )  # fmt: skip
    transaction_op_with_commit: bool = setting(
        False,
        help="the mark of an ended transaction is stored right behind its message, and a start after a crash adds the "
        "one that may be missing: nothing is committed twice because a mark was lost (cause P8). Costs one record more "
        "for each transaction",
    )  # fmt: skip


# Settings of a slave's copies beside the log, and of reading from a slave; part of BrokerConfig.


@dataclass(frozen=True)
class SlaveSettings:
    """Source: RocketMQ ``BrokerConfig``, ``MessageStoreConfig``, ``SlaveSynchronize``."""

    slave_sync_interval_ms: int = setting(
        10_000, unit="ms", scale="interval",
        help="a slave copies topics, groups, offsets and delay progress so often; RocketMQ 4: 10 s, 5.3: 60 s",
    )  # fmt: skip
    slave_read_enable: bool = setting(
        True, rocketmq="slaveReadEnable",
        help="a slave answers pulls, and a master sends slow consumers to it; RocketMQ 5.3: false",
    )  # fmt: skip
    offset_check_in_slave: bool = setting(
        False, rocketmq="offsetCheckInSlave",
        help="a slave corrects offsets outside its queues; otherwise it leaves that to the master, as it may lag",
    )  # fmt: skip


# Settings of groups' progress.


@dataclass(frozen=True)
class OffsetSettings:
    """Rules for offsets that clients commit and operators reset."""

    use_server_side_reset_offset: bool = setting(
        True, rocketmq="useServerSideResetOffset",
        help="a reset also reaches members that are online, by their next pull; false: only those that open a queue",
    )  # fmt: skip
    refuse_lower_offsets: bool = setting(
        False, help="keep an offset that a client wants to lower, as long as the queue has it (RocketMQ takes it)"
    )


# Settings of pop consumption, with RocketMQ's names; part of BrokerConfig.


@dataclass(frozen=True)
class PopSettings:
    """Source: RocketMQ ``BrokerConfig``. Its check points lie in a timer; here messages come when they are due."""

    revive_interval_ms: int = setting(
        100, rocketmq="reviveInterval", unit="ms", scale="interval",
        help="how often popped messages are looked for whose invisible time is over; RocketMQ: 1 s, and 2 s later",
    )  # fmt: skip
    pop_inflight_message_threshold: int = setting(
        10_000, rocketmq="popInflightMessageThreshold",
        help="popped messages of a queue and a group that wait for their acknowledgement; no more are given; RocketMQ: "
        "only with enablePopMessageThreshold",
    )  # fmt: skip
    pop_polling_size: int = setting(
        1024, rocketmq="popPollingSize", help="pops of a group and a topic that may wait for messages at once"
    )
    max_pop_polling_size: int = setting(
        100_000, rocketmq="maxPopPollingSize", help="pops of all groups that may wait at once; more are answered 209"
    )
    enable_retry_topic_v2: bool = setting(
        False, rocketmq="enableRetryTopicV2", help="new retry topics of pops are %RETRY%group+topic, not _ between"
    )
    default_invisible_time_ms: int = setting(
        60_000, rocketmq="defaultInvisibleTimeMills", unit="ms", scale="interval",
        help="push consumers of RocketMQ 5 get messages for so long, and for longer while they work on them",
    )  # fmt: skip
    renew_ahead_time_ms: int = setting(
        10_000, rocketmq="renewAheadTimeMillis", unit="ms", scale="interval",
        help="messages that push consumers of RocketMQ 5 work on are theirs for longer so long before their time ends",
    )  # fmt: skip
    renew_max_time_ms: int = setting(
        10_800_000, rocketmq="renewMaxTimeMillis", unit="ms", scale="interval",
        help="a message is not kept for its push consumer of RocketMQ 5 beyond this time since it was given",
    )  # fmt: skip
    max_grpc_polling_time_ms: int = setting(
        20_000, rocketmq="grpcClientConsumerMaxLongPollingTimeoutMillis", unit="ms", scale="interval",
        help="a consumer of RocketMQ 5 that finds no message waits for one at most so long",
    )  # fmt: skip
    default_message_request_mode: str = setting(
        "PULL", rocketmq="defaultMessageRequestMode",
        help="PULL or POP: how push consumers with clientRebalance=false get messages, unless setConsumeMode says it",
    )  # fmt: skip
    default_pop_share_queue_num: int = setting(
        -1, rocketmq="defaultPopShareQueueNum",
        help="where that is POP: a member's queues are popped by so many others too; 0 and less: by all",
    )  # fmt: skip


# Settings of delivery at any time, with RocketMQ's names and defaults; part of BrokerConfig.


@dataclass(frozen=True)
class TimerSettings:
    """Source: RocketMQ ``MessageStoreConfig``, ``BrokerConfig``."""

    timer_precision_ms: int = setting(
        1_000, rocketmq="timerPrecisionMs", unit="ms", scale="interval",
        help="messages that are due within so long wait in one slot, and are delivered when it is over",
    )  # fmt: skip
    timer_max_delay_sec: int = setting(
        259_200, rocketmq="timerMaxDelaySec", unit="s",
        help="a message that is due later than so long from now is refused with MESSAGE_ILLEGAL",
    )  # fmt: skip
    timer_roll_window_slot: int = setting(
        172_800, rocketmq="timerRollWindowSlot", unit="slots",
        help="a message that waits for longer is stored again on its way, so that it does not expire with the log",
    )  # fmt: skip
    timer_flush_interval_ms: int = setting(
        1_000, rocketmq="timerFlushIntervalMs", unit="ms", scale="interval",
        help="a crash repeats newer deliveries of timed messages (cause B4)",
    )  # fmt: skip
    recall_message_enable: bool = setting(
        True, rocketmq="recallMessageEnable", help="timed messages may be recalled; RocketMQ: false"
    )


# Settings of messages that are sent again; part of BrokerConfig.


@dataclass(frozen=True)
class DedupSettings:
    """RocketMQ has nothing of this. docs/messages.md says what a window can do."""

    dedup_window_ms: int = setting(
        600_000, unit="ms", scale="interval",
        help="a message with an id (DEDUP_ID, DEDUP_BY) that was stored so lately is not stored again",
    )  # fmt: skip
    dedup_window_ids: int = setting(
        1_000_000, help="ids that are kept of a topic, 40 to 80 bytes each; newer ones push out older ones; 0: no "
        "windows, and messages that ask for them are refused",
    )  # fmt: skip


# Settings of overload: how long work may wait, and how much of whose is kept in memory.


@dataclass(frozen=True)
class LimitSettings:
    """Part of ``BrokerConfig``. None of these times is scaled: they say what a client still waits for."""

    broker_fast_failure_enable: bool = setting(
        True, rocketmq="brokerFastFailureEnable",
        help="runs that waited too long here are answered SYSTEM_BUSY and surely not stored",
    )  # fmt: skip
    wait_time_in_send_queue_ms: int = setting(
        200, rocketmq="waitTimeMillsInSendQueue", unit="ms",
        help="longest wait of a run before it is stored: for the event loop, or for runs that wait for the disk",
    )  # fmt: skip
    os_page_cache_busy_timeout_ms: int = setting(
        1000, rocketmq="osPageCacheBusyTimeOutMills", unit="ms",
        help="an append that takes so long means that the disk is busy: runs behind it are refused with PCBUSY",
    )  # fmt: skip
    send_queue_capacity: int = setting(
        10_000, rocketmq="sendThreadPoolQueueCapacity",
        help="runs that may wait at once, for room or for disk and slaves; more are refused with SYSTEM_BUSY",
    )  # fmt: skip
    send_queue_max_bytes: int = setting(
        256 << 20, unit="bytes", help="of runs that wait for those before them; more are refused with SYSTEM_BUSY"
    )
    max_held_pulls: int = setting(
        100_000, help="pulls that may wait for messages at once; more are answered POLLING_FULL (209)"
    )
    channel_backlog_bytes: int = setting(
        16 << 20,
        unit="bytes",
        help="replies and commands that may wait for one client to read them; more are refused to their sender",
    )


# Settings of masters and slaves, with RocketMQ's names and defaults; part of BrokerConfig.

ASYNC_MASTER, SYNC_MASTER, SLAVE = "ASYNC_MASTER", "SYNC_MASTER", "SLAVE"
LARGEST_BATCH = 32 << 20
"""A frame takes no more than twice as much."""


@dataclass(frozen=True)
class HaSettings:
    """Source: RocketMQ ``MessageStoreConfig``; each help names its differences."""

    broker_role: str = setting(
        ASYNC_MASTER, rocketmq="brokerRole",
        help="ASYNC_MASTER, or SYNC_MASTER: sends wait for slaves; a broker with an id above 0 is a SLAVE",
    )  # fmt: skip
    in_sync_replicas: int = setting(
        2, rocketmq="inSyncReplicas",
        help="SYNC_MASTER: so many replicas must have a message, the master counted; RocketMQ 5: 1, and no wait",
    )  # fmt: skip
    slave_timeout_ms: int = setting(
        3_000, rocketmq="slaveTimeout", unit="ms", scale="timeout", help="SYNC_MASTER: longest wait for slaves"
    )
    ha_max_gap_not_in_sync: int = setting(
        256 << 20, rocketmq="haMaxGapNotInSync", unit="bytes",
        help="SYNC_MASTER: a slave that is further behind is not waited for; RocketMQ 4: haSlaveFallbehindMax",
    )  # fmt: skip
    ha_master_address: str = setting(
        "", rocketmq="haMasterAddress", help="host:port of a slave's master; '' asks the name servers"
    )
    ha_transfer_batch_size: int = setting(
        1 << 20, rocketmq="haTransferBatchSize", unit="bytes", help="of the log, sent at once; RocketMQ: 32 KiB"
    )
    ha_send_heartbeat_interval_ms: int = setting(
        5_000, rocketmq="haSendHeartbeatInterval", unit="ms", scale="interval",
        help="a master says after so much silence that it is there, and its slave answers",
    )  # fmt: skip
    ha_housekeeping_interval_ms: int = setting(
        20_000, rocketmq="haHousekeepingInterval", unit="ms", scale="interval",
        help="after so much silence of the other side a connection is given up",
    )  # fmt: skip
    ha_reconnect_interval_ms: int = setting(
        5_000, unit="ms", scale="interval",
        help="longest pause before a slave tries its master again; the first is a sixteenth; RocketMQ: always 5 s",
    )  # fmt: skip
    ha_full_copy: bool = setting(
        False, help="a slave without a log copies all of its master's; without it from its last file on, as RocketMQ"
    )

    failover_enable: bool = setting(
        False,
        help="a slave takes its lost master's place by itself, with the consent of the name servers; set it at every "
        "replica. broker_role then says what the broker is as master",
    )  # fmt: skip
    failover_lease_ms: int = setting(
        10_000, unit="ms", scale="interval",
        help="with failover_enable: a slave takes over when name servers have not heard of its master for so long",
    )  # fmt: skip

    def check_failover(self, namesrvs: int) -> None:
        """Raise ConfigError where fail-over cannot work."""
        if not self.failover_enable:
            return
        if not namesrvs:
            raise ConfigError("failover_enable needs namesrv: name servers decide who is master")
        if self.ha_master_address:
            raise ConfigError("failover_enable: the master's address changes, so leave ha_master_address empty")
        if self.broker_role == SLAVE:
            text = f"set broker_role to what this broker is as master, {ASYNC_MASTER} or {SYNC_MASTER}"
            raise ConfigError(f"failover_enable: {text}")

    def check_role(self, broker_id: int) -> None:
        """Raise ConfigError when role and id contradict one another, or a number cannot work."""
        if self.broker_role not in (ASYNC_MASTER, SYNC_MASTER, SLAVE):
            raise ConfigError(f"broker role {self.broker_role!r} is none of {ASYNC_MASTER}, {SYNC_MASTER}, {SLAVE}")
        if (self.broker_role == SLAVE) and broker_id == MASTER_ID:
            raise ConfigError("a SLAVE needs a broker id above 0")
        if (self.broker_role == SYNC_MASTER) and broker_id != MASTER_ID and not self.failover_enable:
            raise ConfigError(f"broker id {broker_id} is a slave's, and a SYNC_MASTER has id 0")
        for name in ("in_sync_replicas", "ha_max_gap_not_in_sync", "ha_transfer_batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"setting {name}: {getattr(self, name)} is not above 0")
        if self.ha_transfer_batch_size > LARGEST_BATCH:
            raise ConfigError(f"setting ha_transfer_batch_size: {self.ha_transfer_batch_size} is over {LARGEST_BATCH}")


ADDRESS = re.compile(r"(?:[^:=\s]+|\[[0-9a-fA-F:]+\]):\d{1,5}")
NAME = re.compile(r"[%|a-zA-Z0-9_.-]+")


@dataclass(frozen=True)
class BrokerConfig(
    BrokerWatchingConfig,
    AccessConfig,
    OffsetSettings,
    TransactionSettings,
    HaSettings,
    SlaveSettings,
    PopSettings,
    TimerSettings,
    DedupSettings,
    LimitSettings,
    ClockSettings,
    TlsServerSettings,
    TlsClientSettings,
):
    """All settings of a broker; each field gives its RocketMQ name, unit and meaning."""

    ROCKETMQ_CLASSES: ClassVar[tuple[str, ...]] = (
        "BrokerConfig", "MessageStoreConfig", "NettyServerConfig", "NettyClientConfig", "AuthConfig",
    )  # fmt: skip
    ROCKETMQ_PARTS: ClassVar[Mapping[str, str]] = {
        "listenPort": "listen", "bindAddress": "listen", "brokerIP1": "advertise",
        **OF_ROCKETMQ,
    }  # fmt: skip

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

    @classmethod
    def put_together(cls, parts: Mapping[str, str], values: dict[str, Any]) -> None:
        """RocketMQ's port, host and address into ours.

        RocketMQ listens on every address. Here that is so when clients get an address that is not the loopback's, and
        no setting says where to listen.
        """
        cls.put_access_together(parts, values)
        if address := parts.get("brokerIP1"):
            values["advertise"] = f"{bracketed(address)}:0"
            if "listen" not in values and not is_loopback(address):
                values["listen"] = f"0.0.0.0:{cls.listen.rpartition(':')[2]}"
        listen_by_parts(parts, values, cls.listen)

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
        self.validate_tls_server()
        self.validate_tls_client()
        if not _is_address(self.listen):
            raise ConfigError(f"listen address {self.listen!r} is not HOST:PORT, port 0 to 65535")
        if not -1 <= self.fast_port <= 65_535:
            raise ConfigError(f"fast_port {self.fast_port} is no port, nor 0 for a free one or -1 for none")
        if self.journal_level not in set(Level):
            raise ConfigError(f"journal level {self.journal_level!r} is none of {', '.join(Level)}")
        self.validate_consuming_and_sending()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.metadata.get("scale") and value <= 0:
                raise ConfigError(f"setting {field.name}: {value} is not a time above 0")
        self.advertised()
        self.check_failover(len(self.namesrvs()))
        self.validate_watching()
        self.store.validate()

    def validate_consuming_and_sending(self) -> None:
        """Raises ConfigError."""
        mode = self.default_message_request_mode
        if mode not in ("PULL", "POP"):
            raise ConfigError(f"setting default_message_request_mode: {mode!r} is neither PULL nor POP")
        if self.timer_max_delay_sec < 1:
            raise ConfigError(f"setting timer_max_delay_sec: {self.timer_max_delay_sec} is not above 0")
        if not 0 <= self.dedup_window_ids <= 1 << 30:
            raise ConfigError(f"setting dedup_window_ids: {self.dedup_window_ids} is not 0 to {1 << 30}")

    def advertised(self) -> dict[str, str]:
        """Listener name -> address; '' is the default one, absent when the listen address serves.

        Raises ConfigError.

        Names exist because one broker may be reached by two kinds of clients: by containers under its own name, by the
        host through a published port. The name by which a client dialled its name server decides which address it gets.
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


def is_loopback(address: str) -> bool:
    """Whether only this machine can dial the address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _split(text: str) -> list[str]:
    return [part.strip() for part in re.split("[;,]", text) if part.strip()]


def _is_address(text: str) -> bool:
    """Ports are checked here: gRPC would take one that is too large modulo 65536."""
    return ADDRESS.fullmatch(text) is not None and int(text.rpartition(":")[2]) <= 65_535
