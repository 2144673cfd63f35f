"""What comes late: when the log is read back for the index, and what does not keep the store from its work."""

import dataclasses
import errno
import threading
import time
from pathlib import Path

import pytest
from dejamq_broker.store import SYNC_FLUSH, MessageStore
from dejamq_broker.store.files.cpu_share import OtherThreads
from dejamq_broker.store.log.catch_up import BUSY_CORE, LateReader
from dejamq_broker.store.log.scan import FoundRecords
from index_making import fill_keyed, offsets_of
from store_making import SMALL, bodies_of, fill_queue, open_small, overwrite, until

COUNT = 900
UNFED = dataclasses.replace(SMALL, message_index_enable=False)


class Collector:
    """A dispatcher that keeps what it is given, one record a time."""

    def __init__(self) -> None:
        self.position = 0
        self.settled = False
        self.places: list[int] = []
        self.failure: OSError | None = None

    def dispatch(self, found: FoundRecords) -> None:
        if self.failure:
            raise self.failure
        at = found.log_offset
        for size in found.sizes:
            self.places.append(at)
            at += size
        self.position = found.end

    def skip_to(self, log_offset: int) -> None:
        self.position = max(self.position, log_offset)

    def settle(self) -> None:
        if self.failure:
            raise self.failure
        self.settled = True


