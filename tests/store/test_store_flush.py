"""What is promised to be on disk, and what happens to it when the power goes."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dejamq_broker.store import SYNC_FLUSH, StoreConfig, StoreError, StoreFull
from dejamq_broker.store.files.checkpoint import Checkpoint, DispatchProgress
from dejamq_broker.store.files.errors import StoreShort
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.log.pages_ahead import PagesAhead
from dejamq_broker.store.queues import consume_queues
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from dejamq_proto.codes import Code
from store_making import (
    bodies_of,
    crashed_copy,
    fill_queue,
    log_files,
    open_small,
    overwrite,
    run_of,
    settle,
    until,
)

SYNC = StoreConfig(mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=1000, flush_disk_type=SYNC_FLUSH)
QUICK = StoreConfig(
    mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=1000, flush_interval_commit_log_ms=5,
    flush_interval_consume_queue_ms=5, flush_commit_log_thorough_interval_ms=50,
    flush_consume_queue_thorough_interval_ms=50,
)  # fmt: skip
LAZY = StoreConfig(
    mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=1000, flush_interval_commit_log_ms=60_000
)

RECORD_SIZE = 192  # of a body of 100 bytes in topic T


def test_durable_resolves_when_the_log_is_on_disk(tmp_path: Path) -> None:
    store = open_small(tmp_path, LAZY)
    appended = store.append_run(run_of([("T", 0, b"x")]))
    assert store.flushed == 0
    store.durable(appended.end_log_offset).result(timeout=10)
    assert store.flushed >= appended.end_log_offset
    assert store.durable(appended.end_log_offset).done()


def test_who_comes_during_a_flush_shares_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on = threading.Event(), threading.Event()
    syncs: list[int] = []
    real = MappedFile.sync

    def slow(file: MappedFile) -> None:
        syncs.append(file.start)
        started.set()
        go_on.wait(10)
        real(file)

    store = open_small(tmp_path, LAZY)
    monkeypatch.setattr(MappedFile, "sync", slow)
    first = store.durable(store.append_run(run_of([("T", 0, b"first")])).end_log_offset)
    assert started.wait(10)
    later = [store.durable(store.append_run(run_of([("T", 0, b"later")])).end_log_offset) for _ in range(20)]
    assert not first.done()
    go_on.set()
    for promise in (first, *later):
        promise.result(timeout=10)
    assert len(syncs) == 2


def test_a_promise_given_up_by_its_owner_harms_nobody(tmp_path: Path) -> None:
    store = open_small(tmp_path, LAZY)
    end = store.append_run(run_of([("T", 0, b"x")])).end_log_offset
    store.durable(end).cancel()
    store.durable(end).result(timeout=10)


def test_with_sync_flush_nothing_unflushed_is_dispatched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on = threading.Event(), threading.Event()
    real = MappedFile.sync

    def slow(file: MappedFile) -> None:
        started.set()
        go_on.wait(10)
        real(file)

    store = open_small(tmp_path, SYNC)
    monkeypatch.setattr(MappedFile, "sync", slow)
    store.append_run(run_of([("T", 0, b"x")]))
    assert started.wait(10)
    assert (store.dispatched, store.max_offset("T", 0)) == (0, 0)
    go_on.set()
    settle(store)
    assert bodies_of(store) == [b"x"]


def test_async_flush_comes_by_itself_and_keeps_the_marks(tmp_path: Path) -> None:
    store = open_small(tmp_path, QUICK)
    fill_queue(store, 100)
    until(lambda: store.flushed == store.log_max)
    progress_file = tmp_path / "dispatched.json"
    until(lambda: (DispatchProgress.load(progress_file) or DispatchProgress()).log_offset == store.log_max)
    assert DispatchProgress.load(progress_file) == DispatchProgress(
        store.log_max, {"T": {0: 100}}, store.log_max, {"T": {0: 0}}
    )
    until(lambda: Checkpoint.load(tmp_path / "checkpoint").log_timestamp_ms > 0)
    assert (tmp_path / "checkpoint").stat().st_size == 4096


def test_power_loss_keeps_every_promised_message(tmp_path: Path) -> None:
    store = open_small(tmp_path / "live", SYNC)
    promised = fill_queue(store, 450)
    store.durable(store.log_max).result(timeout=10)
    promised_end = store.log_max
    copy = crashed_copy(tmp_path / "live", tmp_path / "copy")
    fill_queue(store, 200, first=450)
    crashed = crashed_copy(tmp_path / "live", tmp_path / "crashed")
    for path in log_files(crashed):
        lost_from = max(0, promised_end - int(path.name))
        if lost_from < 65_536:
            overwrite(path, lost_from, b"\x5a" * (65_536 - lost_from))
    again = open_small(crashed)
    assert bodies_of(again) == promised
    assert again.append_run(run_of([("T", 0, b"next")])).queue_offsets.tolist() == [450]
    assert bodies_of(open_small(copy)) == promised


def test_a_hole_that_a_power_loss_left_in_a_queue_is_filled_from_the_log(tmp_path: Path) -> None:
    store = open_small(tmp_path / "live", QUICK)
    mark = tmp_path / "live" / "dispatched.json"
    sent = fill_queue(store, 110)
    until(lambda: (DispatchProgress.load(mark) or DispatchProgress()).log_offset == store.log_max)
    older_mark = mark.read_bytes()
    sent += fill_queue(store, 290, first=110)
    until(lambda: (DispatchProgress.load(mark) or DispatchProgress()).log_offset == store.log_max)
    crashed = crashed_copy(tmp_path / "live", tmp_path / "crashed")
    (crashed / "dispatched.json").write_bytes(older_mark)
    overwrite(crashed / "consumequeue" / "T" / "0" / f"{2000:020d}", 12 * 20, bytes(500))
    again = open_small(crashed)
    assert not again.recovery.queues_rebuilt
    assert bodies_of(again) == sent


def test_a_hole_that_a_power_loss_left_in_the_log_ends_it_though_good_records_follow(tmp_path: Path) -> None:
    store = open_small(tmp_path / "live", QUICK)
    sent = fill_queue(store, 50)
    store.durable(store.log_max).result(timeout=10)
    until(
        lambda: (
            (DispatchProgress.load(tmp_path / "live" / "dispatched.json") or DispatchProgress()).flushed
            == store.log_max
        )
    )
    crashed = crashed_copy(tmp_path / "live", tmp_path / "crashed")
    marked_end = store.log_max
    sent += fill_queue(store, 50, first=50)
    written = log_files(tmp_path / "live")[0].read_bytes()
    overwrite(log_files(crashed)[0], 0, written)
    overwrite(log_files(crashed)[0], marked_end + 10 * RECORD_SIZE, bytes(2 * RECORD_SIZE))
    again = open_small(crashed)
    assert bodies_of(again) == sent[:60]
    assert again.recovery.damages == ()
    (cut,) = again.recovery.cuts
    assert cut.log_offset == again.log_max == marked_end + 10 * RECORD_SIZE
    assert Path(cut.kept).stat().st_size > 30 * RECORD_SIZE


def test_a_disk_that_fails_in_a_pause_of_the_flush_thread_is_told_to_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(pages: PagesAhead, log_end: int, now: float) -> float:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(PagesAhead, "step", broken)
    store = open_small(tmp_path, LAZY)
    until(lambda: store.inspect().flusher.failure is not None)
    with pytest.raises(StoreError, match="Input/output error"):
        store.durable(1).result(timeout=10)


def test_a_queue_that_cannot_be_synced_ends_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(queue: ConsumeQueue) -> None:
        raise OSError(28, "No space left on device")

    store = open_small(tmp_path, QUICK)
    monkeypatch.setattr(ConsumeQueue, "sync", broken)
    fill_queue(store, 100)
    until(lambda: store.inspect().flusher.failure is not None)
    with pytest.raises(StoreError, match=r"the queues: .*No space left"):
        store.append_run(run_of([("T", 0, b"x")]))


def mark_of(directory: Path) -> DispatchProgress:
    return DispatchProgress.load(directory / "dispatched.json") or DispatchProgress()


def test_a_mark_that_finds_no_room_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(progress: DispatchProgress, path: Path) -> None:
        raise OSError(28, "No space left on device")

    store = open_small(tmp_path, QUICK)
    monkeypatch.setattr(DispatchProgress, "save", no_space)
    fill_queue(store, 100)
    until(lambda: store.inspect().flusher.full)
    monkeypatch.undo()
    until(lambda: mark_of(tmp_path).log_offset == store.log_max)
    until(lambda: not store.inspect().flusher.full)


def test_sync_flush_completes_many_waiting_senders_with_few_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path, SYNC)
    syncs: list[int] = []
    real = MappedFile.sync

    def slow(file: MappedFile) -> None:
        syncs.append(file.start)
        time.sleep(0.01)
        real(file)

    monkeypatch.setattr(MappedFile, "sync", slow)
    ends = [store.append_run(run_of([("T", 0, b"x")])).end_log_offset for _ in range(200)]
    promises = [store.durable(end) for end in ends]
    for promise in promises:
        promise.result(timeout=10)
    assert len(syncs) < 100
    settle(store)
    assert len(bodies_of(store)) == 200


def test_a_failed_flush_breaks_promises_and_refuses_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(file: MappedFile) -> None:
        raise OSError(5, "Input/output error")

    store = open_small(tmp_path, LAZY)
    end = store.append_run(run_of([("T", 0, b"x")])).end_log_offset
    monkeypatch.setattr(MappedFile, "sync", broken)
    with pytest.raises(StoreError, match="Input/output error"):
        store.durable(end).result(timeout=10)
    with pytest.raises(StoreError, match="Input/output error"):
        store.append_run(run_of([("T", 0, b"y")]))
    with pytest.raises(StoreError):
        store.durable(end).result(timeout=10)
    settle(store)
    assert bodies_of(store) == [b"x"]
    store.close()
    assert (tmp_path / "abort").exists()


def test_a_disk_without_room_for_queues_refuses_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(queue: ConsumeQueue) -> int:
        raise OSError(28, "No space left on device")

    store = open_small(tmp_path, QUICK)
    monkeypatch.setattr(ConsumeQueue, "write_out", no_space)
    store.append_run(run_of([("T", 0, b"x")]))
    until(lambda: store.inspect().flusher.full)
    with pytest.raises(StoreFull, match="make room"):
        store.append_run(run_of([("T", 0, b"refused")]))
    assert bodies_of(store) == [b"x"]
    monkeypatch.undo()
    until(lambda: not store.inspect().flusher.full)
    store.append_run(run_of([("T", 0, b"y")]))
    store.close()
    assert bodies_of(open_small(tmp_path)) == [b"x", b"y"]


def test_a_store_without_descriptors_refuses_and_goes_on_by_itself_when_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(file: MappedFile) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    store = open_small(tmp_path, LAZY)
    end = store.append_run(run_of([("T", 0, b"x")])).end_log_offset
    monkeypatch.setattr(MappedFile, "sync", none_left)
    promise = store.durable(end)
    until(lambda: store.inspect().flusher.short)
    with pytest.raises(StoreShort, match="too many files are open") as refused:
        store.append_run(run_of([("T", 0, b"refused")]))
    assert refused.value.code == Code.SERVICE_NOT_AVAILABLE
    assert refused.value.not_done
    assert not promise.done()
    monkeypatch.undo()
    promise.result(timeout=10)
    until(lambda: not store.inspect().flusher.short)
    store.append_run(run_of([("T", 0, b"y")]))
    settle(store)
    assert bodies_of(store) == [b"x", b"y"]
    store.close()
    assert not (tmp_path / "abort").exists()


def no_descriptor(what: ConsumeQueue | Path) -> None:
    raise OSError(errno.ENFILE, "Too many open files in system")


def test_a_queue_that_cannot_be_opened_is_synced_when_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_small(tmp_path, QUICK)
    monkeypatch.setattr(ConsumeQueue, "sync", no_descriptor)
    store.append_run(run_of([("T", 0, b"x")]))
    until(lambda: store.inspect().flusher.short)
    monkeypatch.undo()
    until(lambda: not store.inspect().flusher.short)
    until(lambda: mark_of(tmp_path).log_offset == store.log_max)


def test_the_folders_of_new_queues_are_synced_once_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(consume_queues, "sync_directory", synced.append)
    store = open_small(tmp_path, LAZY)
    store.append_run(run_of([(topic, queue_id, b"x") for topic in ("T", "U") for queue_id in range(20)]))
    store.close()
    queues = [tmp_path / "consumequeue" / topic / str(queue_id) for topic in ("T", "U") for queue_id in range(20)]
    of_all = [tmp_path, tmp_path / "consumequeue", tmp_path / "consumequeue" / "T", tmp_path / "consumequeue" / "U"]
    assert sorted(synced) == sorted(queues + of_all)


def test_a_queue_whose_folder_cannot_be_synced_holds_the_mark_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path, QUICK)
    synced: list[Path] = []
    monkeypatch.setattr(consume_queues, "sync_directory", no_descriptor)
    store.append_run(run_of([("T", 0, b"x")]))
    until(lambda: store.inspect().flusher.short)
    assert mark_of(tmp_path).log_offset == 0
    monkeypatch.setattr(consume_queues, "sync_directory", synced.append)
    until(lambda: mark_of(tmp_path).log_offset == store.log_max)
    assert tmp_path / "consumequeue" / "T" / "0" in synced


def test_a_store_that_ends_without_descriptors_says_so_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(file: MappedFile) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    store = open_small(tmp_path, LAZY)
    store.append_run(run_of([("T", 0, b"x")]))
    monkeypatch.setattr(MappedFile, "sync", none_left)
    store.close()
    assert (tmp_path / "abort").exists()
    monkeypatch.undo()
    assert bodies_of(open_small(tmp_path, LAZY)) == [b"x"]


def test_a_log_that_cannot_be_opened_is_an_answer_and_not_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(file: MappedFile, at: int, size: int) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    store = open_small(tmp_path, LAZY)
    store.append_run(run_of([("T", 0, b"x")]))
    for how in ("read", "view"):
        monkeypatch.setattr(MappedFile, how, none_left)
    for read in (lambda: store.read("T", 0, 0), lambda: store.record_at(0), lambda: store.search_offset("T", 0, 1)):
        with pytest.raises(StoreError, match="Too many open files"):
            read()
    monkeypatch.undo()
    assert bodies_of(store) == [b"x"]


def test_a_promise_beyond_the_end_of_the_log_waits_for_it(tmp_path: Path) -> None:
    store = open_small(tmp_path, LAZY)
    promise = store.durable(100)
    assert not promise.done()
    store.append_run(run_of([("T", 0, b"x" * 100)]))
    store.durable(store.log_max).result(timeout=10)
    promise.result(timeout=10)


def test_a_checkpoint_that_is_missing_or_short_counts_as_zeros(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert Checkpoint.load(path) == Checkpoint()
    path.write_bytes(b"short")
    assert Checkpoint.load(path) == Checkpoint()
    Checkpoint(1, 2, 3, 4, 5).save(path)
    assert Checkpoint.load(path) == Checkpoint(1, 2, 3, 4, 5)


def test_a_mark_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "dispatched.json"
    assert DispatchProgress.load(path) is None
    path.write_text("{")
    assert DispatchProgress.load(path) is None
    DispatchProgress(5, {"T": {3: 4}}).save(path)
    assert DispatchProgress.load(path) == DispatchProgress(5, {"T": {3: 4}})


def test_a_disk_that_hangs_holds_no_event_loop_that_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    due: list[Callable[[], None]] = []
    store = open_small(tmp_path, SYNC, soon=due.append)
    settle(store)
    store.append_run(run_of([("T", 0, b"first")]))
    settle(store)
    real, here, answers = os.fdatasync, threading.get_ident(), threading.Event()

    def hanging(descriptor: int) -> None:
        assert threading.get_ident() != here, "the appender would hang"
        answers.wait(30)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", hanging)
    promises = [store.durable(store.append_run(run_of([("T", 0, body)])).end_log_offset) for body in (b"a", b"b")]
    assert due == []
    assert not any(promise.done() for promise in promises)
    answers.set()
    for promise in promises:
        promise.result(timeout=30)
    settle(store)
    assert bodies_of(store) == [b"first", b"a", b"b"]
