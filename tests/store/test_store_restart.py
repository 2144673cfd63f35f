"""What holds over a start, whatever it found: time, queue offsets, one reading of the log, crashes in its middle."""

import shutil
from pathlib import Path

import pytest
from dejamq_broker.store import MessageStore, StoreError
from dejamq_broker.store.files.file_queue import FileQueue
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from harm import COUNT, END, FILE, LAST, SENT, SIZE, expected, lose_mark, lose_queues, served
from store_making import START_MS, bodies_of, fill_queue, log_files, open_small, overwrite, run_of, settle, ticking


def copied(whole: Path, tmp_path: Path, *, clean: bool) -> Path:
    directory = Path(shutil.copytree(whole, tmp_path / "store"))
    if not clean:
        (directory / "abort").write_text("1")
    return directory


@pytest.mark.parametrize("clean", [True, False])
def test_store_times_do_not_go_back_when_the_clock_did(clean: bool, whole: Path, tmp_path: Path) -> None:
    directory = copied(whole, tmp_path, clean=clean)
    store = open_small(directory, clock_ms=ticking(START_MS - 3_600_000))
    last = store.recovery.last_store_timestamp_ms
    assert last >= START_MS
    assert store.append_run(run_of([("T", 0, b"x")])).store_timestamp_ms == last
    store.close()


@pytest.mark.parametrize("marked", [True, False])
def test_nor_when_the_last_file_holds_nothing_yet(marked: bool, whole: Path, tmp_path: Path) -> None:
    directory = copied(whole, tmp_path, clean=False)
    overwrite(log_files(directory)[2], 0, bytes(FILE))
    if not marked:
        lose_mark(directory)
    store = open_small(directory, clock_ms=ticking(1))
    assert store.log_max == 2 * FILE
    assert store.append_run(run_of([("T", 0, b"x")])).store_timestamp_ms >= START_MS
    store.close()


def test_a_checkpoint_from_the_future_does_not_move_the_time(whole: Path, tmp_path: Path) -> None:
    directory = copied(whole, tmp_path, clean=False)
    (directory / "checkpoint").write_bytes((1 << 62).to_bytes(8, "big") * 3 + bytes(4072))
    store = open_small(directory, clock_ms=ticking(START_MS + 5000))
    assert store.append_run(run_of([("T", 0, b"x")])).store_timestamp_ms == START_MS + 5000
    store.close()


def expire_first_file(directory: Path) -> None:
    """As retention leaves it: the log begins later, and queue U/3 has no record any more."""
    log_files(directory)[0].unlink()
    store = open_small(directory)
    assert (store.min_offset("U", 3), store.max_offset("U", 3)) == (20, 20)
    store.close()


def test_queue_offsets_of_expired_messages_are_not_given_out_again(whole: Path, tmp_path: Path) -> None:
    directory = copied(whole, tmp_path, clean=True)
    expire_first_file(directory)
    store = open_small(directory)
    assert not store.recovery.queues_rebuilt
    assert store.append_run(run_of([("U", 3, b"x")])).queue_offsets.tolist() == [20]
    store.close()


def test_not_even_when_the_queues_are_lost(whole: Path, tmp_path: Path) -> None:
    directory = copied(whole, tmp_path, clean=True)
    expire_first_file(directory)
    lose_queues(directory)
    store = open_small(directory)
    assert store.recovery.queues_rebuilt
    assert (store.min_offset("U", 3), store.max_offset("U", 3)) == (20, 20)
    assert store.append_run(run_of([("U", 3, b"later")])).queue_offsets.tolist() == [20]
    settle(store)
    store.close()
    again = open_small(directory)
    assert not again.recovery.queues_rebuilt
    assert bodies_of(again, "U", 3) == [b"later"]
    again.close()


def test_nor_in_a_store_without_a_mark(whole: Path, tmp_path: Path) -> None:
    directory = copied(whole, tmp_path, clean=True)
    expire_first_file(directory)
    lose_mark(directory)
    shutil.rmtree(directory / "consumequeue" / "T" / "1")
    store = open_small(directory)
    assert store.recovery.queues_rebuilt
    assert (store.min_offset("U", 3), store.max_offset("U", 3)) == (20, 20)
    assert store.max_offset("T", 1) == 440
    store.close()


def test_damage_stays_damage_after_a_crash_while_queues_were_made_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copied(whole, tmp_path, clean=True)
    lose_mark(directory)
    shutil.rmtree(directory / "consumequeue" / "T" / "1")
    overwrite(log_files(directory)[1], 100, b"damage")
    store = open_after_crash_in(monkeypatch, directory, ConsumeQueue, "correct_min", after=0)
    assert not store.recovery.cuts
    assert [damage.log_offset for damage in store.recovery.damages] == [FILE]
    assert served(store) == expected({341})
    store.close()


def test_a_log_that_begins_again_begins_with_queues_that_do(whole: Path, tmp_path: Path) -> None:
    directory = copied(whole, tmp_path, clean=True)
    shutil.rmtree(directory / "commitlog")
    store = open_small(directory)
    assert store.recovery.entries_truncated == COUNT
    assert store.append_run(run_of([("T", 0, b"first"), ("U", 3, b"first")])).queue_offsets.tolist() == [0, 0]
    settle(store)
    store.close()
    again = open_small(directory)
    assert bodies_of(again) == [b"first"]
    again.close()


