"""A start brings log and queues to one end: scan, decide, cut once. FORMAT.md has the steps. Source: ``CommitLog``.

Each byte of the log is read once: records that the walk finds good are dispatched at once, for no good record is ever
cut.
"""

import logging
from collections.abc import Callable

import msgspec

from dejamq_broker.store.files.checkpoint import Checkpoint, DispatchProgress
from dejamq_broker.store.files.config import StoreConfig
from dejamq_broker.store.files.directory_lock import mark_open
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.log.batch import QueueKey
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_broker.store.log.cut import CutTail, cut
from dejamq_broker.store.log.scan import Damage, End, LogFiles, Read
from dejamq_broker.store.log.start_point import (
    BY_MARK,
    WHOLE_LOG,
    StartPoint,
    by_checkpoint,
    by_mark,
    by_queues,
    stored_at,
    whole_log,
)
from dejamq_broker.store.queues.consume_queues import ConsumeQueues, Contradiction, Incomplete
from dejamq_broker.store.queues.coverage import first_uncovered
from dejamq_broker.store.queues.unsupported import refuse_unsupported
from dejamq_broker.store.recovery_walk import Trust, Walk, ends_at

logger = logging.getLogger(__name__)


class RecoveryReport(msgspec.Struct, frozen=True):
    """The findings and the work of a start."""

    clean_start: bool
    scanned_from: int
    log_end: int
    last_store_timestamp_ms: int
    damages: tuple[Damage, ...] = ()
    cuts: tuple[CutTail, ...] = ()
    rule: str = BY_MARK
    """By which rule ``scanned_from`` was chosen: mark, queues, checkpoint, whole log."""
    queues_rebuilt: bool = False
    """True when the queues were built from the whole log, because some were missing or not as they must be."""
    entries_truncated: int = 0
    """How many entries the queues lost, because the log does not have their records."""