class Scene:
    """A store whose log an own reader follows, up to a limit that the test sets."""

    def __init__(self, store: MessageStore, lag_max: int = 1 << 30) -> None:
        self.collector = Collector()
        self.limit = self.flushed = 0
        config = dataclasses.replace(SMALL, index_lag_max=lag_max)
        self.reader = LateReader(store.inspect().log, self.collector, lambda: self.limit, lambda: self.flushed, config)
        self.reader.busy = lambda: False

    def turn(self, *, wanted: bool = False) -> None:
        self.reader._next_look = 0
        self.reader.turn(lambda: wanted)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One file of the log, some 200 records, is a step."""
    monkeypatch.setattr("dejamq_broker.store.log.catch_up.STEP_BYTES", 1)


@pytest.fixture
def offsets() -> list[int]:
    return []


@pytest.fixture
def store(tmp_path: Path, offsets: list[int]) -> MessageStore:
    made = open_small(tmp_path, UNFED)
    offsets += fill_keyed(made, COUNT)
    return made


def test_a_quiet_store_is_indexed_without_being_asked(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    fill_keyed(store, 100)
    until(lambda: store.indexed == store.log_max)


def test_a_quiet_store_with_sync_flush_is_too(tmp_path: Path) -> None:
    store = open_small(tmp_path, dataclasses.replace(SMALL, flush_disk_type=SYNC_FLUSH))
    fill_keyed(store, 100)
    until(lambda: store.indexed == store.log_max)
    assert len(bodies_of(store)) == 100


def test_a_quiet_log_is_read_to_its_end(store: MessageStore, offsets: list[int]) -> None:
    scene = Scene(store)
    scene.limit = store.log_max
    scene.turn()
    assert scene.collector.places == []  # it has just grown
    scene.turn()
    assert scene.collector.places == offsets


@pytest.mark.usefixtures("small_steps")
def test_a_busy_log_is_left_alone_until_it_is_too_far_ahead(store: MessageStore, offsets: list[int]) -> None:
    scene = Scene(store, lag_max=offsets[600])
    for number in (0, 250, 500):
        scene.limit = offsets[number]
        scene.turn()
        assert scene.collector.places == []
    scene.limit = store.log_max
    scene.turn()
    assert 0 < len(scene.collector.places) < COUNT
    assert scene.collector.places == offsets[: len(scene.collector.places)]


@pytest.mark.usefixtures("small_steps")
def test_a_quiet_log_of_a_process_that_is_busy_with_other_things_is_left_alone_too(
    store: MessageStore, offsets: list[int]
) -> None:
    scene, answers = Scene(store), iter((True, False, False, True))
    scene.reader.busy = lambda: next(answers)
    scene.reader._seen = scene.limit = store.log_max
    scene.turn()
    assert scene.collector.places == []
    scene.turn()  # two pieces, until others have something to do again
    assert 0 < len(scene.collector.places) < COUNT


@pytest.mark.slow
def test_a_process_is_busy_when_other_threads_had_a_core_most_of_the_time_since_the_last_question() -> None:
    others = OtherThreads(BUSY_CORE)
    assert not others.busy()

    def work() -> None:
        until_s = time.thread_time() + 0.3
        while time.thread_time() < until_s:
            sum(range(1000))

    def had_a_core() -> bool:
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        return others.busy()

    until(had_a_core)
    began_s = time.monotonic()
    while time.monotonic() < began_s + 0.1:  # what this thread does itself does not count
        pass
    assert not others.busy()


def test_nothing_beyond_the_limit_is_read(store: MessageStore, offsets: list[int]) -> None:
    scene = Scene(store)
    for number in (1, 7, 300, COUNT):
        scene.limit = offsets[number] if number < COUNT else store.log_max
        scene.reader.catch_up()
        assert scene.collector.places == offsets[:number]
        assert scene.collector.position == scene.limit


@pytest.mark.usefixtures("small_steps")
def test_who_is_needed_elsewhere_stops_after_one_piece(store: MessageStore, offsets: list[int]) -> None:
    scene = Scene(store)
    scene.limit = store.log_max
    scene.turn()
    scene.turn(wanted=True)
    assert 0 < len(scene.collector.places) < COUNT


def test_a_query_that_catches_up_does_not_hold_the_thread_that_feeds_the_queues(store: MessageStore) -> None:
    scene = Scene(store)
    scene.limit = store.log_max
    scene.turn()
    with scene.reader._lock:  # as in the middle of a step of the query's
        turning = threading.Thread(target=scene.turn, daemon=True)
        turning.start()
        turning.join(timeout=10)
        assert not turning.is_alive()
    assert scene.collector.places == []


def test_nothing_is_put_on_disk_before_the_log_is(store: MessageStore) -> None:
    scene = Scene(store)
    scene.limit = store.log_max
    for _ in range(3):
        scene.turn()
    assert not scene.collector.settled
    scene.flushed = store.log_max
    scene.turn()
    assert scene.collector.settled


def test_a_failing_dispatcher_is_tried_again_later(store: MessageStore, offsets: list[int]) -> None:
    scene = Scene(store)
    scene.limit = store.log_max
    scene.collector.failure = OSError(errno.ENOSPC, "no room")
    for _ in range(3):
        scene.turn()
    assert scene.reader.turn(lambda: False) > 1
    scene.collector.failure = None
    scene.turn()
    assert scene.collector.places == offsets


def test_damage_in_the_log_is_passed_over(tmp_path: Path) -> None:
    store = open_small(tmp_path, UNFED)
    offsets = fill_keyed(store, 300)
    store.close()
    overwrite(tmp_path / "commitlog" / f"{0:020d}", offsets[50] + 4, b"\xff" * 300)
    store = open_small(tmp_path, UNFED)
    scene = Scene(store)
    scene.limit = store.log_max
    scene.reader.catch_up()
    assert scene.collector.places == offsets[:50] + offsets[51:]
    assert scene.collector.position == store.log_max


def test_damage_at_the_end_of_what_may_be_seen_is_waited_out(tmp_path: Path) -> None:
    """Nothing good follows it yet; what is appended later is read."""
    store = open_small(tmp_path, UNFED)
    offsets = fill_keyed(store, 50)
    overwrite(tmp_path / "commitlog" / f"{0:020d}", offsets[49] + 4, b"\xff" * 300)
    scene = Scene(store)
    scene.limit = store.log_max
    scene.reader.catch_up()
    assert scene.collector.places == offsets[:49]
    more = fill_keyed(store, 10, first=50)
    scene.limit = store.log_max
    scene.reader.catch_up()
    assert scene.collector.places == offsets[:49] + more


def test_a_file_that_expires_while_it_is_read_is_passed_over(
    store: MessageStore, offsets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(store)
    scene.limit = store.log_max
    log, real = store.inspect().log, store.inspect().log.view

    def expires_first(log_offset: int, size: int) -> memoryview:
        if log.files.start == 0:
            expired, *rest = log.files.files
            log.files.files = tuple(rest)
            expired.close()
        return real(log_offset, size)

    monkeypatch.setattr(log, "view", expires_first)
    scene.reader.catch_up()
    assert scene.collector.places == [offset for offset in offsets if offset >= log.min_offset > 0]


@pytest.mark.usefixtures("small_steps")
def test_a_stop_in_a_hurry_leaves_the_rest_to_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dejamq_broker.store.message_store.CLOSE_INDEX_S", -1)
    monkeypatch.setattr("dejamq_broker.store.log.catch_up.LOOK_S", 600)
    store = open_small(tmp_path)
    offsets = fill_keyed(store, 900)
    store.close()
    assert not (tmp_path / "abort").exists()
    store = open_small(tmp_path)
    assert store.clean_start
    assert 0 < store.indexed < store.log_max
    for number in range(0, 900, 31):
        assert offsets_of(store, f"k{number}") == [offsets[number]]


def test_messages_without_keys_make_no_index(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 100)
    store.close()
    assert not (tmp_path / "index").exists()
    store = open_small(tmp_path)
    assert store.indexed == store.log_max  # and the log is not read again for it


def test_nobody_feeds_the_index_of_a_closed_store(tmp_path: Path) -> None:
    store = open_small(tmp_path, dataclasses.replace(SMALL))
    fill_keyed(store, 10)
    store.close()
    assert not store.inspect().late.step()