def test_queue_offsets_of_messages_that_a_crash_lost_are_used_again(whole: Path, tmp_path: Path) -> None:
    """RocketMQ's way: with ASYNC_FLUSH a consumer may have seen a message that is then another one."""
    directory = copied(whole, tmp_path, clean=False)
    overwrite(log_files(directory)[2], LAST % FILE, bytes(SIZE))
    store = open_small(directory)
    assert store.append_run(run_of([("T", 1, b"another")])).queue_offsets.tolist() == [439]
    settle(store)
    assert bodies_of(store, "T", 1)[439] == b"another"
    store.close()


@pytest.mark.parametrize("queues", ["there", "gone"])
def test_a_start_reads_no_byte_of_the_log_twice(
    queues: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copied(whole, tmp_path, clean=False)
    if queues == "gone":
        lose_queues(directory)
    taken: list[int] = []
    read = FileQueue.read

    def counted(files: FileQueue, log_offset: int, size: int) -> bytes:
        data = read(files, log_offset, size)
        taken.append(len(data))
        return data

    monkeypatch.setattr(FileQueue, "read", counted)
    monkeypatch.setattr(MappedFile, "used", lambda file: pytest.fail("the rest is read again"))
    store = open_small(directory)
    walked = 3 * FILE - store.recovery.scanned_from
    first_records_and_blanks = 2000
    chunk_behind_the_end = 3 * FILE - END
    assert walked <= sum(taken) < walked + 2 * chunk_behind_the_end + first_records_and_blanks
    monkeypatch.undo()
    assert served(store) == expected(set())
    store.close()


def test_after_a_clean_stop_only_the_last_file_is_read(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copied(whole, tmp_path, clean=True)
    seen: list[int] = []
    read = FileQueue.read

    def noted(files: FileQueue, log_offset: int, size: int) -> bytes:
        seen.append(log_offset)
        return read(files, log_offset, size)

    monkeypatch.setattr(FileQueue, "read", noted)
    store = open_small(directory)
    assert min(seen) == 2 * FILE
    store.close()


def test_abort_stays_when_the_queues_did_not_reach_the_end(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    sent = fill_queue(store, 50)
    settle(store)

    def failing(batch: object) -> None:
        raise OSError("no")

    store.inspect().reput._dispatchers = [failing]
    store.append_run(run_of([("T", 0, b"stored all the same")]))
    with pytest.raises(StoreError, match="queues cannot grow"):
        store.append_run(run_of([("T", 0, b"refused")]))
    store.close()
    assert (tmp_path / "abort").exists()
    again = open_small(tmp_path)
    assert not again.clean_start
    assert bodies_of(again) == [*sent, b"stored all the same"]
    again.close()


class Stop(Exception):
    """A crash, as seen from inside."""


def open_after_crash_in(
    monkeypatch: pytest.MonkeyPatch, directory: Path, owner: type, name: str, *, after: int
) -> MessageStore:
    """Open a store twice: the first time nothing happens any more after so many calls of one function."""
    original = getattr(owner, name)
    calls = 0

    def stopping(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Stop
        return original(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, stopping)
        try:
            store = open_small(directory)
        except Stop:
            store = None
    if store is not None:
        store.close()
    return open_small(directory)


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("where", [(ConsumeQueue, "discard"), (ConsumeQueue, "append"), (ConsumeQueue, "correct_min")])
def test_a_crash_while_queues_are_made_again_begins_again(
    where: tuple[type, str], after: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copied(whole, tmp_path, clean=True)
    expire_first_file(directory)
    for path in (directory / "consumequeue" / "T" / "1").iterdir():
        path.unlink()
    store = open_after_crash_in(monkeypatch, directory, *where, after=after)
    assert bodies_of(store, "T", 1) == [SENT[number] for number in range(341, COUNT) if number % 2]
    assert (store.max_offset("T", 0), store.max_offset("T", 1), store.max_offset("U", 3)) == (440, 440, 20)
    store.close()


@pytest.mark.parametrize("after", range(3))
@pytest.mark.parametrize(
    "where", [(MappedFile, "clear"), (MappedFile, "delete"), (ConsumeQueue, "truncate"), (MappedFile, "sync")]
)
def test_a_crash_while_the_log_is_cut_finds_the_same_end(
    where: tuple[type, str], after: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copied(whole, tmp_path, clean=True)
    end = FILE + 100 * SIZE
    for path, at in ((log_files(directory)[1], 100 * SIZE), (log_files(directory)[2], 0)):
        overwrite(path, at, b"\xff" * (FILE - at))
    store = open_after_crash_in(monkeypatch, directory, *where, after=after)
    assert store.log_max == end
    assert store.recovery.damages == ()
    assert served(store) == expected(set(range(441, COUNT)))
    assert store.append_run(run_of([("T", 0, b"x")])).queue_offsets.tolist() == [len(range(20, 441, 2))]
    store.close()
