"""Which files go and when, what follows them, and what readers meet meanwhile.

The cases of RocketMQ's ``DefaultMessageStoreCleanFilesTest`` are among them.
"""

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from dejamq_broker.store import MessageStore, ReadStatus, StoreConfig
from dejamq_broker.store.dump import main as dump_main
from dejamq_broker.store.index.query import KeyQuery
from dejamq_broker.store.offline.verify import main as verify_main
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from dejamq_broker.store.retention import expire_queue, expired, follow_queues, is_hour, local_hour
from dejamq_proto.codes import ConfigError
from dejamq_proto.records.record import Record, decode, encode_properties
from store_making import (
    bodies,
    bodies_of,
    crashed_copy,
    fill_queue,
    log_files,
    mark,
    open_small,
    run_of,
    settle,
    until,
)

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
PER_FILE = 341
"""Records of 192 bytes in a log file of 64 KiB."""
FILE_SIZE = 65_536
EVERY_HOUR = ";".join(map(str, range(24)))


def small(**settings: object) -> StoreConfig:
    base: dict[str, object] = {
        "mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": 1000,
        "delete_commit_log_files_interval_ms": 1, "flush_interval_commit_log_ms": 5,
        "flush_interval_consume_queue_ms": 5, "flush_consume_queue_least_pages": 1,
    }  # fmt: skip
    return StoreConfig(**(base | settings))  # type: ignore[arg-type]  # names and types are the settings' own


def filled(directory: Path, files: int, **settings: object) -> MessageStore:
    """A store with this many log files, the last one just begun, in the eighth hour of the day.

    Everything counts as safe on disk, and the files as written to just now, that is at NOW_MS.
    """
    store = open_small(directory, small(**settings))
    fill_queue(store, PER_FILE * (files - 1) + 1)
    settle(store)
    store.inspect().retention.safe_end = lambda: store.log_max
    at_hour(store, 8)
    aged(store, 0)
    assert len(store.inspect().log.files.files) == files
    return store


def at_hour(store: MessageStore, hour: int) -> None:
    store.inspect().retention.hour_of = lambda now_ms: hour


def aged(store: MessageStore, *hours: float) -> None:
    """Let the oldest files be this old at NOW_MS, in their order; with one age all are."""
    files = store.inspect().log.files.files
    ages = hours if len(hours) > 1 else hours * len(files)
    for file, age in zip(files, ages, strict=False):
        written_s = (NOW_MS - age * HOUR_MS) / 1000
        os.utime(file.path, (written_s, written_s))


def at_use(store: MessageStore, percent: int) -> None:
    """Let the disk be this full, and look."""
    store.inspect().disk.used_percent = lambda folder: percent
    store.inspect().disk.look()


def clean(store: MessageStore) -> int:
    return store.inspect().retention.clean(NOW_MS)


# The decisions, which are pure.


@pytest.mark.parametrize(
    ("ages", "forced", "most", "count"),
    [
        ([], False, 10, 0),
        ([71.99], False, 10, 0),
        ([72], False, 10, 1),
        ([100, 90, 80, 1], False, 10, 3),
        ([100, 1, 90], False, 10, 1),
        ([100, 90, 80], False, 2, 2),
        ([1, 1, 1], True, 10, 3),
        ([1, 1, 1], True, 2, 2),
    ],
)
def test_files_go_from_the_oldest_on_up_to_the_first_that_has_not_expired(
    ages: list[float], forced: bool, most: int, count: int
) -> None:
    written_ms = [round(NOW_MS - age * HOUR_MS) for age in ages]
    assert expired(written_ms, NOW_MS, 72 * HOUR_MS, forced=forced, most=most) == count


@pytest.mark.parametrize(
    ("delete_when", "hours"),
    [("04", {4}), ("4", {4}), ("04;16", {4, 16}), ("0;23", {0, 23}), (EVERY_HOUR, set(range(24)))],
)
def test_files_may_go_in_each_hour_that_is_named(delete_when: str, hours: set[int]) -> None:
    assert {hour for hour in range(24) if is_hour(delete_when, hour)} == hours


def test_the_hour_is_that_of_the_machines_clock_and_lasts_a_whole_hour() -> None:
    first = datetime(2026, 11, 21, 4, 0, 0).timestamp() * 1000
    assert [local_hour(int(first) + more) for more in (-1, 0, HOUR_MS - 1, HOUR_MS)] == [3, 4, 4, 5]


