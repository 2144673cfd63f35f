"""From the log to queues and index: how fast records become entries that somebody can look up.

Messages of one topic with four queues, each with its own UNIQ_KEY and key, are written once and read back from the page
cache, as at a start, by the reput thread and for a query. They go into queues, into queues and index, and into the
index alone.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from dejamq_broker.store import AppendRun, StoreConfig
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.index.file import IndexShape
from dejamq_broker.store.index.index import Index
from dejamq_broker.store.log.batch import QueueTable
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_broker.store.log.entries import batch_of
from dejamq_broker.store.log.scan import FoundRecords, LogFiles, walk
from dejamq_broker.store.queues.consume_queues import ConsumeQueues
from dejamq_proto.records.record import Outgoing
from dejamq_proto.records.run import parse
from store_common import TOPIC, Took, arguments, folder, make_run, opened, rates, report, timed, wall_ms

RUN = 64
QUEUES = 4
CONFIG = StoreConfig(message_index_enable=False)
Take = Callable[[FoundRecords], None]


def main() -> None:
    options = arguments(__doc__, messages=250_000)
    found: dict[str, list[tuple[float, Took]]] = {}
    with folder(options.directory) as path, opened(path / "store", CONFIG) as store:
        template = make_run(RUN, options.body_bytes, QUEUES)
        for first in range(0, options.messages, RUN):
            count = min(RUN, options.messages - first)
            store.append_run(keyed(template, first, count, options.body_bytes))
        # the first round, which makes everything warm, does not count
        for number in range(options.rounds + 1):
            for what, take in ways(path / f"round-{number}").items():
                took = timed(partial(walk_all, store._log, take))
                if number:
                    found.setdefault(what, []).append((options.messages, took))
    report(rates(found, "messages"), options.directory, options.output)


def ways(path: Path) -> dict[str, Take]:
    """What to do with records, each way with folders of its own."""
    queues, index = into_queues(path / "queues"), into_index(path / "index")
    more_queues, more_index = into_queues(path / "both"), into_index(path / "both")

    def into_both(piece: FoundRecords) -> None:
        more_queues(piece)
        more_index(piece)

    return {"queues": queues, "queues and index": into_both, "index": index}


def into_queues(path: Path) -> Take:
    table = QueueTable()
    queues = ConsumeQueues(StorePaths(path), CONFIG.mapped_file_size_consume_queue, table)
    return lambda piece: queues.dispatch(batch_of(piece, table.number_of, CONFIG.delay_levels_ms))


def into_index(path: Path) -> Take:
    return Index(StorePaths(path), IndexShape(CONFIG.max_hash_slot_num, CONFIG.max_index_num), wall_ms).dispatch


def walk_all(log: CommitLog, take: Take) -> None:
    extent = LogFiles(log.min_offset, log.max_offset, log.files.file_size)
    for piece in walk(log.view, extent, extent.start, check_crc=False):
        if isinstance(piece, FoundRecords):
            take(piece)


def keyed(run: AppendRun, first: int, count: int, body_bytes: int) -> AppendRun:
    """The run with a unique key and a key of its own in each record."""
    outgoing, body = Outgoing.to(TOPIC), b"." * body_bytes
    records = [
        outgoing.encode(
            number % QUEUES,
            1,
            body,
            f"UNIQ_KEY\x01{number:032X}\x02TAGS\x01paid\x02KEYS\x01order-{number}\x02".encode(),
        )
        for number in range(first, first + count)
    ]
    return msgspec.structs.replace(
        run,
        run=parse(b"".join(records), np.array([len(record) for record in records])),
        key_index=run.key_index[:count],
        tags_codes=run.tags_codes[:count],
    )


if __name__ == "__main__":
    main()
