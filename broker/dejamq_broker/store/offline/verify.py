"""``dejamq store verify DIR``: is a store whole, ours or a real RocketMQ's? Offline, and it changes nothing.

It reads the whole log once and compares everything that is derived from it. Memory is constant but for one index file
and one number a queue.
"""

import argparse
import sys
import time
from collections.abc import Iterator

import msgspec
from dejamq_proto.standard_output import OutputFailed, run
from dejamq_proto.texts import printable

from dejamq_broker.store.files.config import StoreConfig
from dejamq_broker.store.files.errors import StoreError
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.index.file import IndexShape
from dejamq_broker.store.index.trust import KnownLog
from dejamq_broker.store.log.scan import LogFiles
from dejamq_broker.store.log.start_point import stored_at
from dejamq_broker.store.offline.at_rest import DataFiles, NoStore, QueueFiles, commit_log, owner_lives, queue_files
from dejamq_broker.store.offline.findings import (
    BAD_USE,
    CANNOT_TELL,
    DAMAGED,
    INTERRUPTED,
    WHOLE,
    Severity,
    StoreFinding,
    close_stdout,
)
from dejamq_broker.store.offline.verify_files import (
    check_checkpoint,
    check_config,
    check_deletions,
    check_marks,
    check_owner,
    topics_of,
)
from dejamq_broker.store.offline.verify_index import IndexCheck
from dejamq_broker.store.offline.verify_log import LogCheck, Progress
from dejamq_broker.store.queues.deleted import DeletedTopics
from dejamq_broker.store.queues.unsupported import refuse_unsupported

TOLD_EVERY_S = 0.5
WIPE = "\r\x1b[K"


class VerifyReport(msgspec.Struct):
    """The result of verify; ``verdict`` is whole, damaged or cannot tell."""

    directory: str
    verdict: str = "whole"
    records: int = 0
    queues: int = 0
    index_entries: int = 0
    log_start: int = 0
    log_end: int = 0
    findings: list[StoreFinding] = []

    def judge(self, *, in_use: bool) -> None:
        damaged = any(finding.severity == Severity.DAMAGE for finding in self.findings)
        if damaged:
            # records that a running broker has only in memory look like damage
            self.verdict = "cannot tell" if in_use else "damaged"

    @property
    def status(self) -> int:
        return {"whole": WHOLE, "damaged": DAMAGED}.get(self.verdict, CANNOT_TELL)


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 whole, 1 damaged, 2 bad use, 3 cannot tell."""
    options = _parser().parse_args(arguments)
    try:
        report = (
            _watched(StorePaths(options.directory)) if sys.stderr.isatty() else verify(StorePaths(options.directory))
        )
    except NoStore as error:
        print(f"dejamq store verify: {error}", file=sys.stderr)
        return BAD_USE
    except (StoreError, OSError) as error:
        print(f"dejamq store verify: cannot read the store: {error}", file=sys.stderr)
        return CANNOT_TELL
    except KeyboardInterrupt:
        return INTERRUPTED
    try:
        as_json = options.output == "json"
        for line in [msgspec.json.encode(report).decode()] if as_json else map(printable, _lines(report)):
            print(line)
        sys.stdout.flush()
    except (BrokenPipeError, OutputFailed):
        close_stdout()
    return report.status


def _silent(done: int, in_all: int) -> None:
    """Nobody watches."""


def verify(paths: StorePaths, progress: Progress = _silent) -> VerifyReport:
    """Look at everything. Raises NoStore for a directory without a store, StoreError for files of a kind that is not
    supported, OSError for files that cannot be read.
    """
    files = commit_log(paths)
    refuse_unsupported(paths)
    in_use = owner_lives(paths)
    killed = in_use or paths.abort.exists()
    queues = list(queue_files(paths))
    size = max((queue.files.size for queue in queues if queue.files.lengths), default=6_000_000)

    topics = topics_of(paths.topics)

    def new_queue(topic: str, queue_id: int) -> QueueFiles | None:
        if topics is not None and topic not in topics:
            return None
        return QueueFiles(topic, queue_id, DataFiles(paths.consume_queue(topic, queue_id), size))

    config = StoreConfig()
    lives = DeletedTopics(paths.deleted)
    log = LogCheck(files, queues, new_queue, lives, config.delay_levels_ms, progress)
    shape = IndexShape(config.max_hash_slot_num, config.max_index_num)
    extent = LogFiles(log.start, max(files.lengths, default=0) + files.size, files.size)
    origin = KnownLog(extent.start, extent.end, not killed, stored_at(files.read, extent))
    index = IndexCheck(paths.index, shape, log.tally, origin)
    if index.open():
        log.others.append(index.feed)
    log.run(killed=killed)
    index.finish(log.end)
    report = VerifyReport(str(paths.root), "whole", log.records, log.queues(), index.entries, log.start, log.end)
    report.findings = [
        *check_owner(paths, lives=in_use), *log.tally,
        *check_checkpoint(paths.checkpoint, log.last_store_timestamp_ms), *check_marks(paths, log.end),
        *check_deletions(paths.deleted, log.end, killed=killed),
        *check_config(paths.root / "config"),
    ]  # fmt: skip
    report.judge(in_use=in_use)
    return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dejamq store verify",
        description="Is a store whole, ours or a real RocketMQ's? Reads all of it, changes nothing, needs no broker.",
        epilog="Exit status: 0 whole, 1 damaged, 2 bad use, 3 cannot tell (in use, or not readable).",
    )
    parser.add_argument("directory", help="the store: the folder that holds commitlog/")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


def _lines(report: VerifyReport) -> Iterator[str]:
    for finding in report.findings:
        yield finding.text
    yield (
        f"{report.verdict}: {report.records} records in {report.queues} queues, {report.index_entries} index entries, "
        f"log {report.log_start}..{report.log_end}"
    )


def _watched(paths: StorePaths) -> VerifyReport:
    """Tells a terminal how far the log is read, twice a second, on one line that is wiped at the end."""
    last = time.monotonic()

    def tell(done: int, in_all: int) -> None:
        nonlocal last
        if time.monotonic() - last >= TOLD_EVERY_S:
            last = time.monotonic()
            print(f"{WIPE}verify: {done / 2**30:.2f} of {in_all / 2**30:.2f} GiB", end="", file=sys.stderr, flush=True)

    try:
        return verify(paths, tell)
    finally:
        print(WIPE, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run("dejamq store verify", main))
