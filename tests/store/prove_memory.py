"""Memory stays flat: a store is written and read far beyond what a process may take. Exit status 1 when it is not.

``python tests/store/prove_memory.py`` writes and reads 10 GiB in files of 4 MiB (and needs that much room), ``--mib``
says otherwise. Counted is what is the process's own (RssAnon: heap, stacks, arrays); pages of mapped files belong to
the page cache and are told apart. The directory is deleted afterwards.
"""

import argparse
import os
import platform
import sys
import tempfile
import time

import msgspec
from dejamq_broker.store import MessageStore, StoreConfig
from dejamq_lab.cluster.usage import memory_mib
from dejamq_proto.records.record import decode
from store_making import run_of

LIMIT_MIB = 200
FILE_MIB = 4
BODY_SIZE = 1024
QUEUES = 16
RUN = 64
CONFIG = StoreConfig(mapped_file_size_commit_log=FILE_MIB << 20, mapped_file_size_consume_queue=20 * 10_000)


class Peak(msgspec.Struct):
    """The most that was seen, in MiB and numbers."""

    own_mib: float = 0
    files_mib: float = 0
    descriptors: int = 0

    def look(self) -> None:
        self.own_mib = max(self.own_mib, memory_mib(os.getpid()))
        self.files_mib = max(self.files_mib, memory_mib(os.getpid(), "RssFile"))
        self.descriptors = max(self.descriptors, len(os.listdir("/proc/self/fd")))


def main() -> int:
    parser = argparse.ArgumentParser(description="Prove that a store's memory stays flat.")
    parser.add_argument("--mib", type=int, default=10 << 10, help="how much to write and read (default 10 GiB)")
    parser.add_argument("--directory", help="where to put the store for the while (default: the system's place)")
    options = parser.parse_args()
    began, peak = time.monotonic(), Peak()
    with tempfile.TemporaryDirectory(prefix="dejamq-memory-", dir=options.directory) as directory:
        store = MessageStore.open(directory, CONFIG, clock_ms=lambda: time.time_ns() // 1_000_000)
        try:
            stored = write(store, options.mib << 20, peak)
            count = read(store, peak)
        finally:
            store.close()
    whole = stored == count
    print(
        f"{options.mib} MiB in files of {FILE_MIB} MiB: {stored} messages written, {count} read; own memory at most "
        f"{peak.own_mib:.0f} MiB (limit {LIMIT_MIB}), mapped file pages {peak.files_mib:.0f} MiB, "
        f"{peak.descriptors} descriptors, {time.monotonic() - began:.0f} s, Python {platform.python_version()}"
    )
    return 0 if whole and peak.own_mib <= LIMIT_MIB else 1


def write(store: MessageStore, size: int, peak: Peak) -> int:
    """Fill the store up to this many bytes. Answers the number of messages."""
    runs = [run_of([("T", queue_id, os.urandom(BODY_SIZE))] * RUN) for queue_id in range(QUEUES)]
    number = 0
    while store.log_max < size:
        store.append_run(runs[number % QUEUES])
        number += 1
        if number % 1000 == 0:
            # as fast as the disk takes it, or the page cache would be the thing that is measured
            store.durable(store.log_max).result()
            peak.look()
    return number * RUN


def read(store: MessageStore, peak: Peak) -> int:
    """Read every queue from its beginning, all queues in turn. Answers how many messages were right."""
    at = dict.fromkeys(range(QUEUES), 0)
    count = turn = 0
    while at:
        for queue_id in list(at):
            result = store.read("T", queue_id, at[queue_id], max_messages=1024, max_bytes=1 << 20)
            if not result.sizes:
                del at[queue_id]
                continue
            first = decode(result.records)
            if (first.queue_id, first.queue_offset) == (queue_id, at[queue_id]):
                count += len(result.sizes)
            at[queue_id] = result.next_offset
        turn += 1
        if turn % 20 == 0:
            peak.look()
    peak.look()
    return count


if __name__ == "__main__":
    sys.exit(main())
