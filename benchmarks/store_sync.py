"""SYNC_FLUSH: writers on one event loop that wait for the disk after each message, as a broker's clients do.

Those that come while one ``fdatasync`` runs share the next, so the messages an ``fdatasync`` carries grow with the
writers.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator

from dejamq_broker.store import SYNC_FLUSH, AppendRun, MessageStore, StoreConfig
from store_common import Figure, arguments, folder, make_run, opened, report

WRITERS = (1, 8, 64)


def main() -> None:
    options = arguments(__doc__, millis=1000)
    found: dict[tuple[str, str], list[float]] = {}
    run = make_run(1, options.body_bytes)
    config = StoreConfig(mapped_file_size_commit_log=64 << 20, flush_disk_type=SYNC_FLUSH, message_index_enable=False)
    for _ in range(options.rounds):
        for writers in WRITERS:
            with folder(options.directory) as path, opened(path, config) as store, counted_syncs() as syncs:
                began = time.perf_counter()
                count = asyncio.run(write(store, run, writers, options.millis / 1000))
                took = time.perf_counter() - began
            what = f"sync flush, {writers} waiting"
            found.setdefault((what, "messages/s"), []).append(count / took)
            found.setdefault((what, "fdatasyncs/s"), []).append(len(syncs) / took)
            found.setdefault((what, "messages a sync"), []).append(count / len(syncs))
    figures = [Figure.of(what, values, unit) for (what, unit), values in found.items()]
    report(figures, options.directory, options.output)


async def write(store: MessageStore, run: AppendRun, writers: int, for_s: float) -> int:
    """Answers how many messages were on disk when their writer went on."""
    deadline = time.perf_counter() + for_s

    async def writer() -> int:
        count = 0
        while time.perf_counter() < deadline:
            await asyncio.wrap_future(store.durable(store.append_run(run).end_log_offset))
            count += 1
        return count

    return sum(await asyncio.gather(*(writer() for _ in range(writers))))


@contextlib.contextmanager
def counted_syncs() -> Iterator[list[int]]:
    """Collects the descriptor of each ``os.fdatasync`` meanwhile."""
    real, calls = os.fdatasync, list[int]()

    def counting(descriptor: int) -> None:
        calls.append(descriptor)
        real(descriptor)

    os.fdatasync = counting  # type: ignore[assignment]  # its parameter may be a file object too
    try:
        yield calls
    finally:
        os.fdatasync = real


if __name__ == "__main__":
    main()
