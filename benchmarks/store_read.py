"""Reading a queue from its beginning as a consumer does, and single messages at random, all from the page cache."""

import random
from functools import partial

from dejamq_broker.store import MessageStore, StoreConfig
from store_common import TOPIC, Took, arguments, fill, folder, make_run, opened, rates, report, timed

SEED = 17


def main() -> None:
    options = arguments(__doc__, log_mib=256, reads=20_000)
    found: dict[str, list[tuple[float, Took]]] = {}
    config = StoreConfig(mapped_file_size_commit_log=64 << 20, message_index_enable=False)
    with folder(options.directory) as path, opened(path, config) as store:
        count = fill(store, make_run(64, options.body_bytes), options.log_mib << 20)
        places = random.Random(SEED).choices(range(count), k=options.reads)
        for _ in range(options.rounds):
            for batch in (32, 1024):
                took = timed(partial(read_all, store, batch))
                found.setdefault(f"read in order, {batch} messages a pull", []).append((count, took))
            took = timed(partial(read_some, store, places))
            found.setdefault("read one message at random", []).append((len(places), took))
    report(rates(found, "messages"), options.directory, options.output)


def read_all(store: MessageStore, batch: int) -> None:
    at, end = 0, store.max_offset(TOPIC, 0)
    while at < end:
        at = store.read(TOPIC, 0, at, max_messages=batch, max_bytes=4 << 20).next_offset


def read_some(store: MessageStore, places: list[int]) -> None:
    for place in places:
        store.read(TOPIC, 0, place, max_messages=1)


if __name__ == "__main__":
    main()
