"""Appending: runs of 64 to one queue and to four, and one by one, into warm pages and into cold ones.

Warm: the file's pages were written before, as the store itself does with the file after the last one. Cold: the first
touch of each page is in the figure. Asynchronous flush, one thread. The queue entries are in the figure, unless it is
said to be of the log alone.
"""

import argparse

from dejamq_broker.store import AppendRun, StoreConfig
from store_common import Took, arguments, folder, make_run, opened, rates, report, timed, warm_first_file

CASES = {
    "runs of 64, one queue": (64, 1, True),
    "runs of 64, four queues": (64, 4, True),
    "one by one": (1, 1, True),
    "one by one, the log alone": (1, 1, False),
}
"""Records a run, queues, whether queue entries are made."""


def main() -> None:
    options = arguments(__doc__, messages=100_000, index=0)
    found: dict[str, list[tuple[float, Took]]] = {}
    for _ in range(options.rounds):
        for name, (count, queues, queued) in CASES.items():
            for pages in ("warm", "cold"):
                measured = append(
                    options, make_run(count, options.body_bytes, queues), warm=pages == "warm", queued=queued
                )
                found.setdefault(f"append {name}, {pages} pages", []).append(measured)
    report(rates(found, "messages"), options.directory, options.output)


def append(options: argparse.Namespace, run: AppendRun, *, warm: bool, queued: bool) -> tuple[int, Took]:
    """How many messages were appended, and what it took."""
    count = len(run.run)
    turns = max(1, options.messages // count)
    size = -(-(len(run.run.data) * (turns + 1) + 4096) >> 20) << 20
    config = StoreConfig(mapped_file_size_commit_log=size, message_index_enable=bool(options.index))
    with folder(options.directory) as path, opened(path, config) as store:
        if warm:
            warm_first_file(store)
        store.append_run(run)
        append_run = store.append_run
        if not queued:
            append_run, store._appender.hand_over = store._appender.append_run, lambda batch: None

        def append_all() -> None:
            for _ in range(turns):
                append_run(run)

        return turns * count, timed(append_all)


if __name__ == "__main__":
    main()
