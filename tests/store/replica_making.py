"""Two stores that must be the same, byte by byte, and a way to copy one into the other."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from dejamq_broker.store import MessageStore, SlaveStore, StoreConfig
from dejamq_broker.store.queues.consume_queue import CHUNK
from dejamq_broker.store.queues.entry_files import FILLER_SIZE
from store_making import OPENED, SMALL, ticking


def open_replica(directory: Path, config: StoreConfig = SMALL) -> SlaveStore:
    """As ``open_small`` opens a master's."""
    store = SlaveStore.open(directory, config, clock_ms=ticking())
    OPENED.append(store)
    return store


def slices(
    master: MessageStore, log_offset: int, rng: random.Random, largest: int = 5000
) -> Iterator[tuple[int, bytes]]:
    """The rest of the master's log in pieces of any size, each of one file as a master reads them."""
    while data := bytes(master.copy.recent(log_offset, rng.randint(1, largest))):
        yield log_offset, data
        log_offset += len(data)


def copy_all(master: MessageStore, slave: SlaveStore, seed: int = 0, damaged: Sequence[tuple[int, int]] = ()) -> None:
    """As one connection would, from where the slave's log ends to where the master's does."""
    for log_offset, data in slices(master, slave.begin_copy(damaged), random.Random(seed)):
        slave.take_copy(log_offset, data)


def assert_same(master: MessageStore, slave: MessageStore) -> None:
    """Log and queues agree from where the slave's begin, and end at the same place."""
    assert slave.log_max == master.log_max
    at = max(slave.log_min, master.log_min)
    while at < slave.log_max:
        data = slave.copy.from_disk(at, 1 << 20)
        assert data == master.copy.from_disk(at, len(data)), f"the logs differ in the {len(data)} bytes from {at} on"
        at += len(data)
    assert {key for key in slave.queues() if slave.max_offset(*key)} <= set(master.queues())
    for topic, queue_id in master.queues():
        _assert_same_queue(master, slave, topic, queue_id)


def _assert_same_queue(master: MessageStore, slave: MessageStore, topic: str, queue_id: int) -> None:
    theirs, mine = master.inspect().queues.get((topic, queue_id)), slave.inspect().queues.get((topic, queue_id))
    assert theirs is not None
    name = f"{topic}-{queue_id}"
    if mine is None:
        entries = theirs.entries(theirs.min_offset, theirs.max_offset - theirs.min_offset)
        assert not (entries["log_offset"] >= slave.log_min).any(), f"{name} is missing"
        return
    at = max(mine.min_offset, theirs.min_offset)
    if at > theirs.min_offset:
        before = theirs.entries(theirs.min_offset, at - theirs.min_offset)
        later = (before["log_offset"] >= slave.log_min) & (before["size"] != FILLER_SIZE)
        assert not later.any(), f"{name} begins at {mine.min_offset}, and records before it are in the log"
    assert mine.max_offset == theirs.max_offset or mine.max_offset == 0 == theirs.max_offset - at, name
    while at < mine.max_offset:
        count = min(CHUNK, mine.max_offset - at)
        assert (mine.entries(at, count) == theirs.entries(at, count)).all(), f"{name} differs from {at} on"
        at += count
