"""SYNC_FLUSH: writers on one event loop that wait for the disk after each message, as a broker's clients do.

Those that come while one ``fdatasync`` runs share the next, so the messages an ``fdatasync`` carries grow with the
writers. "In the loop": the loop syncs itself (``sync_flush_in_event_loop``), which costs less and stops it for as long.
Both ways take turns.
"""

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path

from dejamq_broker.store import SYNC_FLUSH, AppendRun, MessageStore, StoreConfig
from dejamq_broker.store.log.sync import WAKING_S
from store_common import Figure, arguments, folder, make_run, report, wall_ms

WRITERS = (1, 8, 64)
IN_LOOP = "in the loop"
WHERE = ("by the thread", IN_LOOP)


def main() -> None:
    options = arguments(__doc__, millis=1000)
    found: dict[tuple[str, str], list[float]] = {}
    run = make_run(1, options.body_bytes)
    config = StoreConfig(mapped_file_size_commit_log=64 << 20, flush_disk_type=SYNC_FLUSH, message_index_enable=False)
    for _ in range(options.rounds):
        for writers in WRITERS:
            for where in WHERE:
                chosen = dataclasses.replace(config, sync_flush_in_event_loop=where == IN_LOOP)
                with folder(options.directory) as path, counted_syncs() as syncs:
                    count, took = asyncio.run(measured(path, chosen, run, writers, options.millis / 1000, syncs))
                what = f"sync flush, {writers} waiting, {where}"
                found.setdefault((what, "messages/s"), []).append(count / took)
                found.setdefault((what, "fdatasyncs/s"), []).append(len(syncs) / took)
                found.setdefault((what, "messages a sync"), []).append(count / len(syncs))
    figures = [Figure.of(what, values, unit) for (what, unit), values in found.items()]
    report(figures, options.directory, options.output)


async def measured(
    path: Path, config: StoreConfig, run: AppendRun, writers: int, for_s: float, syncs: list[int]
) -> tuple[int, float]:
    """How many messages, and in how many seconds. The first second is not counted: a loop syncs nothing then."""
    store = MessageStore.open(path, config, clock_ms=wall_ms, soon=asyncio.get_running_loop().call_soon)
    try:
        await write(store, run, writers, WAKING_S)
        syncs.clear()
        began = time.perf_counter()
        count = await write(store, run, writers, for_s)
        return count, time.perf_counter() - began
    finally:
        await asyncio.to_thread(store.close)


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
