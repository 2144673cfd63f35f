"""How fast the log becomes queues and index: ``.venv/bin/python benchmarks/store_reput.py``.

A store of 1 KiB bodies, each message with a UNIQ_KEY and one key, is written once and then read back from the page
cache, round after round: bare (every byte copied, nothing else), into queues, and into queues and index. The rates
depend on the machine and its mood, so each round does all three, and the medians' ratio to the bare copy is told too.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from dejamq_broker.store.append import AppendRun
from dejamq_broker.store.batch import QueueTable
from dejamq_broker.store.commit_log import CommitLog
from dejamq_broker.store.config import StoreConfig
from dejamq_broker.store.consume_queues import ConsumeQueues
from dejamq_broker.store.entries import batch_of
from dejamq_broker.store.index import Index
from dejamq_broker.store.index_file import Shape
from dejamq_broker.store.log_scan import Extent, Found, walk
from dejamq_broker.store.message_store import MessageStore
from dejamq_broker.store.paths import StorePaths
from dejamq_proto.record import Outgoing
from dejamq_proto.run import parse

RUN = 64
QUEUES = 4
HOST = (0x7F000001, 10911)
COPY_STEP = 4 << 20
CONFIG = StoreConfig(message_index_enable=False)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def fill(store: MessageStore, count: int, body_bytes: int) -> None:
    """``count`` messages in runs, spread over the queues of one topic."""
    template, body = Outgoing.to("Orders"), b"." * body_bytes
    keys = [("Orders", queue_id) for queue_id in range(QUEUES)]
    for first in range(0, count, RUN):
        raw = [
            template.encode(
                number % QUEUES, 5, body, f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01order-{number}\x02".encode()
            )
            for number in range(first, min(first + RUN, count))
        ]
        key_index = np.arange(first, first + len(raw)) % QUEUES
        run = parse(b"".join(raw), np.array([len(record) for record in raw]))
        store.append_run(AppendRun(run, keys, key_index, np.zeros(len(raw), np.int64), HOST, HOST))


def pieces(log: CommitLog) -> Iterator[Found]:
    extent = Extent(log.min_offset, log.max_offset, log.files.file_size)
    for piece in walk(log.read, extent, log.min_offset, check_crc=False):
        if isinstance(piece, Found):
            yield piece


def bare(log: CommitLog, _: Path) -> None:
    """Every byte copied once: what the memory gives."""
    for at in range(log.min_offset, log.max_offset, COPY_STEP):
        log.read(at, COPY_STEP)


def into_queues(log: CommitLog, directory: Path, index: Index | None = None) -> None:
    table = QueueTable()
    queues = ConsumeQueues(StorePaths(directory), CONFIG.mapped_file_size_consume_queue, table)
    for number, found in enumerate(pieces(log)):
        queues.dispatch(batch_of(found, table.number_of, CONFIG.delay_levels_ms))
        if index is not None:
            index.dispatch(found)
        if number % 64 == 0:
            queues.write_out()
    queues.write_out()


def into_queues_and_index(log: CommitLog, directory: Path) -> None:
    index = Index(StorePaths(directory), Shape(CONFIG.max_hash_slot_num, CONFIG.max_index_num), now_ms)
    into_queues(log, directory, index)


WAYS: dict[str, Callable[[CommitLog, Path], None]] = {
    "bare copy": bare,
    "queues": into_queues,
    "queues and index": into_queues_and_index,
}


class Taken(NamedTuple):
    """Seconds of the clock, and of this process on a core: the same on a machine that does nothing else."""

    wall: float
    cpu: float


def measure(log: CommitLog, rounds: int) -> dict[str, Taken]:
    """Medians of each way; they take turns, and each round has fresh folders."""
    taken: dict[str, list[Taken]] = {name: [] for name in WAYS}
    for _ in range(rounds + 1):
        for name, way in WAYS.items():
            with tempfile.TemporaryDirectory() as directory:
                wall, cpu = time.perf_counter(), time.process_time()
                way(log, Path(directory))
                taken[name].append(Taken(time.perf_counter() - wall, time.process_time() - cpu))
    # the first round warms the page cache
    return {name: Taken(*map(statistics.median, zip(*each[1:], strict=True))) for name, each in taken.items()}


def rows(medians: dict[str, Taken], messages: int, size: int) -> list[dict[str, float | str]]:
    least = medians["bare copy"].cpu
    return [
        {
            "what": name,
            "messages_per_second": round(messages / taken.wall),
            "messages_per_cpu_second": round(messages / taken.cpu),
            "mib_per_cpu_second": round(size / taken.cpu / (1 << 20)),
            "bare_copies": round(taken.cpu / least, 1),
        }
        for name, taken in medians.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast the log becomes queues and index.")
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        store = MessageStore.open(directory, CONFIG, clock_ms=now_ms)
        try:
            fill(store, options.messages, options.body_bytes)
            found = rows(measure(store._log, options.rounds), options.messages, store.log_max)
        finally:
            store.close()
    if options.output == "json":
        print(json.dumps({"messages": options.messages, "rounds": options.rounds, "rows": found}))
        return
    print(f"{'':18}{'messages/s':>12}{'per CPU s':>12}{'MiB per CPU s':>15}{'bare copies':>13}")
    for row in found:
        what, *numbers = row.values()
        print(f"{what:18}" + "".join(f"{n:>{w},}" for n, w in zip(numbers, (12, 12, 15, 13), strict=True)))


if __name__ == "__main__":
    main()
