"""How full the disk is, and the consequences.

Source: RocketMQ ``DefaultMessageStore`` (``isSpaceToDelete``, ``isSpaceFull``) and ``RunningFlags``.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from dejamq_broker.store.files.config import StoreConfig
from dejamq_broker.store.files.errors import StoreFull
from dejamq_broker.store.files.file_queue import FileQueue
from dejamq_broker.store.files.paths import StorePaths

logger = logging.getLogger(__name__)


class DiskUse(msgspec.Struct, frozen=True):
    """How full (%) the file systems of the log and of the queues are: most often one and the same."""

    log: int = 0
    queues: int = 0


class DiskState(msgspec.Struct, frozen=True):
    """The meaning of a disk use."""

    full: bool = False
    """Refuse writes."""
    clean: bool = False
    """Delete what has expired, at any hour."""
    clean_now: bool = False
    """Delete the oldest files, expired or not, where that is allowed."""


class DiskLimits(msgspec.Struct, frozen=True):
    """Percentages: above ``clean`` expired files go, above ``forced`` any, above ``full`` writes are refused."""

    clean: int
    forced: int
    full: int

    @classmethod
    def of(cls, config: StoreConfig) -> "DiskLimits":
        """The settings, kept within RocketMQ's bounds."""
        return cls(
            clean=_within(config.disk_max_used_space_ratio, 10, 95),
            forced=_within(config.disk_space_clean_forcibly_ratio, 30, 85),
            full=_within(config.disk_space_warning_level_ratio, 35, 90),
        )


def judge(use: DiskUse, limits: DiskLimits) -> DiskState:
    """The action at this disk use: the fuller disk decides. Pure."""
    most = max(use.log, use.queues)
    return DiskState(
        full=most > limits.full,
        clean=most > min(limits.clean, limits.forced, limits.full),
        clean_now=most > min(limits.forced, limits.full),
    )


def used_percent(folder: Path) -> int:
    """How much of what we may use of a file system is used, in %, rounded up, as ``df`` shows it. Raises OSError.

    Source: RocketMQ ``UtilAll.getDiskPartitionSpaceUsedPercent``.
    """
    space = os.statvfs(folder)
    used = space.f_blocks - space.f_bfree
    return -(-used * 100 // max(1, used + space.f_bavail))


class Disk:
    """Watches the disk of a store: retention looks, the appender asks ``refusal``."""

    def __init__(self, paths: StorePaths, config: StoreConfig, told_percent: Callable[[], int] | None) -> None:
        """``told_percent``: how full the disk is said to be, whatever it is; 0: nothing is said.

        It is for tests of the consequences; None: nobody says so ever.
        """
        self._paths, self._enabled, self._told_percent = paths, config.disk_check_enable, told_percent
        self._limits = DiskLimits.of(config)
        self._holes: FileQueue | None = None
        self.used_percent: Callable[[Path], int] = used_percent
        self.use = DiskUse()
        self.state = DiskState()
        self.refuses = False
        """Whether ``refusal`` has something to say: each append asks."""

    def look(self) -> DiskState:
        """Measure and judge. A disk that cannot be measured counts as it did before."""
        if self._holes is not None:
            self.reserve(self._holes)
        told = self._told_percent() if self._told_percent is not None else 0
        if not (self._enabled or told or self.use != DiskUse()):
            return self.state
        before = self.state
        try:
            self.use = DiskUse(told, told) if told or not self._enabled else self._measure()
        except OSError as error:
            logger.warning("disk_not_measured directory=%s error=%s", self._paths.root, error)
            return before
        self.state = judge(self.use, self._limits)
        self.refuses = self.state.full or self._holes is not None
        if self.state.full != before.full:
            event = "disk_full" if self.state.full else "disk_ok"
            logger.warning(
                "%s directory=%s log=%d%% queues=%d%%", event, self._paths.root, self.use.log, self.use.queues
            )
        return self.state

    def reserve(self, files: FileQueue) -> None:
        """Have all blocks of the last file, which appends go on in. Without space, writes are refused until there is
        some.

        A file that RocketMQ made, that was copied, or that recovery cut has holes. On a full disk, a touch of a hole in
        a mapped file kills the process.
        """
        if not files.files:
            return
        try:
            files.files[-1].reserve()
        except OSError as error:
            if self._holes is None:
                logger.warning("log_file_has_holes directory=%s error=%s", files.folder, error)
            self._holes = files
        else:
            self._holes = None
        self.refuses = self.state.full or self._holes is not None

    def refusal(self) -> StoreFull | None:
        """Why nothing may be appended; None: it may. Any thread."""
        root = self._paths.root
        if self._holes is not None:
            return StoreFull(f"no room for the log file in {self._holes.folder}: make room; reads go on")
        if not self.state.full:
            return None
        use, where = (self.use.log, "log") if self.use.log > self._limits.full else (self.use.queues, "queues")
        return StoreFull(
            f"the disk of the {where} in {root} is {use} % full, writes are refused above {self._limits.full} % "
            "(disk_space_warning_level_ratio): make room; reads go on"
        )

    def _measure(self) -> DiskUse:
        paths = self._paths
        queues = paths.consume_queues if paths.consume_queues.is_dir() else paths.root
        return DiskUse(self.used_percent(paths.commit_log), self.used_percent(queues))


def _within(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))
