"""Which files go and when: by age in certain hours, by disk use, or on demand. Source: ``CleanCommitLogService``.

Only log files are chosen. Queues and index follow the log's new beginning, so that nothing points before it for long. A
reader that comes too late gets an error with the new minimum.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from dejamq_broker.store.files.config import QUEUE_ENTRY_SIZE, StoreConfig
from dejamq_broker.store.files.directories import sync_directory
from dejamq_broker.store.files.disk import Disk
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.files.paths import file_name, file_start
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from dejamq_broker.store.queues.consume_queues import ConsumeQueues

logger = logging.getLogger(__name__)

MANUAL_ROUNDS = 20
"""A deletion on demand is tried this number of times (RocketMQ: MAX_MANUAL_DELETE_FILE_TIMES)."""

Follow = Callable[[int], object]
"""Give up what belongs to the log before this log offset. When it raises it is called again."""


def local_hour(now_ms: int) -> int:
    """The hour of the day where this machine stands."""
    return time.localtime(now_ms / 1000).tm_hour


def is_hour(delete_when: str, hour: int) -> bool:
    """Whether this hour is one of ``delete_when``, like "04;16". The whole hour counts, not its first minute."""
    return hour in {int(text) for text in delete_when.split(";")}


def expired(modified_ms: Iterable[int], now_ms: int, reserved_ms: int, *, forced: bool, most: int) -> int:
    """How many of the oldest files go. Pure.

    ``modified_ms`` are the times of their last writes, in the log's order. The first that has not expired ends it,
    for the log has no gaps; ``forced`` takes them all for expired.
    """
    count = 0
    for written_ms in modified_ms:
        if count == most or not (forced or now_ms >= written_ms + reserved_ms):
            break
        count += 1
    return count


def expire_queue(queue: ConsumeQueue, log_min: int) -> int:
    """Let a queue begin at its first entry whose record is still there, and delete the files before. Answers how many.

    The minimum moves before a file goes: a reader that then misses entries sees a new minimum. A queue of which all
    entries expired begins where it ends. Its last file stays, for its name says how far the queue has come. Raises
    OSError.
    """
    queue.correct_min(log_min)
    keep_from = min(queue.min_offset, queue.written) * QUEUE_ENTRY_SIZE
    size = queue.next_file(0) * QUEUE_ENTRY_SIZE
    names = sorted(path.name for path in queue.folder.iterdir()) if queue.folder.is_dir() else []
    starts = [start for name in names if (start := file_start(name)) is not None]
    gone = [start for start in starts[:-1] if start + size <= keep_from]
    for start in gone:
        (queue.folder / file_name(start)).unlink()
        sync_directory(queue.folder)
    return len(gone)


def follow_queues(queues: ConsumeQueues) -> Follow:
    """All queues of a store, as a follower. One that fails does not keep the others; its error is raised at the end."""

    def follow(log_min: int) -> None:
        failed: OSError | None = None
        for queue in queues.values():
            try:
                expire_queue(queue, log_min)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    return follow


class Retention:
    """Owns the retention thread. ``safe_end``: nothing at or after this log offset may go.

    Up to there the mark on disk says that the queues are complete. A crash after a deletion must still find how far
    each queue had come, or queue offsets would be given out twice.
    """

    def __init__(
        self, log: CommitLog, disk: Disk, config: StoreConfig, clock_ms: Callable[[], int],
        followers: Sequence[Follow], *, safe_end: Callable[[], int], ask_for_mark: Callable[[], None],
    ) -> None:  # fmt: skip
        """``ask_for_mark`` is called when files would go, were it not for ``safe_end``."""
        self._log, self._disk, self._config, self._clock_ms = log, disk, config, clock_ms
        self._followers, self.safe_end, self._ask_for_mark = followers, safe_end, ask_for_mark
        self.hour_of: Callable[[int], int] = local_hour
        self._manual_rounds = 0
        self._followed, self._follow_again = -1, False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dejamq-retention")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a file whose deletion has begun is deleted."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def clean_soon(self) -> None:
        """Delete what has expired at the next looks, whatever the hour. Any thread."""
        self._manual_rounds = MANUAL_ROUNDS

    def follow_soon(self) -> None:
        """Let queues and index give up what has expired at the next look, also if the log has not moved. Any thread."""
        self._follow_again = True

    def clean(self, now_ms: int) -> int:
        """One look: delete what is to go, let queues and index follow. Answers how many log files went.

        Raises OSError when a file cannot be deleted; files that went before stay gone, and the next look goes on.
        """
        deleted = 0
        for file in self._chosen(now_ms):
            if deleted and self._stopping.wait(self._config.delete_commit_log_files_interval_ms / 1000):
                break
            logger.info("log_file_deleted name=%s", file.path.name)
            self._log.files.remove_first()
            deleted += 1
        log_min = self._log.min_offset
        if self._follow_again:
            self._followed, self._follow_again = -1, False
        if log_min != self._followed:
            for follow in self._followers:
                follow(log_min)
            self._followed = log_min
        return deleted

    def _chosen(self, now_ms: int) -> Sequence[MappedFile]:
        config, state = self._config, self._disk.state
        manual = self._manual_rounds > 0
        if not (manual or state.clean or is_hour(config.delete_when, self.hour_of(now_ms))):
            return ()
        if manual:
            self._manual_rounds -= 1
        files, safe_end = self._log.files.files, self.safe_end()
        deletable = [file for file in files[: -config.log_files_kept] if file.end <= safe_end]
        count = expired(
            (file.modified_ms() for file in deletable), now_ms, config.file_reserved_ms,
            forced=state.clean_now and config.clean_file_forcibly_enable, most=config.delete_file_batch_max,
        )  # fmt: skip
        if state.clean and not count:
            self._ask_for_mark()
            logger.warning("disk_nearly_full log=%d%% but no file may be deleted", self._disk.use.log)
        return deletable[:count]

    def _run(self) -> None:
        config = self._config
        cleaning = time.monotonic() + config.clean_resource_delay_ms / 1000
        pause_ms = config.disk_check_delay_ms
        while not self._stopping.wait(pause_ms / 1000):
            pause_ms = config.clean_resource_interval_ms
            try:
                self._disk.look()
                if time.monotonic() >= cleaning:
                    self.clean(self._clock_ms())
            except Exception:
                # a file that cannot be deleted now may be at the next look, and the disk must be watched on
                logger.exception("retention_failed directory=%s", self._log.files.folder)
