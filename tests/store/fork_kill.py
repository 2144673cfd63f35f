"""A process that appends with SYNC_FLUSH, tells what it was promised, and is killed; again and again on one directory.

Killing a process tests what is torn between two instructions, not what the disk lost: for that see ``power_loss.py``.
"""

import multiprocessing
import multiprocessing.forkserver
import os
import random
import shutil
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from unittest import mock

import msgspec
from dejamq_broker.store import SYNC_FLUSH, MessageStore, StoreConfig
from store_making import Message, records_of, run_of

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=1000, flush_disk_type=SYNC_FLUSH,
    flush_interval_consume_queue_ms=20, max_hash_slot_num=97, max_index_num=300,
)  # fmt: skip
QUEUES = 3
OUTSTANDING = 4
LONGEST_LIFE_S = 0.15
OPENING = 0.3
"""So often the time to the kill runs from the beginning of the start, else from the first acknowledgement."""
CHECK_EVERY = 10
_forking = multiprocessing.get_context("forkserver")
ACKNOWLEDGED = struct.Struct(">iiq")
"""Number of the message, queue id, queue offset: one write to a pipe, so never told in part."""
BEGUN = b""
"""The first line of a process: the store is about to open."""


class Told(msgspec.Struct):
    """What the killed processes were promised: the message number by (queue id, queue offset)."""

    acknowledged: dict[tuple[int, int], int] = {}
    kills: int = 0
    kills_while_opening: int = 0


def killed_again_and_again(directory: Path, kills: int, seed: int, progress: Callable[[Told], None]) -> Told:
    """Kill that many processes at random moments. Raises AssertionError when something promised is not there."""
    rng, told = random.Random(seed), Told()
    _start_fork_server()
    for number in range(1, kills + 1):
        before = len(told.acknowledged)
        _one_life(directory, number, rng.uniform(0, LONGEST_LIFE_S), told, opening=rng.random() < OPENING)
        told.kills = number
        told.kills_while_opening += len(told.acknowledged) == before
        if number % CHECK_EVERY == 0 or number == kills:
            check(directory, told)
        progress(told)
    return told


def check(directory: Path, told: Told) -> None:
    """A copy of the directory opens with all that was promised, nothing twice, and no gap."""
    copy = directory.with_name("copy")
    shutil.copytree(directory, copy)
    store = MessageStore.open(copy, CONFIG, clock_ms=_now_ms)
    try:
        assert not store.recovery.damages
        everything: dict[tuple[int, int], int] = {}
        for queue_id in range(QUEUES):
            records = records_of(store, "T", queue_id)
            assert [record.queue_offset for record in records] == list(range(len(records))), "queue offsets have gaps"
            everything |= {(queue_id, record.queue_offset): _number(record.body) for record in records}
        assert len(set(everything.values())) == len(everything), "a message is there twice"
        missing = told.acknowledged.items() - everything.items()
        assert not missing, f"acknowledged, and not there: {sorted(missing)[:5]}"
    finally:
        store.close()
        shutil.rmtree(copy)


def _start_fork_server() -> None:
    """Processes are forked from one that has imported everything, and that runs no thread."""
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        _forking.set_forkserver_preload(["fork_kill"])
        multiprocessing.forkserver.ensure_running()


def _one_life(directory: Path, life: int, seconds: float, told: Told, *, opening: bool) -> None:
    ours, theirs = _forking.Pipe(duplex=False)
    process = _forking.Process(target=append_until_killed, args=(directory, life, theirs))
    process.start()
    theirs.close()
    assert process.pid is not None
    assert ours.recv_bytes() == BEGUN
    timer = threading.Timer(seconds, os.kill, (process.pid, signal.SIGKILL))
    if opening:
        timer.start()
    while True:
        try:
            number, queue_id, queue_offset = ACKNOWLEDGED.unpack(ours.recv_bytes())
        except (EOFError, OSError):
            break
        assert (queue_id, queue_offset) not in told.acknowledged, "a queue offset was given out twice"
        told.acknowledged[queue_id, queue_offset] = number
        if timer.ident is None:
            timer.start()
    process.join()
    if timer.ident is not None:
        timer.join()
    ours.close()
    assert process.exitcode == -signal.SIGKILL, f"the process ended by itself: {process.exitcode}"


def append_until_killed(directory: Path, life: int, pipe: Connection) -> None:
    """What the process does. Acknowledgements are told by the store's flush thread, appends go on meanwhile."""
    pipe.send_bytes(BEGUN)
    store = MessageStore.open(directory, CONFIG, clock_ms=_now_ms)
    rng, room, number = random.Random(life), threading.Semaphore(OUTSTANDING), life << 20
    while True:
        room.acquire()
        run: list[Message] = []
        for _ in range(rng.choice((1, 1, 5, 40))):
            run.append(("T", rng.randrange(QUEUES), b"%d." % number + b"." * rng.randrange(900)))
            number += 1
        appended = store.append_run(run_of(run))
        told = [
            ACKNOWLEDGED.pack(_number(body), queue_id, queue_offset)
            for (_, queue_id, body), queue_offset in zip(run, appended.queue_offsets.tolist(), strict=True)
        ]

        def acknowledge(promise: "Future[None]", told: list[bytes] = told) -> None:
            promise.result()
            for line in told:
                pipe.send_bytes(line)
            room.release()

        store.durable(appended.end_log_offset).add_done_callback(acknowledge)


def _number(body: bytes) -> int:
    return int(body.partition(b".")[0])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
