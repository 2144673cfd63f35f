"""What an open store holds: mappings, descriptors, memory, and files made before they are needed."""

import dataclasses
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import prove_memory
import pytest
from dejamq_broker.store.files.file_queue import FileQueue
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.log.batch import QueueTable
from dejamq_broker.store.log.next_file import NextFile
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from dejamq_broker.store.queues.consume_queues import ConsumeQueues
from dejamq_broker.store.queues.entry_files import ENTRY
from store_making import SMALL, bodies_of, fill_queue, log_files, open_small, settle, until

SIZE = 4096


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def file_queue(folder: Path, count: int, *, kept_open: int) -> FileQueue:
    """Each file begins with its own number."""
    files = FileQueue(folder, SIZE, kept_open=kept_open)
    files.load()
    for number in range(count):
        file = MappedFile.create(files.path(number * SIZE), number * SIZE, SIZE)
        files.add(file)
        file.write(0, b"%08d" % number)
    return files


def open_starts(files: FileQueue) -> list[int]:
    return [file.start // SIZE for file in files.files if file.is_open]


# Mappings.


def test_of_many_files_few_stay_mapped_and_all_can_be_read(tmp_path: Path) -> None:
    before = descriptors()
    files = file_queue(tmp_path, 50, kept_open=4)
    assert len(open_starts(files)) == 4
    assert [files.read(number * SIZE, 8) for number in range(50)] == [b"%08d" % number for number in range(50)]
    assert len(open_starts(files)) == 4
    assert descriptors() <= before + 2 * 4
    files.close()
    assert descriptors() <= before


def test_those_read_last_and_the_one_that_is_written_stay_mapped(tmp_path: Path) -> None:
    files = file_queue(tmp_path, 10, kept_open=4)
    for number in (1, 2, 3, 1, 5):
        files.read(number * SIZE, 8)
    assert open_starts(files) == [1, 3, 5, 9]


def test_a_file_that_is_no_longer_mapped_is_synced_without_mapping_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    file = MappedFile.create(tmp_path / "a", 0, SIZE)
    file.write(0, b"x")
    file.close()
    file.sync()
    assert len(synced) == 1
    assert not file.is_open


def test_a_reader_finishes_on_a_mapping_that_was_closed_under_it(tmp_path: Path) -> None:
    before = descriptors()
    file = MappedFile.create(tmp_path / "a", 0, SIZE)
    file.write(0, b"here")
    reader = file._opened()
    file.close()
    file.delete()
    assert reader.mapping[:4] == b"here"
    del reader
    assert descriptors() <= before


def test_a_sync_under_way_keeps_its_descriptor_though_the_file_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that is free is given to the next file that anybody opens: that one would be synced instead."""
    file = MappedFile.create(tmp_path / "a", 0, SIZE)
    file.write(0, b"x")
    targets: list[str] = []

    def slow(descriptor: int) -> None:
        file.delete()
        with (tmp_path / "other").open("wb"):
            targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fdatasync", slow)
    file.sync()
    assert targets == [f"{tmp_path}/a (deleted)"]


def test_a_deleted_file_has_no_bytes_and_nothing_to_sync(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "a", 0, SIZE)
    file.delete()
    assert file.read(0, 8) == b""
    file.sync()


def test_a_file_that_somebody_took_away_is_no_success_of_a_sync(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "a", 0, SIZE)
    file.path.unlink()
    with pytest.raises(FileNotFoundError):
        file.sync()


def test_a_file_deleted_while_it_is_being_opened_does_not_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    file = MappedFile.create(tmp_path / "a", 0, SIZE)
    real = os.open

    def slow(*arguments: object) -> int:
        monkeypatch.undo()
        descriptor = real(*arguments)  # type: ignore[arg-type]  # passed on as it came
        file.delete()
        return descriptor

    monkeypatch.setattr(os, "open", slow)
    assert file.read(0, 4) == bytes(4)
    assert not file.is_open
    assert descriptors() <= before


def test_readers_of_files_that_are_closed_all_the_time_get_every_byte(tmp_path: Path) -> None:
    before = descriptors()
    files = file_queue(tmp_path, 20, kept_open=2)
    wrong: list[object] = []

    def read_all(step: int) -> None:
        for turn in range(400):
            number = turn * step % 20
            found = files.read(number * SIZE, 8)
            if found != b"%08d" % number:
                wrong.append((number, found))

    readers = [threading.Thread(target=read_all, args=(step,)) for step in (1, 3, 7)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(30)
    assert wrong == []
    files.close()
    assert descriptors() <= before


# Descriptors.

TWO_THOUSAND_QUEUES = """
import resource, sys
sys.path.insert(0, sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from store_making import bodies_of, open_small, run_of, settle
for life in range(2):
    store = open_small(sys.argv[1])
    for queue_id in range(0, 2000, 100):
        store.append_run(run_of([("T", queue_id + number, b"%d" % life) for number in range(100)]))
    settle(store)
    for queue_id in range(2000):
        assert bodies_of(store, "T", queue_id) == [b"%d" % number for number in range(life + 1)]
    store.close()
print(len(store.queues()))
"""


@pytest.mark.slow
@pytest.mark.process
def test_two_thousand_queues_live_with_sixty_four_descriptors(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TWO_THOUSAND_QUEUES, tmp_path, Path(__file__).parent],
        capture_output=True, text=True, check=False, timeout=50,
    )  # fmt: skip
    assert (ended.stdout, ended.stderr) == ("2000\n", "")


def test_a_log_of_many_files_is_read_with_few_descriptors(tmp_path: Path) -> None:
    before = descriptors()
    store = open_small(tmp_path)
    sent = fill_queue(store, 341 * 40)
    settle(store)
    assert bodies_of(store) == sent
    assert descriptors() <= before + 50
    store.close()
    assert descriptors() <= before


# Memory.


@pytest.mark.slow
@pytest.mark.process
def test_memory_stays_flat_while_a_store_is_written_and_read() -> None:
    """The short form of ``make prove``: 256 MiB here, 10 GiB there, and one bound for both."""
    ended = subprocess.run(
        [sys.executable, prove_memory.__file__, "--mib", "256"], capture_output=True, text=True, check=False, timeout=55
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "256 MiB" in ended.stdout


# Files ahead of their need.


def next_file_of(directory: Path) -> tuple[FileQueue, NextFile]:
    files = FileQueue(directory, 1 << 18)
    files.load()
    return files, NextFile(files, lambda: 0)


def test_a_prepared_file_has_all_its_blocks_and_nothing_in_them(tmp_path: Path) -> None:
    files, ahead = next_file_of(tmp_path)
    ahead.prepare(0)
    assert files.path(0).stat().st_blocks * 512 >= 1 << 18
    assert files.path(0).read_bytes() == bytes(1 << 18)


def test_the_file_that_is_taken_is_the_prepared_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, ahead = next_file_of(tmp_path)
    ahead.prepare(0)
    monkeypatch.setattr(MappedFile, "create", never)
    files.add(ahead.take(0))
    assert files.end == 1 << 18


def never(*_: object) -> MappedFile:
    raise AssertionError("made while an append waited")


def test_the_next_file_is_prepared_once_an_eighth_of_the_last_one_is_used(tmp_path: Path) -> None:
    files, ahead = next_file_of(tmp_path)
    files.add(ahead.take(0))
    ahead.prepare((1 << 18) // 8)
    assert not files.path(1 << 18).exists()
    ahead.prepare((1 << 18) // 8 + 1)
    assert files.path(1 << 18).exists()
    ahead.discard()
    assert not files.path(1 << 18).exists()


def test_that_no_file_can_be_made_ahead_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_small(tmp_path, dataclasses.replace(SMALL, flush_interval_commit_log_ms=1))
    until(lambda: log_files(tmp_path) != [])
    tries: list[int] = []

    def no_room(log_end: int) -> None:
        tries.append(log_end)
        raise OSError(28, "No space left on device")

    # the flush thread alone prepares files: two at once would each log it
    monkeypatch.setattr(store.inspect().flusher._next_file, "prepare", no_room)
    until(lambda: len(tries) > 5)
    assert caplog.text.count("next_file_not_prepared") == 1


def test_a_store_that_got_nothing_leaves_no_log_file(tmp_path: Path) -> None:
    store = open_small(tmp_path, SMALL)
    until(lambda: log_files(tmp_path) != [])
    store.close()
    assert log_files(tmp_path) == []


def grown(folder: Path, kept: int, count: int = 5_000, run: int = 50) -> ConsumeQueue:
    """A queue that got its entries in runs, each written to its files soon after."""
    queue = ConsumeQueue(folder, 20 * 1_000, lambda: kept)
    for first in range(0, count, run):
        entries = np.zeros(run, ENTRY)
        entries["log_offset"], entries["size"] = np.arange(first, first + run) * 100, 100
        queue.append(np.arange(first, first + run), entries, entries["log_offset"].astype(np.int64) + 100)
        queue.write_out()
    return queue


def test_a_queue_keeps_its_share_in_memory_and_reads_the_rest_from_its_files(tmp_path: Path) -> None:
    small, large = grown(tmp_path / "small", 100), grown(tmp_path / "large", 4_096)
    assert len(small._tail.entries) <= 2 * (100 + 50)
    assert len(large._tail.entries) > 4_096
    for queue in (small, large):
        assert (queue.entries(4_000, 1_000)["log_offset"] == np.arange(4_000, 5_000) * 100).all()
        assert (queue.entries(0, 1_000)["log_offset"] == np.arange(1_000) * 100).all()


def test_many_queues_share_what_a_few_may_keep(tmp_path: Path) -> None:
    queues = ConsumeQueues(StorePaths(tmp_path), 20_000, QueueTable())
    first = queues._make(("T", 0))
    assert first._kept_in_memory() == 4_096
    for number in range(1, 2_000):
        queues._make(("T", number))
    assert first._kept_in_memory() * 2_000 * 40 <= 64 << 20
    assert first._kept_in_memory() > 500
