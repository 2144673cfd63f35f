"""Settings of overload: how long work may wait, and how much of whose is kept in memory."""

from dataclasses import dataclass

from dejamq_proto.settings import setting


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
        help="an append that takes so long means that the disk is busy: what waited behind it is told so",
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
        help="replies and commands that may wait for one client to read them; more are refused to whoever sends them",
    )
