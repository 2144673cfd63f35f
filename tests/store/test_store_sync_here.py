"""With SYNC_FLUSH, who brings the log to disk: the appender itself, where it is a loop and the disk is quick."""

import errno
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from dejamq_broker.store import SYNC_FLUSH, MessageStore, StoreConfig, StoreError
from dejamq_broker.store.files.checkpoint import DispatchProgress
from dejamq_broker.store.files.errors import StoreShort
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.log import sync
from dejamq_broker.store.log.pages_ahead import ZerosAhead
from dejamq_broker.store.log.sync import Quickness
from dejamq_broker.store.queues.consume_queues import ConsumeQueues
from store_making import bodies_of, open_small, run_of, settle, until

SYNC = StoreConfig(
    mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=1000, flush_disk_type=SYNC_FLUSH,
    sync_flush_in_event_loop=True,
)  # fmt: skip
HERE = threading.get_ident()


class Loop:
    """As an event loop: what is to be done soon waits until the appender has nothing else to do."""

    def __init__(self) -> None:
        self.due: deque[Callable[[], None]] = deque()

    def turn(self) -> int:
        """Do what is due; how many things that were."""
        count = len(self.due)
        for _ in range(count):
            self.due.popleft()()
        return count


class Disk:
    """Notes which threads bring a log file to it. Bytes that it loses it tells once, as Linux does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.before: Callable[[], object] = lambda: None
        """What happens before a sync; an error that it raises is the sync's."""
        self._real = MappedFile.sync
        monkeypatch.setattr(MappedFile, "sync", lambda file: self._sync(file))
        monkeypatch.setattr(ZerosAhead, "step", lambda pages, log_end, now: inf)

    def _sync(self, file: MappedFile) -> None:
        self.threads.append(threading.get_ident())
        self.before()
        self._real(file)

    def loses(self) -> None:
        """The next sync's bytes."""
        self.fails_with(errno.EIO, times=1)

    def fails_with(self, number: int, *, times: int = 1_000_000) -> None:
        left = iter(range(times))

        def fail() -> None:
            if next(left, None) is not None:
                raise OSError(number, "a test's error")

        self.before = fail


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(sync, "WAKING_S", 0)
    monkeypatch.setattr(sync, "QUICK_S", 3600)
    return Disk(monkeypatch)


@pytest.fixture
def store(tmp_path: Path, loop: Loop, disk: Disk) -> MessageStore:
    """With one message that is on disk and in its queue."""
    store = open_small(tmp_path, SYNC, soon=loop.due.append)
    append(store, b"first")
    while loop.turn():
        pass
    settle(store)
    disk.threads.clear()
    return store


def append(store: MessageStore, body: bytes) -> int:
    return store.append_run(run_of([("T", 0, body)])).end_log_offset


def test_all_that_a_turn_of_the_loop_appends_is_synced_by_it_at_once(
    store: MessageStore, loop: Loop, disk: Disk
) -> None:
    promises = [store.durable(append(store, body)) for body in (b"a", b"b", b"c")]
    assert not any(promise.done() for promise in promises)
    assert loop.turn() == 1
    assert all(promise.done() for promise in promises)
    assert disk.threads == [HERE]


def test_those_who_wait_are_told_before_the_queues_get_their_entries(store: MessageStore, loop: Loop) -> None:
    promise = store.durable(append(store, b"next"))
    loop.turn()
    assert (promise.done(), store.max_offset("T", 0)) == (True, 1)
    loop.turn()
    assert store.max_offset("T", 0) == 2
    assert bodies_of(store) == [b"first", b"next"]


def test_a_disk_that_was_slow_once_is_the_threads_for_a_while(
    store: MessageStore, loop: Loop, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "QUICK_S", 0)
    monkeypatch.setattr(sync, "REST", 1e9)
    append(store, b"slow")
    while loop.turn():
        pass
    store.durable(append(store, b"slow again")).result(timeout=10)
    assert disk.threads[0] == HERE
    assert HERE not in disk.threads[1:]
    assert not loop.due


def test_the_longer_a_sync_took_the_longer_the_loop_rests() -> None:
    quickness = Quickness(0.0)
    assert (quickness.holds(0.9), quickness.holds(1.0)) == (False, True)
    quickness.note(0.0005, 1.0)
    assert quickness.holds(1.0)
    quickness.note(0.01, 1.0)
    assert (quickness.holds(1.24), quickness.holds(1.26)) == (False, True)
    quickness.note(2, 2.0)
    assert (quickness.holds(51.9), quickness.holds(52.1)) == (False, True)


def test_while_the_thread_syncs_the_loop_goes_on_and_the_thread_syncs_once_more(
    store: MessageStore, loop: Loop, disk: Disk
) -> None:
    started, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        assert go_on.wait(10)

    disk.before = wait
    append(store, b"a")
    store.inspect().flusher.mark_soon()
    assert started.wait(10)
    promise = store.durable(append(store, b"b"))
    loop.turn()
    assert HERE not in disk.threads
    assert not promise.done()
    go_on.set()
    promise.result(timeout=10)


