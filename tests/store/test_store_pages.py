"""Pages of the log that are there before records come."""

import ctypes
import mmap
import os
import subprocess
from math import inf
from pathlib import Path

import pytest
from dejamq_broker.store import SYNC_FLUSH, StoreConfig
from dejamq_broker.store.files.file_queue import FileQueue
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.log import pages_ahead
from dejamq_broker.store.log.next_file import NextFile
from dejamq_broker.store.log.pages_ahead import PagesAhead, ZerosAhead
from store_making import bodies_of, log_files, open_small, run_of, until

STEP, FILE = 64 << 10, 256 << 10
Asked = list[tuple[int, int]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """(log offset, bytes) of what the kernel is asked for."""
    calls: Asked = []
    monkeypatch.setattr(MappedFile, "expect", lambda file, at, size: calls.append((file.start + at, size)))
    return calls


def log_of(directory: Path, count: int = 1) -> tuple[FileQueue, NextFile, PagesAhead]:
    """A log of so many files, and nothing made ahead."""
    files = FileQueue(directory, FILE)
    files.load()
    ahead = NextFile(files, lambda: 0)
    for number in range(count):
        files.add(ahead.take(number * FILE))
    return files, ahead, PagesAhead(files, ahead)


def steps(pages: PagesAhead, log_end: int, now: float = 0.0) -> int:
    """Of a log that grows all the time, or, long after 0, of one that does not."""
    count = 0
    while pages.step(log_end, now) < inf:
        count += 1
    return count


def test_pages_are_asked_for_from_the_end_of_the_log_to_that_of_the_file_made_ahead(
    tmp_path: Path, asked: Asked
) -> None:
    _, ahead, pages = log_of(tmp_path)
    ahead.prepare(FILE)
    assert steps(pages, FILE - STEP - 100) == 2 + FILE // STEP
    assert asked[:3] == [(FILE - STEP - 100, STEP), (FILE - 100, 100), (FILE, STEP)]
    assert asked[-1] == (2 * FILE - STEP, STEP)


def test_a_file_made_later_is_gone_on_with(tmp_path: Path, asked: Asked) -> None:
    _, ahead, pages = log_of(tmp_path)
    assert steps(pages, FILE - STEP) == 1
    ahead.prepare(FILE - STEP)
    assert steps(pages, FILE - STEP) == FILE // STEP
    assert len(set(asked)) == len(asked)


def test_what_the_log_has_reached_is_not_asked_for(tmp_path: Path, asked: Asked) -> None:
    _, _, pages = log_of(tmp_path)
    pages.step(0, 0.0)
    pages.step(3 * STEP, 0.0)
    assert asked == [(0, STEP), (3 * STEP, STEP)]


def test_steps_are_large_where_nobody_appends(tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_ahead, "QUIET_STEP", FILE)
    _, _, pages = log_of(tmp_path, 2)
    pages.busy = lambda: False
    pages.step(100, 1.0)
    pages.step(100, 1.01)
    pages.step(100, 1.03)
    pages.step(200, 1.04)
    assert [size for _, size in asked] == [STEP, STEP, FILE - 2 * STEP - 100, STEP]


def test_where_the_log_does_not_grow_pages_wait_for_who_is_at_work(tmp_path: Path, asked: Asked) -> None:
    _, _, pages = log_of(tmp_path)
    answers = iter([True, False])
    pages.busy = lambda: next(answers)
    assert pages.step(0, 1.0) == pages.step(0, 1.05) == pages_ahead.LOOK_S
    assert asked == []
    pages.step(0, 1.2)
    assert len(asked) == 1


def test_ahead_of_a_log_that_grows_pages_are_asked_for_whoever_is_at_work(tmp_path: Path, asked: Asked) -> None:
    _, _, pages = log_of(tmp_path)
    pages.busy = lambda: True
    pages.step(100, 1.0)
    pages.step(200, 1.01)
    assert len(asked) == 2


def test_no_more_pages_are_asked_for_than_a_flood_fills_soon(
    tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_ahead, "FAR", 2 * STEP)
    _, _, pages = log_of(tmp_path)
    assert steps(pages, 0) == 2
    assert steps(pages, 1) == 1
    assert asked[-1] == (2 * STEP, STEP)


def test_a_file_whose_pages_cannot_be_had_is_told_once_and_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(file: MappedFile, at: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    _, _, pages = log_of(tmp_path)
    monkeypatch.setattr(MappedFile, "expect", broken)
    assert steps(pages, 0) == 1
    assert caplog.text.count("log_pages_not_ahead") == 1


def test_pages_that_were_asked_for_are_in_memory_and_as_the_file_was(tmp_path: Path) -> None:
    if kind_of_disk(tmp_path) == "tmpfs":
        pytest.skip("the files of a tmpfs have no pages but those that were written")
    file = MappedFile.create(tmp_path / "0", 0, FILE)
    file.write(STEP, b"record")
    assert not in_memory(file)
    file.expect(0, FILE)
    until(lambda: in_memory(file))
    assert file.peek(0, FILE) == bytes(STEP) + b"record" + bytes(FILE - STEP - 6)


@pytest.mark.parametrize("call", ["posix_fadvise", "posix_fallocate"])
def test_a_file_that_another_thread_closes_meanwhile_keeps_its_descriptor_until_the_call_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    file = MappedFile.create(tmp_path / "0", 0, FILE)
    seen: list[int] = []

    def closed_meanwhile(descriptor: int, *_: int) -> None:
        file.close()
        seen.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, call, closed_meanwhile)
    file.expect(0, FILE) if call == "posix_fadvise" else file.reserve()
    assert seen == [FILE]


def kind_of_disk(path: Path) -> str:
    return subprocess.check_output(["stat", "-f", "-c", "%T", path], text=True).strip()


def in_memory(file: MappedFile) -> bool:
    """Whether all its pages are, by ``mincore``."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = (ctypes.c_ubyte * (FILE // mmap.PAGESIZE))()
    with file.path.open("r+b") as opened, mmap.mmap(opened.fileno(), FILE) as mapping:
        begin = ctypes.c_char.from_buffer(mapping)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(begin)), ctypes.c_size_t(FILE), pages)
        del begin
    assert not failed, os.strerror(ctypes.get_errno())
    return all(page & 1 for page in pages)


def test_the_very_first_file_is_made_and_has_its_pages_before_anything_comes(tmp_path: Path) -> None:
    store = open_small(tmp_path, StoreConfig(mapped_file_size_commit_log=1 << 20))
    until(lambda: store.inspect().flusher.pages.reached == 1 << 20)
    first = tmp_path / "commitlog" / f"{0:020d}"
    assert first.stat().st_blocks * 512 >= 1 << 20
    store.append_run(run_of([("T", 0, b"x")]))
    assert [path.name for path in log_files(tmp_path)] == [first.name]
    store.close()
    assert log_files(tmp_path) == [first]


def noted_zeros(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, bool]]:
    """Where zeros were written, how many, and whether they were synced then."""
    wrote: list[tuple[int, int, bool]] = []
    real = NextFile.write_zeros

    def note(ahead: NextFile, file: MappedFile, at: int, size: int, *, sync: bool) -> None:
        wrote.append((at, size, sync))
        real(ahead, file, at, size, sync=sync)

    monkeypatch.setattr(NextFile, "write_zeros", note)
    return wrote


def test_with_sync_flush_the_very_first_file_is_full_of_zeros_that_are_on_disk_before_anything_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote = noted_zeros(monkeypatch)
    store = open_small(tmp_path, StoreConfig(mapped_file_size_commit_log=1 << 20, flush_disk_type=SYNC_FLUSH))
    until(lambda: store.inspect().flusher.pages.reached == 1 << 20)
    step = pages_ahead.QUIET_ZEROS
    assert wrote == [(at, step, at + step == 1 << 20) for at in range(0, 1 << 20, step)]
    store.durable(store.append_run(run_of([("T", 0, b"x")])).end_log_offset).result(timeout=10)
    store.close()
    assert bodies_of(open_small(tmp_path, StoreConfig(mapped_file_size_commit_log=1 << 20))) == [b"x"]


def idle_zeros(files: FileQueue, ahead: NextFile, monkeypatch: pytest.MonkeyPatch) -> ZerosAhead:
    """Of a broker that has nothing to do."""
    monkeypatch.setattr(pages_ahead, "QUIET_ZEROS", STEP)
    zeros = ZerosAhead(files, ahead)
    zeros.busy = lambda: False
    return zeros


def test_zeros_are_for_the_file_made_ahead_and_never_for_one_that_the_log_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, ahead, _ = log_of(tmp_path)
    zeros = idle_zeros(files, ahead, monkeypatch)
    assert zeros.step(0, 1.0) == inf
    ahead.prepare(FILE)
    zeros.step(0, 1.1)
    assert zeros.reached == FILE + STEP
    taken = ahead.take(FILE)
    files.add(taken)
    taken.write(STEP, b"record")
    assert zeros.step(0, 1.2) == inf
    assert taken.peek(STEP, 6) == b"record"


def test_no_zeros_are_written_while_the_log_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, ahead, _ = log_of(tmp_path)
    zeros = idle_zeros(files, ahead, monkeypatch)
    wrote = noted_zeros(monkeypatch)
    ahead.prepare(FILE)
    assert zeros.step(100, 1.0) == zeros.step(200, 1.01) == pages_ahead.LOOK_S
    assert wrote == []
    zeros.step(200, 1.2)
    assert wrote == [(0, STEP, False)]


def test_a_step_of_zeros_that_comes_when_the_file_was_just_taken_writes_nothing(tmp_path: Path) -> None:
    _, ahead, _ = log_of(tmp_path)
    ahead.prepare(FILE)
    taken = ahead.take(FILE)
    taken.write(0, b"record")
    ahead.write_zeros(taken, 0, STEP, sync=True)
    assert taken.peek(0, 6) == b"record"


def test_zeros_are_synced_some_at_once_and_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, ahead, _ = log_of(tmp_path)
    zeros = idle_zeros(files, ahead, monkeypatch)
    monkeypatch.setattr(pages_ahead, "ZEROS_AT_ONCE", 3 * STEP)
    wrote = noted_zeros(monkeypatch)
    ahead.prepare(FILE)
    assert steps(zeros, 0, 1.0) == FILE // STEP
    assert [at + size for at, size, sync in wrote if sync] == [3 * STEP, FILE]


def test_a_file_that_was_discarded_and_made_again_gets_its_zeros_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, ahead, _ = log_of(tmp_path)
    zeros = idle_zeros(files, ahead, monkeypatch)
    ahead.prepare(FILE)
    assert steps(zeros, 0, 1.0) == FILE // STEP
    ahead.discard()
    assert zeros.step(0, 1.5) == inf
    ahead.prepare(FILE)
    assert steps(zeros, 0, 2.0) == FILE // STEP


def test_zeros_that_find_no_room_are_told_once_and_the_file_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(descriptor: int, data: bytes, at: int) -> int:
        raise OSError(28, "No space left on device")

    files, ahead, _ = log_of(tmp_path)
    zeros = idle_zeros(files, ahead, monkeypatch)
    ahead.prepare(FILE)
    monkeypatch.setattr(os, "pwrite", no_room)
    assert steps(zeros, 0, 1.0) == 1
    assert caplog.text.count("log_pages_not_ahead") == 1