class Recovery:
    """One start, before any other thread runs. ``keep_to``: the log ends there at the latest, whatever follows."""

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, paths: StorePaths, config: StoreConfig, keep_to: End | None = None
    ) -> None:
        self._log, self._queues, self._paths, self._config, self._keep_to = log, queues, paths, config, keep_to
        self._extent = LogFiles(0, 0, log.files.file_size)
        self._mark: DispatchProgress | None = None
        self._expired: dict[QueueKey, int] = {}

    def run(self, clock_ms: Callable[[], int]) -> RecoveryReport:
        """Load, walk, dispatch what the queues lack, cut: log and queues can be used then.

        Raises StoreDamaged or StoreError for files that are not as they must be, with all files left as they were.
        """
        clean = not self._paths.abort.exists()
        self._load(clean)
        loaded = {key: queue.max_offset for key, queue in self._queues.items()}
        start = self._start_point(clean, clock_ms)
        try:
            walk = self._walk(start, clean)
        except Incomplete as lacking:
            logger.warning("queues_lack_entries directory=%s reason=%s", self._paths.root, lacking)
            if isinstance(lacking, Contradiction):
                self._mark = None
            start = whole_log(self._extent)
            walk = self._walk(start, clean)
        found = walk.found
        cuts = self._settle(start, walk)
        lost = sum(max(0, loaded.get(key, 0) - queue.max_offset) for key, queue in self._queues.items())
        damages = (*found.damages, *walk.strange)
        for damage in damages:
            logger.error("log_damaged from=%d to=%d reason=%s", damage.log_offset, damage.end, damage.reason)
        if not clean:
            where = self._paths.root, start.rule.replace(" ", "_"), start.walk_from, found.end
            logger.info("recovered directory=%s rule=%s from=%d to=%d", *where)
        return RecoveryReport(
            clean, start.walk_from, found.end, found.last_store_timestamp_ms, damages, cuts, start.rule,
            queues_rebuilt=start.rule == WHOLE_LOG and found.end > self._extent.start, entries_truncated=lost,
        )  # fmt: skip

    def _load(self, clean: bool) -> None:
        refuse_unsupported(self._paths)
        files = self._log.files
        files.load()
        end = files.end if self._keep_to is None else min(files.end, self._keep_to.log_offset)
        self._extent = LogFiles(files.start, end, files.file_size)
        self._mark = self._mark_of_this_life()
        self._queues.load(self._mark, self._extent, clean=clean)
        mark_open(self._paths)

    def _mark_of_this_life(self) -> DispatchProgress | None:
        """Statements of an older mark on topics that were deleted since do not count any more."""
        mark, deleted = DispatchProgress.load(self._paths.progress), self._queues.deleted
        return mark and mark.without(topic for topic in deleted if mark.log_offset <= deleted.end_of_life(topic))

    def _start_point(self, clean: bool, clock_ms: Callable[[], int]) -> StartPoint:
        extent, read = self._extent, self._log.files.read
        stored_ms = stored_at(read, extent)
        if self._queues.lacking:
            logger.warning("queues_lack_entries directory=%s reason=%s", self._paths.root, self._queues.lacking)
            return whole_log(extent)
        if self._mark is not None:
            return by_mark(extent, stored_ms, self._mark.log_offset)
        queues = self._queues.values()
        if clean:
            start = by_queues(extent, stored_ms, max((queue.max_log_offset for queue in queues), default=0))
        else:
            checkpoint = Checkpoint.load(self._paths.checkpoint)
            safe_ms = checkpoint.safe_ms(clock_ms(), index_too=self._config.message_index_safe)
            start = by_checkpoint(extent, stored_ms, safe_ms)
        uncovered = first_uncovered(queues, read, extent, start.feed_from)
        if uncovered is not None:
            logger.warning("queues_lack_entries directory=%s log_offset=%d", self._paths.root, uncovered)
            return whole_log(extent)
        return start

    def _walk(self, start: StartPoint, clean: bool) -> Walk:
        """Read the log, and give the queues what they lack. Raises Incomplete when they lack more."""
        extent, mark, read = self._extent, self._mark, self._reading()
        as_left = clean and mark is not None and ends_at(read, extent, mark.log_offset) and start.rule == BY_MARK
        as_left = as_left and self._keep_to is None
        if as_left:
            # nothing behind the mark needs to be looked at
            extent = LogFiles(extent.start, start.feed_from, extent.file_size)
        elif start.rule == WHOLE_LOG:
            self._forget_queues()
        else:
            for queue in self._queues.values():
                queue.truncate(start.feed_from)
        # records after the last mark may never have been on disk: a power loss leaves holes there, and not damage
        trust = Trust(None if clean or mark is None else mark.durable_log, self._config.cut_at_damage)
        walk = Walk(self._queues, start, self._config.delay_levels_ms)
        walk.run(read, extent, trust)
        walk.as_left = as_left and walk.found.end == start.feed_from
        if self._keep_to is not None:
            walk.used = None  # nobody has read the part that is to go
        return walk

    def _reading(self) -> Read:
        """Reads of the log, as far as it is to be kept."""
        read, keep_to = self._log.files.read, self._keep_to
        if keep_to is None:
            return read
        return lambda at, size: read(at, max(0, min(size, keep_to.log_offset - at)))

    def _forget_queues(self) -> None:
        """From here on the mark on disk vouches for no entry, so a crash in the middle begins again.

        It keeps what the log cannot tell: how far queues had come of which no message is left.
        """
        for key, queue in self._queues.items():
            if queue.max_offset and queue.max_log_offset <= self._extent.start:
                self._expired[key] = queue.max_offset
        counts = {topic: dict(of_topic) for topic, of_topic in self._mark.queues.items()} if self._mark else {}
        for (topic, queue_id), count in self._expired.items():
            counts.setdefault(topic, {})[queue_id] = count
        durable = self._mark.durable_log if self._mark else self._extent.end
        if counts or self._queues.values():
            DispatchProgress(0, counts, durable).save(self._paths.progress)
        self._queues.discard()

    def _settle(self, start: StartPoint, walk: Walk) -> tuple[CutTail, ...]:
        """Bring log and queues to the end that was found. The mark goes first: it may never say more than is there."""
        files, end, mark = self._log.files, walk.found.end, self._mark
        if start.rule == WHOLE_LOG:
            self._queues.reach(self._expired.items())
            if mark is not None and mark.log_offset <= end:
                self._queues.reach(mark.by_queue())
        cuts: tuple[CutTail, ...] = ()
        if not walk.as_left:
            self._lower_mark(start, end)
            reason = walk.found.reason or (self._keep_to.reason if self._keep_to else "")
            cuts = cut(files, End(end, reason), walk.used, self._paths)
        self._queues.deleted.clamp(end)
        if end == 0:
            # a log that begins again, begins with queues that do (RocketMQ destroys them too)
            self._queues.discard()
        for queue in self._queues.values():
            if end < start.feed_from:
                queue.truncate(end)
            queue.correct_min(files.start)
        for file in files.files:
            # a killed process leaves bytes that only the page cache has: from here on they count as flushed
            if file.end > start.feed_from:
                file.sync()
        self._log.max_offset, self._log.last_store_timestamp_ms = end, walk.found.last_store_timestamp_ms
        return cuts

    def _lower_mark(self, start: StartPoint, end: int) -> None:
        mark = self._mark
        if mark is None or mark.durable_log <= end:
            return
        counts: dict[str, dict[int, int]] = {}
        if start.rule == BY_MARK:
            for (topic, queue_id), queue in self._queues.items():
                counts.setdefault(topic, {})[queue_id] = queue.count_before(end, since=0)
        log_offset = min(mark.log_offset, end) if start.rule == BY_MARK else 0
        DispatchProgress(log_offset, counts, end).save(self._paths.progress)
