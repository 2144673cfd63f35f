"""Settings of what a slave copies beside the log, and of reading from it; part of ``BrokerConfig``."""

from dataclasses import dataclass

from dejamq_proto.settings import setting


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
