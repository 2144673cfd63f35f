"""Opening a store again from the page cache: after a clean stop, after a crash with its mark, and without any mark.

Without a mark the whole log is walked, each body's CRC checked, and all queue entries made again. The walk and the
making of entries are measured alone as well. ``--walk 0`` leaves out what looks at the whole log.
"""

import contextlib
from functools import partial
from pathlib import Path

from dejamq_broker.store import StoreConfig
from dejamq_broker.store.files.file_queue import FileQueue
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.log.batch import QueueTable
from dejamq_broker.store.log.entries import batch_of
from dejamq_broker.store.log.scan import FoundRecords, LogFiles, walk
from dejamq_broker.store.queues.consume_queues import ConsumeQueues
from store_common import Figure, Took, arguments, fill, folder, make_run, opened, rates, report, timed

GIB = 1 << 30


def main() -> None:
    options = arguments(__doc__, log_mib=1024, file_mib=256, walk=1)
    config = StoreConfig(mapped_file_size_commit_log=options.file_mib << 20, message_index_enable=False)
    figures: list[Figure] = []
    with folder(options.directory) as path:
        with opened(path, config) as store:
            fill(store, make_run(64, options.body_bytes, 4), options.log_mib << 20)
            gib = store.log_max / GIB
        ways = [
            (f"clean reopen of {gib:.1f} GiB", False, False),
            ("reopen after a crash, with the mark", True, False),
            ("reopen after a crash, all walked", True, True),
        ]
        for what, crashed, unmarked in ways if options.walk else ways[:2]:
            took = [reopen(path, config, crashed=crashed, unmarked=unmarked) for _ in range(options.rounds)]
            figures.append(Figure.of(what, [each.wall_s * 1000 for each in took], "ms"))
            figures.append(Figure.of(f"{what}, core time", [each.core_s * 1000 for each in took], "ms"))
        if options.walk:
            figures += walks(path, config, options.rounds)
    report(figures, options.directory, options.output)


def reopen(path: Path, config: StoreConfig, *, crashed: bool, unmarked: bool) -> Took:
    """Opening alone; closing is not in it."""
    paths = StorePaths(path)
    if crashed:
        paths.abort.write_text("1")
    if unmarked:
        paths.progress.unlink()
        paths.checkpoint.unlink()
    with contextlib.ExitStack() as stack:
        return timed(lambda: stack.enter_context(opened(path, config)))


def walks(path: Path, config: StoreConfig, rounds: int) -> list[Figure]:
    """The parts of a recovery: walking with and without CRC, and making the entries of all queues in memory."""
    files = FileQueue(StorePaths(path).commit_log, config.mapped_file_size_commit_log)
    files.load()
    extent = LogFiles(files.start, files.end, files.file_size)

    def walk_all(*, check_crc: bool, feed: bool = False) -> tuple[int, int]:
        table = QueueTable()
        queues = ConsumeQueues(StorePaths(path / "nowhere"), config.mapped_file_size_consume_queue, table)
        count = size = 0
        for piece in walk(files.view, extent, extent.start, check_crc=check_crc):
            if isinstance(piece, FoundRecords):
                count, size = count + len(piece.sizes), size + len(piece.data)
                if feed:
                    queues.dispatch(batch_of(piece, table.number_of, config.delay_levels_ms))
        return count, size

    count, size = walk_all(check_crc=False)
    sizes: dict[str, list[tuple[float, Took]]] = {}
    counts: dict[str, list[tuple[float, Took]]] = {}
    for _ in range(rounds):
        for what, check_crc in (("walk, CRC checked", True), ("walk, bodies unread", False)):
            sizes.setdefault(what, []).append((size / GIB, timed(partial(walk_all, check_crc=check_crc))))
        took = timed(partial(walk_all, check_crc=False, feed=True))
        counts.setdefault("walk, and entries for four queues", []).append((count, took))
    files.close()
    return rates(sizes, "GiB") + rates(counts, "messages")


if __name__ == "__main__":
    main()
