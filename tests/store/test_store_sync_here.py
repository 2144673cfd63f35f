"""With SYNC_FLUSH, who brings the log to disk: the appender itself, where it is a loop and the disk is quick."""

import errno
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from dejamq_broker.store import SYNC_FLUSH, MessageStore, StoreConfig, StoreError, flush
from dejamq_broker.store.mapped_file import MappedFile
from store_making import bodies_of, open_small, run_of, settle, until

SYNC = StoreConfig(mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=1000, flush_disk_type=SYNC_FLUSH)
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


class Syncs:
    """The threads that brought a log file to disk, and what happens at that: ``first``. Zeros ahead are not written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.first: Callable[[], object] = lambda: None
        real = MappedFile.sync

        def sync(file: MappedFile) -> None:
            self.threads.append(threading.get_ident())
            self.first()
            real(file)

        monkeypatch.setattr(MappedFile, "sync", sync)
        monkeypatch.setattr("dejamq_broker.store.pages_ahead.ZerosAhead.step", lambda pages, end, now: 1.0)
        self._monkeypatch = monkeypatch

    def quick(self, *, quick: bool) -> None:
        """How each sync from now on is taken, whatever its time."""
        self._monkeypatch.setattr(flush, "QUICK_S", 3600 if quick else 0)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    syncs = Syncs(monkeypatch)
    syncs.quick(quick=True)
    return syncs


@pytest.fixture
def store(tmp_path: Path, loop: Loop, syncs: Syncs) -> MessageStore:
    """With one message that is on disk, so that it is known how quick the disk is."""
    store = open_small(tmp_path, SYNC, soon=loop.due.append)
    store.durable(append(store, b"first")).result(timeout=10)
    assert HERE not in syncs.threads
    syncs.threads.clear()
    return store


def append(store: MessageStore, body: bytes) -> int:
    return store.append_run(run_of([("T", 0, body)])).end_log_offset


def test_on_a_quick_disk_all_that_a_turn_of_the_loop_appends_is_synced_by_it_at_once(
    store: MessageStore, loop: Loop, syncs: Syncs
) -> None:
    promises = [store.durable(append(store, body)) for body in (b"a", b"b", b"c")]
    assert not any(promise.done() for promise in promises)
    assert loop.turn() == 1
    assert all(promise.done() for promise in promises)
    assert syncs.threads == [HERE]


def test_what_the_loop_synced_is_in_its_queues_after_those_who_waited_were_told(
    store: MessageStore, loop: Loop
) -> None:
    settle(store)
    append(store, b"next")
    loop.turn()
    assert (store.flushed, store.max_offset("T", 0)) == (store.log_max, 1)
    loop.turn()
    assert store.max_offset("T", 0) == 2
    assert bodies_of(store) == [b"first", b"next"]


def test_a_slow_disk_keeps_the_thread_waiting_and_not_the_loop(store: MessageStore, loop: Loop, syncs: Syncs) -> None:
    syncs.quick(quick=False)
    append(store, b"slow, as is found now")
    loop.turn()
    loop.turn()
    store.durable(append(store, b"slow")).result(timeout=10)
    assert not loop.due
    assert syncs.threads[0] == HERE
    assert HERE not in syncs.threads[1:]


def test_a_disk_that_is_quick_again_is_the_loops_again(store: MessageStore, loop: Loop, syncs: Syncs) -> None:
    syncs.quick(quick=False)
    append(store, b"slow")
    loop.turn()
    syncs.quick(quick=True)
    store.durable(append(store, b"by the thread")).result(timeout=10)
    until(lambda: store._flusher._quick)
    append(store, b"by the loop")
    loop.turn()
    loop.turn()
    assert syncs.threads[0] == syncs.threads[-1] == HERE
    assert len(set(syncs.threads)) == 2


def test_while_the_thread_is_at_it_the_loop_goes_on_and_the_thread_goes_once_more(
    store: MessageStore, loop: Loop, syncs: Syncs
) -> None:
    started, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        assert go_on.wait(10)

    syncs.first = wait
    append(store, b"a")
    store._flusher.mark_soon()
    assert started.wait(10)
    promise = store.durable(append(store, b"b"))
    loop.turn()
    assert HERE not in syncs.threads
    assert not promise.done()
    go_on.set()
    promise.result(timeout=10)


def test_a_disk_that_fails_the_loop_is_told_to_who_waits_and_ends_appends(
    store: MessageStore, loop: Loop, syncs: Syncs
) -> None:
    def broken() -> None:
        raise OSError(errno.EIO, "Input/output error")

    promise = store.durable(append(store, b"lost"))
    syncs.first = broken
    loop.turn()
    with pytest.raises(StoreError, match="Input/output error"):
        promise.result(timeout=0)
    with pytest.raises(StoreError, match="Input/output error"):
        append(store, b"refused")


def test_where_the_loop_finds_no_descriptor_the_thread_tries_again(
    store: MessageStore, loop: Loop, syncs: Syncs
) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    promise = store.durable(append(store, b"later"))
    syncs.first = none_left
    loop.turn()
    until(lambda: len(syncs.threads) > 1)
    assert not promise.done()
    syncs.first = lambda: None
    promise.result(timeout=10)
    until(lambda: not store._flusher.short)


def test_a_sync_that_is_due_when_the_store_closes_finds_nothing_to_do(
    store: MessageStore, loop: Loop, syncs: Syncs, tmp_path: Path
) -> None:
    promise = store.durable(append(store, b"last"))
    store.close()
    assert promise.done()
    count = len(syncs.threads)
    loop.turn()
    loop.turn()
    assert len(syncs.threads) == count
    assert bodies_of(open_small(tmp_path, SYNC)) == [b"first", b"last"]
