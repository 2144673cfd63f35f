"""Taking the end off a log, with a copy of it kept beside."""

import logging
import os

import msgspec

from dejamq_broker.store.files.directories import make_directory, sync_directory
from dejamq_broker.store.files.file_queue import FileQueue
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.log.scan import End

logger = logging.getLogger(__name__)

COPY_STEP = 1 << 20


class CutTail(msgspec.Struct, frozen=True):
    """Bytes taken off the end of the log, and where they are kept."""

    log_offset: int
    size: int
    kept: str
    reason: str


def cut(files: FileQueue, end: End, used_end: int | None, paths: StorePaths) -> tuple[CutTail, ...]:
    """Take off everything behind the end, keeping copies of the bytes that are not zero. Raises OSError.

    ``used_end`` is the log offset behind the last byte that is not zero; None: it is to be looked for.

    It cuts copies first, then whole files from the last one back, then the rest of one file. Wherever a crash stops it,
    the next start finds the same end.
    """
    log_end, reason = end.log_offset, end.reason or "bytes after the end of the log"
    behind = [file for file in files.files if file.end > log_end]
    ends = [file.used() if used_end is None else min(used_end - file.start, file.size) for file in behind]
    starts = [max(0, log_end - file.start) for file in behind]
    over = [(file, at, used) for file, at, used in zip(behind, starts, ends, strict=True) if used > at]
    cuts = tuple(_keep(file, at, used, paths, reason) for file, at, used in over)
    # the name of the first file says where the log begins when earlier ones have expired, so it stays, even empty
    gone_from = log_end + 1 if log_end == files.start > 0 else log_end
    files.remove_from(gone_from)
    for file, at, used in over:
        if file.start < gone_from:
            file.clear(at, used)
    return cuts


def _keep(file: MappedFile, at: int, used: int, paths: StorePaths, reason: str) -> CutTail:
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
    return CutTail(log_offset, used - at, kept, reason)