@pytest.mark.parametrize("delete_when", ["", "24", "4am", "04,16", "04;"])
def test_hours_that_are_none_are_refused(delete_when: str) -> None:
    with pytest.raises(ConfigError, match="delete_when"):
        small(delete_when=delete_when).validate()


# What goes.


def test_expired_files_go_in_their_hour_only(tmp_path: Path) -> None:
    store = filled(tmp_path, 4)
    aged(store, 72)
    assert clean(store) == 0
    at_hour(store, 4)
    assert clean(store) == 3
    assert [path.name for path in log_files(tmp_path)][:1] == [f"{3 * FILE_SIZE:020d}"]
    assert store.log_min == 3 * FILE_SIZE


def test_the_hour_lasts_until_its_end_so_files_that_expire_in_it_go_too(tmp_path: Path) -> None:
    store = filled(tmp_path, 4)
    at_hour(store, 4)
    aged(store, 80, 71, 71, 71)
    assert clean(store) == 1
    aged(store, 72, 71, 71)
    assert clean(store) == 1


def test_young_files_stay_and_so_does_what_follows_them(tmp_path: Path) -> None:
    store = filled(tmp_path, 5)
    at_hour(store, 4)
    aged(store, 73, 1, 100, 100, 100)
    assert clean(store) == 1
    assert store.log_min == FILE_SIZE


def test_above_three_quarters_of_the_disk_expired_files_go_at_any_hour(tmp_path: Path) -> None:
    store = filled(tmp_path, 4)
    aged(store, 80, 80, 1, 1)
    at_use(store, 75)
    assert clean(store) == 0
    at_use(store, 76)
    assert clean(store) == 2
    assert clean(store) == 0


def test_a_nearly_full_disk_takes_files_that_have_not_expired(tmp_path: Path) -> None:
    store = filled(tmp_path, 4)
    at_use(store, 85)
    assert clean(store) == 0
    at_use(store, 86)
    assert clean(store) == 3


def test_nothing_is_taken_by_force_where_that_is_switched_off(tmp_path: Path) -> None:
    store = filled(tmp_path, 4, clean_file_forcibly_enable=False)
    aged(store, 80, 1, 1, 1)
    at_use(store, 95)
    assert clean(store) == 1
    assert clean(store) == 0


def test_the_last_file_never_goes(tmp_path: Path) -> None:
    store = filled(tmp_path, 3)
    at_use(store, 99)
    assert [clean(store), clean(store)] == [2, 0]
    assert bodies_of(store) == bodies(1, first=2 * PER_FILE)


def test_as_many_of_the_newest_files_stay_as_are_to_be_kept(tmp_path: Path) -> None:
    store = filled(tmp_path, 5, log_files_kept=3)
    at_use(store, 99)
    assert [clean(store), clean(store)] == [2, 0]


def test_a_look_deletes_a_limited_number_of_files(tmp_path: Path) -> None:
    store = filled(tmp_path, 14)
    at_use(store, 99)
    assert [clean(store), clean(store), clean(store)] == [10, 3, 0]


def test_on_demand_expired_files_go_at_any_hour_for_twenty_looks(tmp_path: Path) -> None:
    store = filled(tmp_path, 3)
    store.clean_soon()
    assert [clean(store) for _ in range(19)] == [0] * 19
    aged(store, 72)
    assert clean(store) == 2
    fill_queue(store, PER_FILE, first=2 * PER_FILE + 1)
    aged(store, 72)
    assert clean(store) == 0
    store.clean_soon()
    assert clean(store) == 1


def test_what_the_mark_on_disk_does_not_cover_stays(tmp_path: Path) -> None:
    store = filled(tmp_path, 4)
    at_use(store, 99)
    store.inspect().retention.safe_end = lambda: 2 * FILE_SIZE - 1
    assert clean(store) == 1
    store.inspect().retention.safe_end = lambda: 2 * FILE_SIZE
    assert clean(store) == 1


def test_a_store_cleans_itself(tmp_path: Path) -> None:
    always = small(
        delete_when=EVERY_HOUR, file_reserved_time_hours=1, file_reserved_hour_ms=1, clean_resource_interval_ms=1,
        clean_resource_delay_ms=1, disk_check_delay_ms=1,
    )  # fmt: skip
    store = open_small(tmp_path, always, clock_ms=lambda: 2 * NOW_MS)
    sent = fill_queue(store, 5 * PER_FILE)
    until(lambda: store.min_offset("T", 0) == 4 * PER_FILE)
    assert bodies_of(store) == sent[4 * PER_FILE :]
    store.close()
    assert [path.name for path in log_files(tmp_path)] == [f"{4 * FILE_SIZE:020d}"]


