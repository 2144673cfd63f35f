"""What a start makes of what it finds: torn tails, damage, missing queues, foreign files, two owners."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_broker.store import StoreClosed, StoreConfig, StoreDamaged, StoreError, StoreLocked
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.offline.verify import verify
from dejamq_proto.codes import ConfigError
from store_making import (
    SMALL,
    bodies,
    bodies_of,
    crashed_copy,
    fill_queue,
    log_files,
    open_small,
    overwrite,
    records_of,
    run_of,
    settle,
)

RECORD_SIZE = 192  # of a body of 100 bytes in topic T


def made(directory: Path, count: int = 100) -> list[bytes]:
    """A store closed cleanly, with one queue."""
    store = open_small(directory)
    sent = fill_queue(store, count)
    settle(store)
    store.close()
    return sent


def snapshot(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_clean_stop_and_start_keep_everything(tmp_path: Path) -> None:
    sent = made(tmp_path, 900)
    assert not (tmp_path / "abort").exists()
    store = open_small(tmp_path)
    assert store.clean_start
    assert not store.recovery.queues_rebuilt
    assert bodies_of(store) == sent
    assert store.append_run(run_of([("T", 0, b"next")])).queue_offsets.tolist() == [900]
    settle(store)
    assert bodies_of(store) == [*sent, b"next"]
    store.close()


def test_an_empty_store_opens_closes_and_opens(tmp_path: Path) -> None:
    open_small(tmp_path / "new").close()
    store = open_small(tmp_path / "new")
    assert (store.log_min, store.log_max, store.queues()) == (0, 0, [])
    store.close()


def test_a_copy_taken_in_mid_flight_has_everything_and_is_no_clean_start(tmp_path: Path) -> None:
    store = open_small(tmp_path / "live")
    sent = fill_queue(store, 700)
    copy = crashed_copy(tmp_path / "live", tmp_path / "copy")
    store.close()
    again = open_small(copy)
    assert not again.clean_start
    assert bodies_of(again) == sent
    assert [record.queue_offset for record in records_of(again)] == list(range(700))
    again.close()


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("torn", [1, 8, 100, 150, RECORD_SIZE])
def test_a_torn_last_record_is_cut_kept_beside_and_written_over(tmp_path: Path, abort: bool, torn: int) -> None:
    sent = made(tmp_path)
    end = 100 * RECORD_SIZE
    overwrite(log_files(tmp_path)[0], end - torn, b"\xff" * torn)
    if abort:
        (tmp_path / "abort").write_text("1")
    store = open_small(tmp_path)
    assert bodies_of(store) == sent[:-1]
    assert store.log_max == end - RECORD_SIZE
    assert store.recovery.entries_truncated == 1
    (cut,) = store.recovery.cuts
    assert cut.log_offset == end - RECORD_SIZE
    kept = Path(cut.kept)
    assert kept == tmp_path / "cut" / f"{0:020d}.cut-{end - RECORD_SIZE}"
    assert kept.read_bytes().endswith(b"\xff" * torn)
    assert kept.stat().st_size == RECORD_SIZE
    assert store.append_run(run_of([("T", 0, b"new")])).queue_offsets.tolist() == [99]
    settle(store)
    store.close()
    again = open_small(tmp_path)
    assert bodies_of(again) == [*sent[:-1], b"new"]
    assert again.recovery.cuts == ()
    again.close()


def test_damage_that_good_records_follow_is_kept_and_reported(tmp_path: Path) -> None:
    sent = made(tmp_path)
    overwrite(log_files(tmp_path)[0], 40 * RECORD_SIZE + 95, b"damage")
    store = open_small(tmp_path)
    (damage,) = store.recovery.damages
    assert (damage.log_offset, damage.end) == (40 * RECORD_SIZE, 41 * RECORD_SIZE)
    assert "CRC" in damage.reason
    assert store.recovery.cuts == ()
    assert bodies_of(store) == sent[:40] + sent[41:]
    assert store.max_offset("T", 0) == 100
    assert store.append_run(run_of([("T", 0, b"next")])).queue_offsets.tolist() == [100]
    store.close()


def test_damage_found_while_rebuilding_leaves_a_gap_in_the_queue_not_a_shift(tmp_path: Path) -> None:
    made(tmp_path)
    overwrite(log_files(tmp_path)[0], 40 * RECORD_SIZE + 95, b"damage")
    shutil.rmtree(tmp_path / "consumequeue")
    store = open_small(tmp_path)
    assert [record.queue_offset for record in records_of(store)] == [*range(40), *range(41, 100)]
    store.close()


def test_damage_cuts_where_the_setting_says_so(tmp_path: Path) -> None:
    sent = made(tmp_path)
    overwrite(log_files(tmp_path)[0], 40 * RECORD_SIZE + 95, b"damage")
    config = StoreConfig(mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=1000, cut_at_damage=True)
    store = open_small(tmp_path, config)
    assert bodies_of(store) == sent[:40]
    assert store.log_max == 40 * RECORD_SIZE
    ending_zeros = 2  # the length of no properties
    assert Path(store.recovery.cuts[0].kept).stat().st_size == 60 * RECORD_SIZE - ending_zeros
    store.close()


def test_a_tail_that_begins_in_an_earlier_file_is_cut_through_all_files(tmp_path: Path) -> None:
    sent = made(tmp_path, 900)
    for path in log_files(tmp_path)[1:]:
        overwrite(path, 0, b"\xff" * 65_536)
    (tmp_path / "abort").write_text("1")
    (tmp_path / "dispatched.json").unlink()
    store = open_small(tmp_path)
    stored = store.max_offset("T", 0)
    assert 300 < stored < 350
    assert bodies_of(store) == sent[:stored]
    assert len(store.recovery.cuts) == 2
    assert store.append_run(run_of([("T", 0, b"x" * 1000)])).queue_offsets.tolist() == [stored]
    again = open_small(crashed_copy(tmp_path, tmp_path.with_name("again")))
    assert not again.recovery.cuts
    assert not again.recovery.damages
    assert bodies_of(again) == [*sent[:stored], b"x" * 1000]


def test_deleted_queues_are_rebuilt_from_the_log(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    sent = fill_queue(store, 300)
    other = fill_queue(store, 20, topic="U", queue_id=3)
    settle(store)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue" / "U")
    (tmp_path / "consumequeue" / "T" / "0" / f"{1000:020d}").write_bytes(bytes(1000))
    for path in sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())[2:]:
        path.unlink()
    again = open_small(tmp_path)
    assert again.recovery.queues_rebuilt
    assert bodies_of(again) == sent
    assert bodies_of(again, "U", 3) == other
    assert again.append_run(run_of([("U", 3, b"next")])).queue_offsets.tolist() == [20]
    again.close()


def test_a_queue_longer_than_the_log_is_truncated(tmp_path: Path) -> None:
    sent = made(tmp_path, 400)
    for path in log_files(tmp_path)[1:]:
        path.unlink()
    store = open_small(tmp_path)
    stored = store.max_offset("T", 0)
    assert 300 < stored < 350
    assert store.recovery.entries_truncated == 400 - stored
    assert bodies_of(store) == sent[:stored]
    store.append_run(run_of([("T", 0, b"next")]))
    settle(store)
    assert bodies_of(store) == [*sent[:stored], b"next"]
    store.close()


def test_an_empty_log_empties_the_queues(tmp_path: Path) -> None:
    made(tmp_path)
    shutil.rmtree(tmp_path / "commitlog")
    store = open_small(tmp_path)
    assert store.max_offset("T", 0) == 0
    store.close()


def test_a_log_that_begins_late_serves_what_is_left(tmp_path: Path) -> None:
    sent = made(tmp_path, 900)
    log_files(tmp_path)[0].unlink()
    store = open_small(tmp_path)
    low = store.min_offset("T", 0)
    assert store.log_min == 65_536
    assert bodies_of(store) == sent[low:]
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    again = open_small(tmp_path)
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (low, 900)
    assert bodies_of(again) == sent[low:]
    again.close()


@pytest.mark.parametrize("name", ["readme.txt", "123", "00000000000000000007", "00000000000000000000.bak"])
def test_a_foreign_file_in_the_log_stops_the_start_and_nothing_is_touched(tmp_path: Path, name: str) -> None:
    made(tmp_path)
    (tmp_path / "commitlog" / name).write_bytes(b"mine")
    before = snapshot(tmp_path)
    with pytest.raises(StoreDamaged, match="move it away") as refused:
        open_small(tmp_path)
    assert "\n" not in str(refused.value)
    assert name in str(refused.value)
    assert snapshot(tmp_path) == before


def test_a_log_file_of_another_size_stops_the_start(tmp_path: Path) -> None:
    made(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(StoreDamaged, match=r"65536 bytes instead of 131072.*mapped_file_size_commit_log=65536"):
        open_small(tmp_path, StoreConfig(mapped_file_size_commit_log=131_072, mapped_file_size_consume_queue=1000))
    assert snapshot(tmp_path) == before


def test_a_missing_log_file_between_two_stops_the_start(tmp_path: Path) -> None:
    made(tmp_path, 900)
    log_files(tmp_path)[1].unlink()
    with pytest.raises(StoreDamaged, match="is missing between two others"):
        open_small(tmp_path)


def test_a_last_log_file_of_length_zero_is_replaced(tmp_path: Path) -> None:
    sent = made(tmp_path)
    (tmp_path / "commitlog" / f"{65_536:020d}").touch()
    store = open_small(tmp_path)
    assert bodies_of(store) == sent
    fill_queue(store, 400, first=100)
    settle(store)
    assert len(bodies_of(store)) == 500
    store.close()


def test_a_second_owner_in_this_process_is_refused(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    with pytest.raises(StoreLocked, match=f"{tmp_path}.*process {os.getpid()}"):
        open_small(tmp_path)
    store.append_run(run_of([("T", 0, b"still works")]))
    store.close()
    open_small(tmp_path).close()


def test_a_directory_that_cannot_be_locked_is_not_called_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("dejamq_broker.store.files.directory_lock.fcntl.fcntl", no_locks)
    with pytest.raises(StoreError, match="No locks available; choose another directory") as refused:
        open_small(tmp_path)
    assert not isinstance(refused.value, StoreLocked)


def test_a_stop_that_fails_gives_the_directory_back_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path)
    sent = fill_queue(store, 10)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fail)
        with pytest.raises(OSError, match="Input/output"):
            store.close()
    again = open_small(tmp_path)
    assert not again.clean_start
    assert bodies_of(again) == sent


@pytest.mark.process
def test_a_second_process_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    program = (
        "import sys\nfrom dejamq_broker.store import *\n"
        "try:\n    MessageStore.open(sys.argv[1], StoreConfig(), clock_ms=lambda: 1)\n"
        "except StoreLocked as error:\n    print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert f"process {os.getpid()}" in told.stdout
    store.close()


@pytest.mark.parametrize("name", [b"T/\xc2\xb2", b"T/01", b"T/x", b"\xff\xfe/0", b"file"])
def test_what_no_broker_made_among_the_queues_is_passed_over(tmp_path: Path, name: bytes) -> None:
    sent = made(tmp_path)
    place = bytes(tmp_path / "consumequeue") + b"/" + name
    if name == b"file":
        Path(os.fsdecode(place)).touch()
    else:
        os.makedirs(place)
    store = open_small(tmp_path)
    assert store.queues() == [("T", 0)]
    assert bodies_of(store) == sent
    store.close()
    assert verify(StorePaths(tmp_path)).verdict == "whole"


def test_abort_says_who_runs_and_goes_with_a_clean_stop(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    store.close()
    assert not (tmp_path / "abort").exists()


def test_a_path_that_is_no_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be a store"):
        open_small(tmp_path / "file")


def test_a_store_that_did_not_open_leaves_no_lock_and_no_thread(tmp_path: Path) -> None:
    made(tmp_path)
    stray = tmp_path / "commitlog" / "stray"
    stray.touch()
    with pytest.raises(StoreDamaged):
        open_small(tmp_path)
    stray.unlink()
    store = open_small(tmp_path)
    store.close()
    with pytest.raises(StoreClosed):
        store.record_at(0)


@pytest.mark.parametrize(
    "config",
    [
        StoreConfig(mapped_file_size_consume_queue=1001),
        StoreConfig(mapped_file_size_commit_log=100),
        StoreConfig(flush_disk_type="SOMETIMES"),
        StoreConfig(message_delay_level="1s soon"),
        StoreConfig(flush_interval_commit_log_ms=0),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_made(tmp_path: Path, config: StoreConfig) -> None:
    with pytest.raises(ConfigError):
        open_small(tmp_path / "store", config)
    assert not (tmp_path / "store").exists()


def test_the_largest_possible_body_of_random_looking_magics_is_one_record(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    body = b"\xda\xa3\x20\xa7" * 2000
    store.append_run(run_of([("T", 0, body), *(("T", 0, other) for other in bodies(10))]))
    store.close()
    overwrite(log_files(tmp_path)[0], 0, b"\x00\x00\x00\x01")
    (tmp_path / "dispatched.json").unlink()
    again = open_small(tmp_path)
    assert again.recovery.damages[0].end == len(body) + 92
    assert bodies_of(again) == bodies(10)
    assert SMALL.sync_flush is False
    again.close()
