"""When what is flushed, setting by setting, and what the marks then say. Time is an argument; no thread runs."""

import dataclasses
import threading
from pathlib import Path

import pytest
from dejamq_broker.store import MessageStore, StoreConfig
from dejamq_broker.store.files.checkpoint import Checkpoint, DispatchProgress
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from store_making import SMALL, bodies_of, fill_queue, open_small, records_of, until


def standing(directory: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> tuple[MessageStore, float]:
    """A store whose threads do not run, and the time that its flusher counts from."""
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    config = StoreConfig(mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=20_000)
    store = open_small(directory, dataclasses.replace(config, **settings))  # type: ignore[arg-type]  # test only
    return store, store.inspect().flusher._log_turn


def mark_of(directory: Path) -> DispatchProgress:
    mark = DispatchProgress.load(directory / "dispatched.json")
    assert mark is not None
    return mark


def test_fewer_dirty_pages_than_four_wait_for_the_thorough_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = standing(tmp_path, monkeypatch)
    fill_queue(store, 50)
    for later in (0.6, 1.2, 9.9):
        store.inspect().flusher.turn(now + later)
        assert store.flushed == 0
    store.inspect().flusher.turn(now + 10.5)
    assert store.flushed == store.log_max


def test_four_dirty_pages_are_flushed_at_the_next_interval_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = standing(tmp_path, monkeypatch)
    fill_queue(store, 100)
    store.inspect().flusher.turn(now + 0.4)
    assert store.flushed == 0
    store.inspect().flusher.turn(now + 0.6)
    assert store.flushed == store.log_max


def test_a_full_file_is_flushed_however_few_its_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = standing(tmp_path, monkeypatch, mapped_file_size_commit_log=4096)
    fill_queue(store, 25)
    assert store.log_max > 4096
    store.inspect().flusher.turn(now + 0.6)
    assert store.flushed == store.log_max


def test_an_untimed_flush_comes_when_appends_have_filled_pages_enough(tmp_path: Path) -> None:
    untimed = StoreConfig(
        mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=20_000,
        flush_interval_commit_log_ms=60_000, flush_interval_consume_queue_ms=60_000, flush_commit_log_timed=False,
    )  # fmt: skip
    store = open_small(tmp_path, untimed)
    fill_queue(store, 50)
    assert store.flushed == 0
    fill_queue(store, 100)
    until(lambda: store.flushed >= 4 * 4096)


def test_a_queue_with_one_dirty_page_waits_and_holds_the_mark_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = standing(tmp_path, monkeypatch)
    fill_queue(store, 1, topic="few")
    store.inspect().flusher.turn(now + 1.1)
    fill_queue(store, 420, topic="many")
    first = store.log_max
    fill_queue(store, 3, topic="few", first=1)
    fill_queue(store, 3, topic="many", first=420)
    store.inspect().flusher.turn(now + 2.2)
    assert store.flushed == store.log_max
    firsts = {"many": {0: 0}, "few": {0: 0}}
    assert mark_of(tmp_path) == DispatchProgress(first, {"many": {0: 420}, "few": {0: 1}}, store.log_max, firsts)
    store.inspect().flusher.turn(now + 61)
    assert mark_of(tmp_path) == DispatchProgress(
        store.log_max, {"many": {0: 423}, "few": {0: 4}}, store.log_max, firsts
    )


def test_a_new_queue_is_on_disk_with_its_name_at_the_next_interval_however_few_its_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = standing(tmp_path, monkeypatch, flush_commit_log_least_pages=1)
    fill_queue(store, 50)
    store.inspect().flusher.turn(now + 1.1)
    assert mark_of(tmp_path).queues == {"T": {0: 50}}
    fill_queue(store, 50, first=50)
    store.inspect().flusher.turn(now + 2.2)
    assert store.flushed == store.log_max
    assert mark_of(tmp_path).queues == {"T": {0: 50}}


def test_the_next_file_of_the_log_is_made_while_queues_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = standing(tmp_path, monkeypatch, mapped_file_size_commit_log=1 << 20)
    fill_queue(store, 10)
    synced = ConsumeQueue.sync

    def slow(queue: ConsumeQueue) -> list[Path]:
        monkeypatch.setattr(ConsumeQueue, "sync", synced)
        fill_queue(store, 2000, first=10)
        return queue.sync()

    monkeypatch.setattr(ConsumeQueue, "sync", slow)
    store.inspect().flusher.turn(now + 1.1)
    ready = store.inspect().flusher._next_file.ready
    assert ready is not None
    assert ready.start == 1 << 20


def test_a_mark_never_says_more_than_the_flushed_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = standing(tmp_path, monkeypatch, flush_consume_queue_least_pages=1)
    fill_queue(store, 500)
    store.inspect().flusher.turn(now + 0.6)
    flushed = store.flushed
    fill_queue(store, 20, first=500)
    store.inspect().flusher.turn(now + 1.05)
    assert store.max_offset("T", 0) == 520
    assert mark_of(tmp_path) == DispatchProgress(flushed, {"T": {0: 500}}, flushed, {"T": {0: 0}})


def test_the_checkpoint_has_the_time_of_the_last_flushed_record_and_of_the_last_marked_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = standing(tmp_path, monkeypatch)
    fill_queue(store, 1, topic="few")
    fill_queue(store, 500, topic="many")
    store.inspect().flusher.turn(now + 1.1)
    first = records_of(store, "many")[-1].store_timestamp_ms
    assert Checkpoint.load(tmp_path / "checkpoint") == Checkpoint(first, first)
    fill_queue(store, 100, topic="few", first=1)
    store.inspect().flusher.turn(now + 2.2)
    last = records_of(store, "few")[-1].store_timestamp_ms
    assert Checkpoint.load(tmp_path / "checkpoint") == Checkpoint(last, first)
    store.inspect().flusher.turn(now + 61)
    assert Checkpoint.load(tmp_path / "checkpoint") == Checkpoint(last, last)


def test_marks_are_written_only_when_they_say_something_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = standing(tmp_path, monkeypatch)
    fill_queue(store, 500)
    store.inspect().flusher.turn(now + 1.1)
    files = [tmp_path / "dispatched.json", tmp_path / "checkpoint"]
    before = [path.stat().st_ino for path in files]
    for later in (2.2, 3.3, 61):
        store.inspect().flusher.turn(now + later)
    assert [path.stat().st_ino for path in files] == before
    store.close()
    assert [path.stat().st_ino for path in files] == before


def test_a_mark_follows_the_beginning_of_a_queue_and_a_missing_first_file_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = standing(tmp_path, monkeypatch, mapped_file_size_consume_queue=1000)
    fill_queue(store, 900)
    store.inspect().flusher.turn(now + 1.1)
    store.clean_soon()
    store.inspect().retention.clean(1 << 50)
    store.inspect().flusher.turn(now + 2.2)
    low = store.min_offset("T", 0)
    assert mark_of(tmp_path).firsts == {"T": {0: low}}
    assert 600 < low < 700
    left = bodies_of(store)
    store.close()
    sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())[0].unlink()
    again = open_small(tmp_path, SMALL)
    assert again.recovery.queues_rebuilt
    assert (again.min_offset("T", 0), bodies_of(again)) == (low, left)