def test_a_file_that_cannot_be_deleted_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path, 4)
    at_use(store, 99)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", raising(PermissionError(13, "Permission denied")))
        with pytest.raises(PermissionError):
            clean(store)
    assert store.log_min == 0
    assert clean(store) == 3


def test_a_file_that_stays_is_not_passed_over_for_the_next_one(tmp_path: Path) -> None:
    """Or the log would have a gap, and the store could not be opened any more."""
    store = filled(tmp_path, 4)
    at_use(store, 99)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", raising(PermissionError(1, "Operation not permitted")))
        for _ in range(2):
            with pytest.raises(PermissionError):
                clean(store)
    assert store.log_min == 0
    assert [path.name for path in log_files(tmp_path)][:2] == [f"{0:020d}", f"{FILE_SIZE:020d}"]
    assert store.read("T", 0, 0).sizes
    assert clean(store) == 3
    assert store.log_min == 3 * FILE_SIZE


def raising(error: OSError) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


# What follows.


def queue_files(directory: Path, queue_id: int = 0) -> list[int]:
    """First queue offset of each file of a queue."""
    folder = directory / "consumequeue" / "T" / str(queue_id)
    return sorted(int(path.name) // 20 for path in folder.iterdir()) if folder.is_dir() else []


def test_queues_begin_at_the_first_message_that_is_left_and_lose_the_files_before_it(tmp_path: Path) -> None:
    store = filled(tmp_path, 4)
    mark(store)
    at_use(store, 99)
    clean(store)
    first = 3 * PER_FILE
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (first, first + 1)
    assert queue_files(tmp_path) == [first // 50 * 50]
    assert store.search_offset("T", 0, 0) == first
    assert store.record_at(0) is None
    assert store.tags_code_at("T", 0, first - 1) is None


def test_a_queue_of_which_everything_expired_keeps_its_offsets(tmp_path: Path) -> None:
    store = open_small(tmp_path, small())
    store.append_run(run_of([("T", 1, b"x")] * 100))
    fill_queue(store, 3 * PER_FILE)
    store.inspect().retention.safe_end = lambda: store.log_max
    mark(store)
    at_use(store, 99)
    assert clean(store) == 3
    assert (store.min_offset("T", 1), store.max_offset("T", 1)) == (100, 100)
    assert queue_files(tmp_path, 1) == [50]
    assert store.read("T", 1, 99).status is ReadStatus.OFFSET_TOO_SMALL
    assert store.read("T", 1, 100).status is ReadStatus.OFFSET_OVERFLOW_ONE
    store.close()
    again = open_small(tmp_path, small())
    assert (again.min_offset("T", 1), again.max_offset("T", 1)) == (100, 100)
    assert again.append_run(run_of([("T", 1, b"y")])).queue_offsets.tolist() == [100]
    settle(again)
    assert bodies_of(again, "T", 1) == [b"y"]


def test_offsets_are_not_given_twice_when_a_crash_follows_a_deletion(tmp_path: Path) -> None:
    store = open_small(tmp_path / "live", small())
    store.append_run(run_of([("T", 1, b"x")] * 100))
    fill_queue(store, 3 * PER_FILE)
    mark(store)
    at_use(store, 99)
    assert clean(store) == 3
    again = open_small(crashed_copy(tmp_path / "live", tmp_path / "crashed"), small())
    assert again.log_min == store.log_min
    assert again.append_run(run_of([("T", 1, b"y")])).queue_offsets.tolist() == [100]


def test_queue_files_that_a_crash_left_behind_go_at_the_next_look(tmp_path: Path) -> None:
    store = filled(tmp_path / "live", 4)
    mark(store)
    at_use(store, 99)
    store.inspect().retention._followers = []
    clean(store)
    crashed = crashed_copy(tmp_path / "live", tmp_path / "crashed")
    again = open_small(crashed, small())
    assert again.min_offset("T", 0) == 3 * PER_FILE
    assert len(queue_files(crashed)) == 21
    clean(again)
    assert queue_files(crashed) == [3 * PER_FILE // 50 * 50]


def test_queues_give_up_expired_files_on_demand_though_the_log_has_not_moved(tmp_path: Path) -> None:
    store = filled(tmp_path, 4)
    mark(store)
    at_use(store, 99)
    clean(store)
    (tmp_path / "consumequeue" / "T" / "0" / f"{0:020}").write_bytes(bytes(1000))
    clean(store)
    assert queue_files(tmp_path)[0] == 0
    store.follow_soon()
    clean(store)
    assert queue_files(tmp_path)[0] > 0


def test_a_follower_that_fails_is_called_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def failing_once(log_min: int) -> None:
        calls.append(log_min)
        if len(calls) == 1:
            raise OSError(5, "Input/output error")

    store = filled(tmp_path, 2)
    store.inspect().retention._followers = [failing_once]
    at_use(store, 99)
    with pytest.raises(OSError, match="Input/output"):
        clean(store)
    clean(store)
    clean(store)
    assert calls == [FILE_SIZE, FILE_SIZE]


def test_a_queue_whose_files_cannot_be_deleted_keeps_no_other_queue_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path, small())
    for first in range(0, 400, 50):
        for topic in ("T", "U"):
            fill_queue(store, 50, topic=topic, first=first)
    mark(store)

    def failing(queue: ConsumeQueue, log_min: int) -> int:
        if queue.folder.parent.name == "T":
            raise OSError(5, "Input/output error")
        return expire_queue(queue, log_min)

    monkeypatch.setattr("dejamq_broker.store.retention.expire_queue", failing)
    follow = follow_queues(store.inspect().queues)
    with pytest.raises(OSError, match="Input/output"):
        follow(FILE_SIZE)
    assert (store.min_offset("T", 0), store.min_offset("U", 0) > 100) == (0, True)
    monkeypatch.undo()
    follow_queues(store.inspect().queues)(FILE_SIZE)
    assert store.min_offset("T", 0) > 100


def test_index_files_that_end_before_the_log_begins_go_with_it(tmp_path: Path) -> None:
    store = open_small(tmp_path, small(max_hash_slot_num=100, max_index_num=200))
    for number in range(600):
        properties = encode_properties({"KEYS": f"key-{number}"})
        store.put(Record("T", 0, b"x" * 200, properties))
    settle(store)
    assert store.inspect().late.catch_up()
    store.inspect().retention.safe_end = lambda: store.log_max
    before = len(list((tmp_path / "index").iterdir()))
    at_use(store, 88)
    assert clean(store) == 2
    first = store.min_offset("T", 0)
    assert 0 < len(list((tmp_path / "index").iterdir())) < before
    found = {number: len(store.query(KeyQuery("T", f"key-{number}")).records) for number in (0, first - 1, first, 599)}
    assert found == {0: 0, first - 1: 0, first: 1, 599: 1}


@pytest.mark.parametrize("lost", [["consumequeue"], ["consumequeue", "dispatched.json"], ["dispatched.json"]])
def test_queues_that_are_made_again_after_an_expiry_keep_their_offsets(tmp_path: Path, lost: list[str]) -> None:
    store = filled(tmp_path, 4)
    at_use(store, 88)
    clean(store)
    fill_queue(store, 100, first=3 * PER_FILE + 1)
    settle(store)
    store.close()
    for name in lost:
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = open_small(tmp_path, small())
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (3 * PER_FILE, 3 * PER_FILE + 101)
    assert bodies_of(again) == bodies(101, first=3 * PER_FILE)


def test_a_store_that_lost_its_beginning_is_whole_to_whoever_verifies_it(tmp_path: Path) -> None:
    store = filled(tmp_path, 4)
    at_use(store, 88)
    clean(store)
    store.close()
    assert dump_main([str(tmp_path)]) == 0
    assert verify_main([str(tmp_path)]) == 0


# What readers meet.


def test_a_reader_in_an_expired_file_is_told_twice(tmp_path: Path) -> None:
    store = filled(tmp_path, 3)
    at_use(store, 99)
    followers, store.inspect().retention._followers = store.inspect().retention._followers, []
    clean(store)
    removing = store.read("T", 0, 10)
    assert (removing.status, removing.records) == (ReadStatus.MESSAGE_WAS_REMOVING, b"")
    store.inspect().retention._followers, store.inspect().retention._followed = followers, -1
    clean(store)
    late = store.read("T", 0, removing.next_offset)
    assert (late.status, late.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, 2 * PER_FILE)


def test_a_read_across_the_beginning_gives_what_is_left(tmp_path: Path) -> None:
    store = filled(tmp_path, 3)
    at_use(store, 99)
    store.inspect().retention._followers = []
    clean(store)
    found = store.read("T", 0, 2 * PER_FILE - 10)
    assert (found.status, len(found.sizes), found.next_offset) == (ReadStatus.FOUND, 1, 2 * PER_FILE + 1)
    assert decode(found.records).body == bodies(1, first=2 * PER_FILE)[0]


@pytest.mark.parametrize("step", ["at", "view"])
def test_a_file_that_goes_during_a_read_takes_no_other_bytes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Between the choice of what to answer and the look, and between two looks."""
    store = filled(tmp_path, 4)
    at_use(store, 99)
    files, real, calls = store.inspect().log.files, getattr(store.inspect().log.files, step), []

    def slow(*arguments: int) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            files.remove_first()
        return real(*arguments)

    monkeypatch.setattr(files, step, slow)
    found = store.read("T", 0, PER_FILE - 10)
    assert [decode(found.records, at).queue_offset for at in range(0, len(found.records), 192)] == list(
        range(PER_FILE, PER_FILE + 22)
    )
    assert (found.status, found.next_offset) == (ReadStatus.FOUND, PER_FILE + 22)


def test_a_queue_file_that_goes_during_a_read_means_an_offset_that_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path, 4)
    store.close()
    store = open_small(tmp_path, small())
    store.inspect().retention.safe_end = lambda: store.log_max
    at_use(store, 99)

    def slow(queue: ConsumeQueue, queue_offset: int, count: int) -> object:
        monkeypatch.undo()
        clean(store)
        return queue.entries(queue_offset, count)

    monkeypatch.setattr(ConsumeQueue, "entries", slow)
    late = store.read("T", 0, 10)
    assert (late.status, late.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, 3 * PER_FILE)


def test_readers_of_expiring_files_never_get_wrong_bytes(tmp_path: Path, seed: int) -> None:
    store = open_small(tmp_path, small(delete_file_batch_max=3, mapped_file_size_consume_queue=20_000))
    store.inspect().log.files._kept_open = 2
    store.inspect().retention.safe_end = lambda: store.log_max
    stop = threading.Event()
    met: set[ReadStatus] = set()
    wrong: list[object] = []

    def read_about(chance: random.Random) -> None:
        try:
            while not stop.is_set():
                low, high = store.min_offset("T", 0), store.max_offset("T", 0)
                at = max(0, chance.randint(low - PER_FILE, max(low, min(high, low + 2 * PER_FILE))))
                result = store.read("T", 0, at, max_messages=100, max_bytes=1 << 20)
                met.add(result.status)
                place = 0
                for size in result.sizes:
                    record = decode(result.records, place)
                    assert record.body.startswith(b"%08d" % record.queue_offset)
                    assert at <= record.queue_offset < result.next_offset
                    place += size
                assert place == len(result.records)
                stop.wait(0.001)  # for whoever else needs the interpreter
        except Exception as error:
            wrong.append(error)

    readers = [threading.Thread(target=read_about, args=(random.Random(seed + number),)) for number in range(2)]
    for reader in readers:
        reader.start()
    at_use(store, 88)
    deleted = sent = 0
    while deleted < 100 and not wrong:
        fill_queue(store, 2 * PER_FILE, first=sent)
        sent += 2 * PER_FILE
        deleted += clean(store)
    stop.set()
    for reader in readers:
        reader.join(10)
    assert wrong == []
    assert met >= {ReadStatus.FOUND, ReadStatus.OFFSET_TOO_SMALL}
    assert met <= {
        ReadStatus.FOUND, ReadStatus.OFFSET_TOO_SMALL, ReadStatus.MESSAGE_WAS_REMOVING, ReadStatus.OFFSET_OVERFLOW_ONE,
        ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE,
    }  # fmt: skip


@pytest.mark.process
def test_a_process_that_lists_a_store_is_not_disturbed_by_files_that_expire(tmp_path: Path) -> None:
    store = open_small(tmp_path, small())
    store.inspect().retention.safe_end = lambda: store.log_max
    at_use(store, 88)
    stop = threading.Event()

    def live() -> None:
        sent = 0
        while not stop.wait(0.001):
            fill_queue(store, PER_FILE, first=sent)
            sent += PER_FILE
            clean(store)

    living = threading.Thread(target=live)
    living.start()
    command = [sys.executable, "-m", "dejamq_broker.store.dump", str(tmp_path)]
    try:
        listings = [subprocess.run(command, capture_output=True, text=True, check=False, timeout=30) for _ in range(3)]
    finally:
        stop.set()
        living.join(10)
    assert [(listing.returncode, listing.stderr) for listing in listings] == [(0, "")] * 3
    assert store.log_min > 0
