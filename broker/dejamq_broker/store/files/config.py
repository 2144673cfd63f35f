"""The store's settings: RocketMQ's names (``MessageStoreConfig``) in snake case, with its defaults unless marked so."""

import re
from dataclasses import dataclass
from functools import cached_property

from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import setting

ASYNC_FLUSH, SYNC_FLUSH = "ASYNC_FLUSH", "SYNC_FLUSH"
QUEUE_ENTRY_SIZE = 20
MAY_BE_0 = ("access_message_in_memory_max_ratio",)
RECORD_ALLOWANCE = 64 << 10
"""Bytes that a record may take beyond its body (RocketMQ: MessageExtEncoder)."""

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class StoreConfig:
    """Sizes in bytes, times in milliseconds."""

    mapped_file_size_commit_log: int = setting(
        1 << 30, rocketmq="mappedFileSizeCommitLog", unit="bytes", help="size of each commit log file"
    )
    mapped_file_size_consume_queue: int = setting(
        300_000 * QUEUE_ENTRY_SIZE, rocketmq="mappedFileSizeConsumeQueue", unit="bytes", help="size of each queue file"
    )
    mapped_file_size_timer_log: int = setting(
        100 << 20, rocketmq="mappedFileSizeTimerLog", unit="bytes", help="size of each file of waiting timed messages"
    )
    flush_disk_type: str = setting(ASYNC_FLUSH, rocketmq="flushDiskType", help="ASYNC_FLUSH, or SYNC_FLUSH")
    sync_flush_in_event_loop: bool = setting(
        False, help="with SYNC_FLUSH the event loop syncs a quick disk itself; one that then hangs stops the broker"
    )
    flush_interval_commit_log_ms: int = setting(
        500, rocketmq="flushIntervalCommitLog", unit="ms", scale="interval", help="pause between flushes"
    )
    flush_commit_log_least_pages: int = setting(
        4, rocketmq="flushCommitLogLeastPages", unit="pages", help="fewer dirty pages wait for the thorough flush"
    )
    flush_commit_log_thorough_interval_ms: int = setting(
        10_000, rocketmq="flushCommitLogThoroughInterval", unit="ms", scale="interval", help="everything, this often"
    )
    flush_interval_consume_queue_ms: int = setting(
        1000, rocketmq="flushIntervalConsumeQueue", unit="ms", scale="interval", help="pause between queue flushes"
    )
    flush_commit_log_timed: bool = setting(
        True, rocketmq="flushCommitLogTimed", help="flush at intervals; without it also as soon as pages are enough"
    )
    flush_consume_queue_least_pages: int = setting(
        2, rocketmq="flushConsumeQueueLeastPages", unit="pages", help="a queue with fewer waits for the thorough flush"
    )
    flush_consume_queue_thorough_interval_ms: int = setting(
        60_000, rocketmq="flushConsumeQueueThoroughInterval", unit="ms", scale="interval", help="all queues, this often"
    )
    max_message_size: int = setting(4 << 20, rocketmq="maxMessageSize", unit="bytes", help="of the body")
    max_transfer_bytes_on_message_in_memory: int = setting(
        1 << 20, rocketmq="maxTransferBytesOnMessageInMemory", unit="bytes", help="of one pull; RocketMQ: 256 KiB"
    )
    max_transfer_count_on_message_in_memory: int = setting(
        1024, rocketmq="maxTransferCountOnMessageInMemory", unit="messages", help="of one pull; RocketMQ: 32"
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        256 << 10, rocketmq="maxTransferBytesOnMessageInDisk", unit="bytes", help="of older ones; RocketMQ: 64 KiB"
    )
    max_transfer_count_on_message_in_disk: int = setting(
        256, rocketmq="maxTransferCountOnMessageInDisk", unit="messages", help="of older ones; RocketMQ: 8"
    )
    max_filter_message_size: int = setting(
        16_000, rocketmq="maxFilterMessageSize", unit="bytes", help="of queue entries that a filtered read looks at"
    )
    access_message_in_memory_max_ratio: int = setting(
        40, rocketmq="accessMessageInMemoryMaxRatio", unit="% of RAM", help="what counts as in memory; 0: nothing"
    )
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", rocketmq="messageDelayLevel",
        help="delay of level 1, 2, …",
    )  # fmt: skip
    delay_second_ms: int = setting(
        1000, unit="ms", scale="interval", help="how long a second of message_delay_level lasts, for tests"
    )
    file_reserved_time_hours: int = setting(
        72, rocketmq="fileReservedTime", unit="h", help="log files that were not written to for so long expire"
    )
    file_reserved_hour_ms: int = setting(
        3_600_000, unit="ms", scale="interval", help="how long an hour of file_reserved_time_hours lasts, for tests"
    )
    delete_when: str = setting(
        "04", rocketmq="deleteWhen", help="hours of the day, ';' between them, in which expired files are deleted"
    )
    clean_resource_interval_ms: int = setting(
        10_000, rocketmq="cleanResourceInterval", unit="ms", scale="interval", help="pause between looks at the disk"
    )
    clean_resource_delay_ms: int = setting(
        60_000, unit="ms", scale="interval", help="nothing is deleted so soon after the start"
    )
    disk_check_delay_ms: int = setting(
        1000, unit="ms", scale="interval", help="the first look at the disk comes so long after the start"
    )
    disk_max_used_space_ratio: int = setting(
        75, rocketmq="diskMaxUsedSpaceRatio", unit="%", help="above it expired files are deleted at any hour; 10 to 95"
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85, rocketmq="diskSpaceCleanForciblyRatio", unit="%",
        help="above it the oldest files are deleted, expired or not; 30 to 85",
    )  # fmt: skip
    disk_space_warning_level_ratio: int = setting(
        90, rocketmq="diskSpaceWarningLevelRatio", unit="%", help="above it writes are refused; 35 to 90"
    )
    disk_check_enable: bool = setting(
        True, help="act on how full the disk is; without it only a disk without any room refuses writes"
    )
    clean_file_forcibly_enable: bool = setting(
        True, rocketmq="cleanFileForciblyEnable", help="delete what has not expired when the disk is nearly full"
    )
    delete_file_batch_max: int = setting(
        10, rocketmq="deleteFileBatchMax", unit="files", help="most log files deleted at one look"
    )
    delete_commit_log_files_interval_ms: int = setting(
        100, rocketmq="deleteCommitLogFilesInterval", unit="ms", scale="interval", help="pause between two of them"
    )
    log_files_kept: int = setting(
        1, unit="files", help="so many of the newest log files are never deleted; RocketMQ keeps the last one"
    )
    overflow_to_zero: bool = setting(
        False, help="send an offset beyond the end of a queue that begins at 0 to 0, as RocketMQ 4, not to the end"
    )
    message_index_enable: bool = setting(True, rocketmq="messageIndexEnable", help="make messages findable by key")
    message_index_safe: bool = setting(
        False, rocketmq="messageIndexSafe", help="a start after a crash also goes back to where the index is on disk"
    )
    max_hash_slot_num: int = setting(
        5_000_000, rocketmq="maxHashSlotNum", unit="slots", help="of each index file; keep it as the store was made"
    )
    max_index_num: int = setting(
        20_000_000, rocketmq="maxIndexNum", unit="entries", help="of each index file; keep it as the store was made"
    )
    max_msgs_num_batch: int = setting(
        64, rocketmq="maxMsgsNumBatch", unit="messages", help="most that a query by key answers"
    )
    index_lag_max: int = setting(
        1 << 30,
        unit="bytes",
        help="a log that is not indexed by more than this is, a little at a time, though the broker is busy",
    )
    cut_at_damage: bool = setting(
        False, help="cut the log at the first damaged record, as RocketMQ does, even when good records follow"
    )

    @property
    def sync_flush(self) -> bool:
        return self.flush_disk_type == SYNC_FLUSH

    @property
    def file_reserved_ms(self) -> int:
        """For how long log files are kept after their last write."""
        return self.file_reserved_time_hours * self.file_reserved_hour_ms

    @cached_property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Delay of level 1, 2, …"""
        levels_ms = (int(text[:-1]) * _UNIT_MS[text[-1]] for text in self.message_delay_level.split())
        return tuple(max(1, level_ms * self.delay_second_ms // 1000) for level_ms in levels_ms)

    def validate(self) -> None:
        """Raise ConfigError for values that cannot work."""
        if self.flush_disk_type not in (ASYNC_FLUSH, SYNC_FLUSH):
            raise ConfigError(f"flush_disk_type is {self.flush_disk_type!r}; use {ASYNC_FLUSH} or {SYNC_FLUSH}")
        if self.mapped_file_size_consume_queue <= 0 or self.mapped_file_size_consume_queue % QUEUE_ENTRY_SIZE:
            raise ConfigError(
                f"mapped_file_size_consume_queue is {self.mapped_file_size_consume_queue}; "
                f"use a multiple of {QUEUE_ENTRY_SIZE}"
            )
        if self.mapped_file_size_commit_log < 4096:
            raise ConfigError(
                f"mapped_file_size_commit_log is {self.mapped_file_size_commit_log}; use 4096 bytes or more"
            )
        if self.mapped_file_size_timer_log < 4096:
            raise ConfigError(
                f"mapped_file_size_timer_log is {self.mapped_file_size_timer_log}; use 4096 bytes or more"
            )
        if not re.fullmatch(r"\d+[smhd]( \d+[smhd])*", self.message_delay_level):
            raise ConfigError(f"message_delay_level is {self.message_delay_level!r}; write it like '1s 5s 2m 1h'")
        if not re.fullmatch(r"([01]?\d|2[0-3])(;([01]?\d|2[0-3]))*", self.delete_when):
            raise ConfigError(f"delete_when is {self.delete_when!r}; write hours of the day like '04' or '04;16'")
        if self.max_index_num < 2:
            raise ConfigError(f"max_index_num is {self.max_index_num}; entry 0 is never used, so use 2 or more")
        for name, value in vars(self).items():
            least = 0 if name in MAY_BE_0 else 1
            if isinstance(value, int) and not isinstance(value, bool) and value < least:
                raise ConfigError(f"{name} is {value}; it must be {'above 0' if least else '0 or more'}")
