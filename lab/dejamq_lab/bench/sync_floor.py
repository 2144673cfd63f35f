"""What no program can beat that answers when the disk has it: one fdatasync and one round trip for each group."""

import os
import statistics
import tempfile
import time

from dejamq_lab.bench.result import Load

SYNCS = 40


def sync_floor(load: Load, round_trip_ms: float, directory: str | None) -> dict[str, float]:
    """``fdatasync_ms`` and ``sync_floor_per_second``, on the disk of that folder.

    The floor is that of a group commit: while one group is written, as many senders as there are wait for the next.
    """
    senders = {"single": 1, "await": load.concurrency}.get(load.mode, load.batch_size)
    sync_ms = fdatasync_ms(load.body_bytes * senders, directory)
    return {
        "fdatasync_ms": round(sync_ms, 3),
        "sync_floor_per_second": round(senders / (sync_ms + round_trip_ms) * 1000, 1),
    }


def fdatasync_ms(group_bytes: int, directory: str | None) -> float:
    """The median time (ms) of making the bytes of one group durable, in a file that has its blocks as a log has."""
    data, times = os.urandom(group_bytes), []
    with tempfile.TemporaryFile(dir=directory) as file:
        os.write(file.fileno(), b"\0" * group_bytes * SYNCS)
        os.fsync(file.fileno())
        for number in range(SYNCS):
            os.pwrite(file.fileno(), data, number * group_bytes)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)