def test_bytes_that_the_loops_sync_has_lost_are_told_to_who_waits_and_end_appends(
    store: MessageStore, loop: Loop, disk: Disk
) -> None:
    promise = store.durable(append(store, b"lost"))
    disk.loses()
    loop.turn()
    with pytest.raises(StoreError, match="a test's error"):
        promise.result(timeout=0)
    with pytest.raises(StoreError, match="a test's error"):
        append(store, b"refused")


def test_a_thread_that_waited_for_the_loops_failed_sync_makes_no_other_one(
    store: MessageStore, loop: Loop, disk: Disk, tmp_path: Path
) -> None:
    """The kernel would say of that one that all is well, and a mark would say that lost bytes are on disk."""
    end = store.log_max

    def lose_while_the_thread_waits() -> None:
        store.inspect().flusher.mark_soon()
        until(lambda: not store.inspect().flusher._mark_wanted)
        disk.loses()
        disk.before()

    promise = store.durable(append(store, b"lost"))
    disk.before = lose_while_the_thread_waits
    loop.turn()
    store.inspect().flusher._thread.join(10)
    assert promise.exception(timeout=0)
    assert disk.threads == [HERE]
    assert store.flushed == end
    assert store.max_offset("T", 0) == 1
    assert (DispatchProgress.load(tmp_path / "dispatched.json") or DispatchProgress()).flushed <= end


def test_what_the_threads_sync_has_lost_is_not_promised_by_the_loops_next_one(
    store: MessageStore, loop: Loop, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, go_on = threading.Event(), threading.Event()
    real = store.inspect().flusher._failed

    def told_late(error: Exception) -> None:
        failed.set()
        assert threading.get_ident() == HERE or go_on.wait(10)
        real(error)

    monkeypatch.setattr(store.inspect().flusher, "_failed", told_late)
    promise = store.durable(append(store, b"lost"))
    disk.loses()
    store.inspect().flusher.mark_soon()
    assert failed.wait(10)
    loop.turn()
    go_on.set()
    with pytest.raises(StoreError, match="a test's error"):
        promise.result(timeout=10)


def test_where_the_loop_finds_no_descriptor_the_thread_tries_again(store: MessageStore, loop: Loop, disk: Disk) -> None:
    promise = store.durable(append(store, b"later"))
    disk.fails_with(errno.EMFILE)
    loop.turn()
    until(lambda: len(disk.threads) > 1)
    assert not promise.done()
    disk.before = lambda: None
    promise.result(timeout=10)
    until(lambda: not store.inspect().flusher.short)


def test_a_sync_that_needs_no_descriptor_does_not_say_that_there_are_some(
    store: MessageStore, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(queues: ConsumeQueues, least_pages: int, between: Callable[[], None]) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(ConsumeQueues, "sync", none_left)
    append(store, b"stored")
    store.inspect().flusher.mark_soon()
    until(lambda: store.inspect().flusher.short)
    loop.turn()
    with pytest.raises(StoreShort):
        append(store, b"refused")


def test_a_sync_that_is_due_when_the_store_closes_finds_nothing_to_do(
    store: MessageStore, loop: Loop, disk: Disk, tmp_path: Path
) -> None:
    promise = store.durable(append(store, b"last"))
    store.close()
    assert promise.done()
    disk.threads.clear()
    while loop.turn():
        pass
    assert disk.threads == []
    assert bodies_of(open_small(tmp_path, SYNC)) == [b"first", b"last"]


def test_a_store_that_closed_without_descriptors_is_left_alone_by_the_loop(
    store: MessageStore, loop: Loop, disk: Disk
) -> None:
    append(store, b"last")
    disk.fails_with(errno.EMFILE)
    store.close()
    disk.threads.clear()
    disk.before = lambda: None
    while loop.turn():
        pass
    assert (disk.threads, store.dispatched < store.log_max) == ([], True)


def test_the_thread_makes_the_next_file_though_nobody_waits_for_it_to_sync(
    tmp_path: Path, loop: Loop, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = replace(SYNC, flush_interval_commit_log_ms=60_000, flush_interval_consume_queue_ms=60_000)
    store = open_small(tmp_path, rare, soon=loop.due.append)
    makers: set[int] = set()
    real = MappedFile.create

    def create(path: Path, start: int, size: int) -> MappedFile:
        makers.add(threading.get_ident())
        return real(path, start, size)

    monkeypatch.setattr(MappedFile, "create", create)
    for _ in range(8):
        until(lambda: not store.inspect().flusher._next_file.is_wanted(store.log_max))
        append(store, b"x" * 30_000)
        loop.turn()
    assert makers
    assert HERE not in makers
