"""What the benchmarks of the store have in common: runs to append, a folder, the machine's own speed, the table.

A rate alone says little on a shared machine. So each program takes the median of its rounds, and measures a memory copy
and a bare ``fdatasync`` beside them. It also tells the rate by processor time: the rate if nobody else wanted the core.
"""

import argparse
import contextlib
import functools
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path

import msgspec
import numpy as np
from dejamq_broker.store import AppendRun, MessageStore, StoreConfig
from dejamq_proto.records.record import Outgoing, encode_properties, tags_code
from dejamq_proto.records.run import parse

TOPIC = "bench"
HOST = (0x7F000001, 10911)
COPY_BYTES = 64 << 20
SYNCS = 20


class Took(msgspec.Struct, frozen=True):
    """Seconds of a piece of work, and those of them in which this thread had a core."""

    wall_s: float
    core_s: float


class Figure(msgspec.Struct, frozen=True):
    """One line of the table: the median over the rounds, and the lowest and highest of them."""

    what: str
    median: float
    low: float
    high: float
    unit: str

    @classmethod
    def of(cls, what: str, values: list[float], unit: str) -> "Figure":
        return cls(what, statistics.median(values), min(values), max(values), unit)


def rates(found: dict[str, list[tuple[float, Took]]], unit: str) -> list[Figure]:
    """Two lines for each name: so many a second, and so many a second of processor time."""
    figures = []
    for what, rounds in found.items():
        figures.append(Figure.of(what, [count / took.wall_s for count, took in rounds], f"{unit}/s"))
        figures.append(Figure.of(f"{what}, by core time", [count / took.core_s for count, took in rounds], f"{unit}/s"))
    return figures


def arguments(description: str | None, **numbers: int) -> argparse.Namespace:
    """Flags of a benchmark: ``numbers`` are its own with their defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, default in ({"rounds": 3, "body_bytes": 1024} | numbers).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="where the store goes")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


def report(figures: list[Figure], directory: Path, output: str) -> None:
    """Print the figures, the machine's own speed last."""
    figures = [*figures, *machine(directory)]
    if output == "json":
        print(json.dumps([msgspec.to_builtins(figure) for figure in figures]))
        return
    width = max(len(figure.what) for figure in figures)
    for figure in figures:
        spread = f"({shown(figure.low)} to {shown(figure.high)})"
        print(f"{figure.what:<{width}}  {shown(figure.median):>10} {figure.unit:<12} {spread}")


def shown(number: float) -> str:
    """Three digits that count, and no more of what is large."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def machine(directory: Path) -> list[Figure]:
    """A memory copy larger than the caches, and a synced write of one page."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.zeros(COPY_BYTES, np.uint8)
    np.copyto(target, source)  # which makes the pages
    copies = [(COPY_BYTES / 2**30, timed(lambda: np.copyto(target, source))) for _ in range(5)]
    with tempfile.TemporaryFile(dir=directory) as file:
        os.posix_fallocate(file.fileno(), 0, 4096 * SYNCS)
        os.fsync(file.fileno())

        def sync(page: int) -> None:
            os.pwrite(file.fileno(), b"x" * 4096, page * 4096)
            os.fdatasync(file.fileno())

        syncs = [timed(functools.partial(sync, page)).wall_s * 1000 for page in range(SYNCS)]
    return [
        *rates({"this machine: memory copy": copies}, "GiB"),
        Figure.of("this machine: fdatasync of a page", syncs, "ms"),
    ]


def timed(work: Callable[[], object]) -> Took:
    wall, core = time.perf_counter(), time.thread_time()
    work()
    return Took(time.perf_counter() - wall, time.thread_time() - core)


def make_run(count: int, body_bytes: int, queues: int = 1) -> AppendRun:
    """Records of one topic, spread over its queues in turn, with the properties that a client sends."""
    properties = encode_properties({"UNIQ_KEY": "7F00000100002A9F0000000000000000", "TAGS": "paid", "KEYS": "order-17"})
    outgoing, body = Outgoing.to(TOPIC), bytes(range(256)) * (body_bytes // 256 + 1)
    queue_ids = np.arange(count) % queues
    records = [outgoing.encode(queue_id, 1, body[:body_bytes], properties) for queue_id in queue_ids.tolist()]
    return AppendRun(
        run=parse(b"".join(records), np.array([len(record) for record in records])),
        keys=[(TOPIC, queue_id) for queue_id in range(queues)], key_index=queue_ids,
        tags_codes=np.full(count, tags_code("paid")), born_host=HOST, store_host=HOST,
    )  # fmt: skip


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@contextlib.contextmanager
def folder(parent: Path) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="dejamq-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextlib.contextmanager
def opened(directory: Path, config: StoreConfig) -> Iterator[MessageStore]:
    store = MessageStore.open(directory, config, clock_ms=wall_ms)
    try:
        yield store
    finally:
        store.close()


def fill(store: MessageStore, run: AppendRun, log_bytes: int) -> int:
    """Append until the log has so many bytes. Answers the number of messages."""
    count = 0
    while store.log_max < log_bytes:
        store.append_run(run)
        count += len(run.key_index)
    return count


def warm_first_file(store: MessageStore) -> None:
    """Have all pages of the first log file made before it is used, which the flush thread would do step by step."""
    flusher = store._flusher
    flusher._next_file.prepare(store.log_max)
    flusher.pages.busy = lambda: False
    while flusher.pages.step(store.log_max, time.monotonic()) < inf:
        pass
