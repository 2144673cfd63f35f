"""Settings of masters and slaves, with RocketMQ's names and defaults; part of ``BrokerConfig``."""

from dataclasses import dataclass

from dejamq_proto.codes import ConfigError
from dejamq_proto.names import MASTER_ID
from dejamq_proto.settings import setting

ASYNC_MASTER, SYNC_MASTER, SLAVE = "ASYNC_MASTER", "SYNC_MASTER", "SLAVE"
LARGEST_BATCH = 32 << 20
"""A frame takes no more than twice as much."""


@dataclass(frozen=True)
class HaSettings:
    """Source: RocketMQ ``MessageStoreConfig``; what differs is said in each help."""

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

    def check_role(self, broker_id: int) -> None:
        """Raise ConfigError when role and id contradict one another, or a number cannot work."""
        if self.broker_role not in (ASYNC_MASTER, SYNC_MASTER, SLAVE):
            raise ConfigError(f"broker role {self.broker_role!r} is none of {ASYNC_MASTER}, {SYNC_MASTER}, {SLAVE}")
        if (self.broker_role == SLAVE) and broker_id == MASTER_ID:
            raise ConfigError("a SLAVE needs a broker id above 0")
        if (self.broker_role == SYNC_MASTER) and broker_id != MASTER_ID:
            raise ConfigError(f"broker id {broker_id} is a slave's, and a SYNC_MASTER has id 0")
        for name in ("in_sync_replicas", "ha_max_gap_not_in_sync", "ha_transfer_batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"setting {name}: {getattr(self, name)} is not above 0")
        if self.ha_transfer_batch_size > LARGEST_BATCH:
            raise ConfigError(f"setting ha_transfer_batch_size: {self.ha_transfer_batch_size} is over {LARGEST_BATCH}")
