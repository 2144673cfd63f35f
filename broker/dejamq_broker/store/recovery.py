"""What a start finds: scan (changes nothing), decide, cut once; FORMAT.md has the steps. Source: ``CommitLog``."""

import logging
import os

import msgspec
from dejamq_proto.record import decode

from dejamq_broker.store.batch import QueueTable
from dejamq_broker.store.checkpoint import Checkpoint, Progress
from dejamq_broker.store.commit_log import CommitLog
from dejamq_broker.store.consume_queues import ConsumeQueues
from dejamq_broker.store.directories import make_directory, sync_directory
from dejamq_broker.store.entries import batch_of
from dejamq_broker.store.file_queue import FileQueue
from dejamq_broker.store.log_scan import Damage, End, Extent, Found, Read, step, walk
from dejamq_broker.store.mapped_file import MappedFile
from dejamq_broker.store.paths import StorePaths
from dejamq_broker.store.torn import walk_believed

logger = logging.getLogger(__name__)

COPY_STEP = 1 << 20
WRITE_OUT_EVERY = 256


class Cut(msgspec.Struct, frozen=True):
    """Bytes taken off the end of the log, and where they are kept."""

    log_offset: int
    size: int
    kept: str
    reason: str


class RecoveryReport(msgspec.Struct, frozen=True):
    """What a start found and did."""

    clean_start: bool
    scanned_from: int
    log_end: int
    last_store_timestamp_ms: int
    damages: tuple[Damage, ...] = ()
    cuts: tuple[Cut, ...] = ()
    queues_rebuilt: bool = False
    """True when the queues were built from the whole log, because some were missing or short."""
    entries_truncated: int = 0


class Scan(msgspec.Struct, frozen=True):
    """The log as it is: good up to ``end`` except for ``damages``."""

    end: int
    reason: str
    damages: tuple[Damage, ...]
    last_store_timestamp_ms: int


def scan(read: Read, extent: Extent, start: int, *, durable: int | None, cut_at_damage: bool) -> Scan:
    """Find the end of the log. Changes nothing.

    The log was on disk up to ``durable``: a hole after that ends it, whatever follows. None: nothing is known of that.
    """
    damages: list[Damage] = []
    last = 0
    pieces = walk(read, extent, start) if durable is None else walk_believed(read, extent, start, durable)
    for piece in pieces:
        if isinstance(piece, Found):
            last_at = len(piece.data) - piece.sizes[-1]
            last = decode(piece.data, last_at, check_crc=False).store_timestamp_ms
        elif isinstance(piece, End):
            return Scan(piece.log_offset, piece.reason, tuple(damages), last)
        elif cut_at_damage:
            return Scan(piece.log_offset, piece.reason, (), last)
        else:
            damages.append(piece)
    raise AssertionError("a walk ends with an End")


def recover(
    log: CommitLog,
    queues: ConsumeQueues,
    progress: Progress | None,
    paths: StorePaths,
    *,
    clean_start: bool,
    cut_at_damage: bool,
) -> tuple[RecoveryReport, int]:
    """Bring a loaded log and loaded queues to one end.

    Answers the report and the log offset from which the queues are to be fed again.
    """
    files = log.files
    extent = Extent(files.start, files.end, files.file_size)
    complete = progress is not None and _complete(progress, queues)
    reached = max(progress.log_offset, extent.start) if progress is not None and complete else extent.start
    start = extent.start if reached >= extent.end else reached - reached % extent.file_size
    if reached >= extent.end:
        start = max(extent.start, extent.end - extent.file_size)
    known = _ends_at(files.read, extent, reached) if clean_start and complete else extent
    # what came after the last mark may never have been on disk: a power loss leaves holes there, and not damage
    durable = progress.durable_log if progress is not None else None
    found = scan(files.read, known, start, durable=durable, cut_at_damage=cut_at_damage)
    cuts = () if found.end == known.end != extent.end else cut(files, found, paths)
    for damage in found.damages:
        logger.error("log_damaged from=%d to=%d reason=%s", damage.log_offset, damage.end, damage.reason)
    for file in files.files:
        # a killed process leaves bytes that only the page cache has: from here on they count as flushed
        if file.end > reached:
            file.sync()
    truncated = 0
    for queue in queues.values():
        truncated += queue.truncate(found.end)
        queue.correct_min(files.start)
    log.max_offset = found.end
    log.last_store_timestamp_ms = max(found.last_store_timestamp_ms, Checkpoint.load(paths.checkpoint).log_timestamp_ms)
    report = RecoveryReport(
        clean_start, start, found.end, log.last_store_timestamp_ms, found.damages, cuts,
        queues_rebuilt=not complete and found.end > extent.start, entries_truncated=truncated,
    )  # fmt: skip
    return report, min(reached, found.end)


def replay(
    log: CommitLog, queues: ConsumeQueues, table: QueueTable, log_offset: int, delay_levels_ms: tuple[int, ...]
) -> None:
    """Feed the queues from the log. They know by log offset what they have already."""
    extent = Extent(log.min_offset, log.max_offset, log.files.file_size)
    for number, piece in enumerate(walk(log.read, extent, log_offset)):
        if isinstance(piece, Found):
            queues.dispatch(batch_of(piece, table.number_of, delay_levels_ms))
        if number % WRITE_OUT_EVERY == 0:
            queues.write_out()


def cut(files: FileQueue, found: Scan, paths: StorePaths) -> tuple[Cut, ...]:
    """Take off everything after the end, keeping copies of what is not zero. Raises OSError."""
    cuts = []
    for file in files.files:
        if file.end <= found.end:
            continue
        at = max(0, found.end - file.start)
        used = file.used()
        if used > at:
            reason = found.reason or "bytes after the end of the log"
            cuts.append(_keep(file, at, used, paths, reason))
            if file.start <= found.end:
                file.clear_from(at)
    files.remove_from(found.end)
    return tuple(cuts)


def _keep(file: MappedFile, at: int, used: int, paths: StorePaths, reason: str) -> Cut:
    make_directory(paths.cut)
    log_offset = file.start + at
    target = paths.cut_file(file.path.name, log_offset)
    with target.open("xb") as copy:
        for position in range(at, used, COPY_STEP):
            copy.write(file.read(position, min(COPY_STEP, used - position)))
        copy.flush()
        os.fsync(copy.fileno())
    sync_directory(paths.cut)
    kept = str(target)
    logger.warning("log_cut at=%d bytes=%d kept=%s reason=%s", log_offset, used - at, kept, reason)
    return Cut(log_offset, used - at, kept, reason)


def _complete(progress: Progress, queues: ConsumeQueues) -> bool:
    """The files hold all the entries that they held when the mark was made."""
    for topic, offsets in progress.queues.items():
        for queue_id, queue_offset in offsets.items():
            queue = queues.get((topic, queue_id))
            if queue is None or queue.max_offset < queue_offset:
                return False
    return True


def _ends_at(read: Read, extent: Extent, log_offset: int) -> Extent:
    """After a clean stop the log ends at the mark. If it does, nothing behind it needs to be read."""
    if log_offset < extent.end and step(read, extent, log_offset) == End(log_offset, ""):
        return Extent(extent.start, log_offset, extent.file_size)
    return extent
