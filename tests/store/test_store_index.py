"""The index as a whole: RocketMQ's own files, rolling, replay, expiry, and whatever a start finds of it."""

import dataclasses
import errno
import json
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.store import MessageStore
from dejamq_broker.store.files.config import StoreConfig
from dejamq_broker.store.index.file import Bounds, IndexFile
from dejamq_broker.store.index.keys import key_hash
from dejamq_broker.store.log.catch_up import LateReader
from index_making import (
    SHAPE,
    check_findable,
    fill_keyed,
    found,
    index_bytes,
    keyed_run,
    offsets_of,
    opened_index,
    records,
)
from store_making import GOLDEN, SMALL, crashed_copy, log_files, open_small, overwrite, until

pytestmark = pytest.mark.slow

ALWAYS = Bounds(0, 1 << 60)
UNFED = dataclasses.replace(SMALL, message_index_enable=False)


@pytest.fixture(params=["clean", "crash"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / request.param / "store", tmp_path / request.param))


def brought_up(directory: Path, config: StoreConfig = SMALL) -> MessageStore:
    """A store whose index has come to the end of the log."""
    store = open_small(directory, config)
    offsets_of(store, "bring it up")
    assert store.indexed == store.log_max
    return store


def made(directory: Path, count: int = 400) -> list[int]:
    """A store closed cleanly, with three index files or so."""
    store = open_small(directory)
    offsets = fill_keyed(store, count)
    store.close()
    assert len(index_bytes(directory)) == (count * 3 + 298) // 299
    return offsets


# RocketMQ's files.


def test_an_index_made_anew_from_a_rocketmq_log_is_rocketmqs_own_bytes(golden: Path) -> None:
    original = index_bytes(golden)
    shutil.rmtree(golden / "index")
    brought_up(golden).close()
    assert len(original) == 3
    assert index_bytes(golden) == original


def test_a_rocketmq_index_is_taken_as_it_is_and_goes_on_where_it_ends(golden: Path) -> None:
    names, original = sorted(os.listdir(golden / "index")), index_bytes(golden)
    clean = not (golden / "abort").exists()
    store = brought_up(golden)
    # after a crash the file that was not full is made anew, as RocketMQ does
    assert (sorted(os.listdir(golden / "index")) == names) is clean
    offsets = fill_keyed(store, 30)
    check_findable(store, offsets)
    manifest = json.loads((GOLDEN / golden.name / "manifest.json").read_text())
    for told in manifest["query_by_key"]:
        assert offsets_of(store, told["key"], topic=told["topic"]) == told["log_offsets"]
    store.close()
    after = index_bytes(golden)
    assert after[:2] == original[:2]
    assert len(after) == (4 if clean else 3)
    assert after[2] != original[2]


def test_records_one_by_one_make_the_index_that_large_pieces_make(golden: Path, tmp_path: Path) -> None:
    store = open_small(golden, UNFED)
    raw = [store.record_at(offset) for offset in _places(store)]
    index = opened_index(tmp_path / "singly")
    for log_offset, record in zip(_places(store), raw, strict=True):
        assert record is not None
        index.dispatch(found([record], log_offset))
    index.settle()
    assert index_bytes(tmp_path / "singly") == index_bytes(GOLDEN / golden.name / "store")


def _places(store: MessageStore) -> list[int]:
    """Where every record of the log begins."""
    places, at = [], store.log_min
    while at < store.log_max:
        record = store.record_at(at)
        if record is not None:
            places.append(at)
        at = at + len(record) if record is not None else (at // 65_536 + 1) * 65_536
    return places


# Rolling, replay, expiry.


def test_keys_of_one_record_may_lie_in_two_files(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    words = " ".join(f"w{number}" for number in range(700))
    (log_offset,) = store.append_run(keyed_run([("T", words, "u")])).log_offsets.tolist()
    for number in (0, 298, 299, 597, 598, 699):
        assert offsets_of(store, f"w{number}") == [log_offset]
    assert len(index_bytes(tmp_path)) == 3
    store.close()
    store = brought_up(tmp_path)
    (later,) = store.append_run(keyed_run([("T", "w0", "u2")])).log_offsets.tolist()
    assert offsets_of(store, "w0") == [log_offset, later]


def test_what_is_fed_again_is_passed_over(tmp_path: Path) -> None:
    raw = records([("T", f"k{number} all all", f"u{number}") for number in range(200)])
    size = len(raw[0])
    once, again = opened_index(tmp_path / "once"), opened_index(tmp_path / "again")
    places = [sum(map(len, raw[:number])) for number in range(201)]
    once.dispatch(found(raw))
    for first, last in ((0, 90), (0, 90), (40, 90), (89, 91), (0, 150), (149, 200), (0, 200)):
        again.dispatch(found(raw[first:last], places[first]))
    assert once.position == again.position == places[200] > 200 * size
    for index in (once, again):
        index.settle()
    assert index_bytes(tmp_path / "once") == index_bytes(tmp_path / "again")


@pytest.mark.parametrize("step", range(6))
def test_feeding_goes_on_where_a_full_disk_stopped_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    run = found(records([("T", " ".join(f"w{number}.{word}" for word in range(90)), "") for number in range(8)]))
    whole, index = opened_index(tmp_path / "whole"), opened_index(tmp_path / "stopped")
    whole.dispatch(run)
    calls = 0

    def no_room(*_: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > step:
            raise OSError(errno.ENOSPC, "no room")
        return real(*_)

    name = "pwrite" if step % 2 else "ftruncate"
    real = getattr(os, name)
    monkeypatch.setattr(os, name, no_room)
    if name == "pwrite" or step < 3:
        with pytest.raises(OSError, match="no room"):
            index.dispatch(run)
    monkeypatch.undo()
    index.dispatch(run)
    for each in (whole, index):
        each.settle()
    assert index_bytes(tmp_path / "stopped") == index_bytes(tmp_path / "whole")


def test_expired_files_are_deleted_but_never_the_last_one(tmp_path: Path) -> None:
    offsets = made(tmp_path, 400)
    index = opened_index(tmp_path, end=offsets[-1] + 1000)
    sizes = [len(list((tmp_path / "index").iterdir()))]
    ends = [file.header.end_log_offset for file in index._files]
    for log_min in (ends[0], ends[0] + 1, ends[2], 1 << 40):
        index.delete_before(log_min)
        sizes.append(len(list((tmp_path / "index").iterdir())))
    assert sizes == [5, 5, 4, 3, 1]
    assert list(index.matches("T", "k399", ALWAYS)) == [offsets[-1]]
    again = opened_index(tmp_path, start=1 << 30, end=1 << 40)
    assert again.position == 1 << 30
    assert list(again.matches("T", "k399", ALWAYS)) == [offsets[-1]]


def test_a_file_whose_deletion_a_crash_prevented_goes_at_the_next_start(tmp_path: Path) -> None:
    offsets = made(tmp_path, 400)
    index = opened_index(tmp_path, end=offsets[-1] + 1000)
    copy = shutil.copytree(tmp_path / "index", tmp_path / "kept")
    log_min = index._files[1].header.end_log_offset + 1
    index.delete_before(log_min)
    for name in os.listdir(copy):
        shutil.copy(copy / name, tmp_path / "index" / name)
    again = opened_index(tmp_path, start=log_min, end=offsets[-1] + 1000, clean=False)
    assert len(list((tmp_path / "index").iterdir())) == 3
    assert list(again.matches("T", "k399", ALWAYS)) == [offsets[-1]]
    assert again.position > offsets[-1]


def test_names_stay_in_order_when_the_clock_does_not(tmp_path: Path) -> None:
    times = iter([1_700_000_000_999, 1_700_000_000_999, 1_600_000_000_000, 1_700_000_100_000])
    index = opened_index(tmp_path)
    index._clock_ms = lambda: next(times)
    index.dispatch(found(records([("T", f"k{number} a b", "u") for number in range(250)])))
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert [path.name for path in (file.path for file in index._files)] == names
    assert len(set(names)) == 4
    assert names[0].endswith("999")
    assert int(names[2]) - int(names[1]) == 1


# What a start finds.


def last_file(directory: Path) -> Path:
    return max((directory / "index").iterdir())


def first_file(directory: Path) -> Path:
    return min((directory / "index").iterdir())


def half_written(directory: Path) -> None:
    """The file as a crash in the middle of writing it out leaves it: new slots, old header, and no mark."""
    path = last_file(directory)
    file = IndexFile.load(path, SHAPE)
    assert file is not None
    overwrite(path, 0, bytes(40))
    (directory / "indexed.json").unlink()


def without_folder_and_mark(directory: Path) -> None:
    shutil.rmtree(directory / "index")
    (directory / "indexed.json").unlink()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda directory: None,
    "all of it deleted": lambda directory: shutil.rmtree(directory / "index"),
    "folder and mark deleted": without_folder_and_mark,
    "first file deleted": lambda directory: first_file(directory).unlink(),
    "last file deleted": lambda directory: last_file(directory).unlink(),
    "last file short": lambda directory: os.truncate(last_file(directory), 3000),
    "last file empty": lambda directory: os.truncate(last_file(directory), 0),
    "first file short": lambda directory: os.truncate(first_file(directory), 3000),
    "a new file that was never written": lambda directory: (directory / "index/20991231235959999").write_bytes(b""),
    "header gone": lambda directory: overwrite(last_file(directory), 0, bytes(40)),
    "header says more than the mark": lambda directory: overwrite(last_file(directory), 36, b"\0\0\1\x2b"),
    "a first time below 0": lambda directory: overwrite(last_file(directory), 0, b"\xd8"),
    "a last time below 0": lambda directory: overwrite(last_file(directory), 8, b"\xd8"),
    "mark deleted": lambda directory: (directory / "indexed.json").unlink(),
    "mark garbled": lambda directory: (directory / "indexed.json").write_bytes(b"\xff{"),
    "mark of another form": lambda directory: (directory / "indexed.json").write_text('{"files": 7}'),
    "mark beyond the log": lambda directory: (directory / "indexed.json").write_text(
        (directory / "indexed.json").read_text().replace('"log_offset":', '"log_offset":9')
    ),
    "half written": half_written,
    "a file that is none of ours": lambda directory: (directory / "index/notes.txt").write_text("mine"),
}


@pytest.mark.parametrize("after_crash", [True, False], ids=["crash", "clean stop"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_message_is_found_whatever_a_start_finds_of_the_index(
    tmp_path: Path, damage: str, after_crash: bool
) -> None:
    offsets = made(tmp_path, 130)
    before = index_bytes(tmp_path)
    if after_crash:
        (tmp_path / "abort").write_text("1")
    DAMAGES[damage](tmp_path)
    store = brought_up(tmp_path)
    check_findable(store, offsets)
    more = fill_keyed(store, 20, first=130)
    check_findable(store, offsets[110:] + more, first=110)
    store.close()
    notes = tmp_path / "index/notes.txt"
    if damage == "a file that is none of ours":
        assert notes.read_text() == "mine"
        notes.unlink()
    assert index_bytes(tmp_path)[0] == before[0]
    again = brought_up(tmp_path)
    check_findable(again, offsets[110:] + more, first=110)


def test_a_marked_index_is_not_made_anew_after_a_crash(tmp_path: Path) -> None:
    offsets = made(tmp_path, 230)
    inodes = {path.name: path.stat().st_ino for path in (tmp_path / "index").iterdir()}
    store = open_small(tmp_path)
    position = store.indexed
    assert position == store.log_max
    more = fill_keyed(store, 10, first=230)
    check_findable(store, offsets[170:] + more, first=170)  # in memory only: the file was not written out since
    crashed = open_small(crashed_copy(tmp_path, tmp_path / "copy"), UNFED)
    assert not crashed.clean_start
    assert crashed.indexed == position
    assert {path.name for path in (tmp_path / "copy/index").iterdir()} == inodes.keys()
    crashed.close()
    crashed = brought_up(tmp_path / "copy")
    check_findable(crashed, offsets[170:] + more, first=170)


def test_an_index_after_crashes_is_that_of_a_life_without(tmp_path: Path, chance: random.Random) -> None:
    directory, count = tmp_path / "0", 0
    store = open_small(directory)
    for life in range(1, 8):
        for _ in range(chance.randrange(1, 6)):
            more = chance.randrange(1, 60)
            fill_keyed(store, more, first=count)
            count += more
            if chance.random() < 0.5:
                offsets_of(store, "all")
            if chance.random() < 0.3:
                store.inspect().index.settle()
        directory = crashed_copy(directory, tmp_path / str(life))
        store = open_small(directory)
    offsets_of(store, "all")
    store.close()
    shutil.copytree(directory, tmp_path / "fresh", ignore=shutil.ignore_patterns("index", "indexed.json"))
    brought_up(tmp_path / "fresh").close()
    assert index_bytes(directory) == index_bytes(tmp_path / "fresh")


def test_a_crash_at_any_step_of_writing_it_out_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_small(tmp_path / "store", UNFED)
    offsets = fill_keyed(store, 230)
    feed = LateReader(store.inspect().log, store.inspect().index, lambda: store.log_max, lambda: store.log_max, SMALL)
    copies: list[Path] = []
    here = threading.get_ident()

    def watched(name: str) -> None:
        real = getattr(os, name)

        def copy_first(*arguments: Any) -> Any:
            if threading.get_ident() == here:  # the store's own threads go their way
                copies.append(crashed_copy(tmp_path / "store", tmp_path / f"{len(copies)}-{name}"))
            return real(*arguments)

        monkeypatch.setattr(os, name, copy_first)

    for name in ("pwrite", "fdatasync", "fsync", "unlink", "ftruncate"):
        watched(name)
    feed.catch_up()
    store.inspect().index.settle()
    fill_keyed(store, 3, first=230)
    feed.catch_up()
    store.inspect().index.settle()
    monkeypatch.undo()
    assert len(copies) >= 20
    for copy in copies:
        crashed = brought_up(copy)
        assert not crashed.clean_start
        check_findable(crashed, offsets[::7], numbers=range(0, 230, 7))
        crashed.close()


def test_an_index_that_goes_beyond_the_log_is_made_anew(tmp_path: Path) -> None:
    offsets = made(tmp_path, 230)
    (tmp_path / "abort").write_text("1")
    cut = offsets[225]
    path = log_files(tmp_path)[cut // 65_536]
    overwrite(path, cut % 65_536, bytes(65_536 - cut % 65_536))
    for later in log_files(tmp_path)[cut // 65_536 + 1 :]:
        later.unlink()
    (tmp_path / "dispatched.json").unlink()
    store = open_small(tmp_path)
    assert store.log_max == cut
    again = fill_keyed(store, 20, first=1000)
    assert again[0] == cut
    for number in range(225, 230):
        assert offsets_of(store, f"k{number}") == []
    check_findable(store, again, first=1000)
    assert offsets_of(store, "k224") == [offsets[224]]


def test_a_log_that_was_cut_and_grew_again_is_indexed_from_the_cut(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    offsets = fill_keyed(store, 50) + fill_plain(store, 50)
    store.close()
    (tmp_path / "abort").write_text("1")
    cut = offsets[60]
    overwrite(log_files(tmp_path)[0], cut, bytes(65_536 - cut))
    (tmp_path / "dispatched.json").unlink()
    store = open_small(tmp_path, UNFED)
    assert store.log_max == cut
    again = fill_keyed(store, 100, first=1000)
    grown = open_small(crashed_copy(tmp_path, tmp_path / "grown"))
    check_findable(grown, again, first=1000)
    for number in range(50):
        assert offsets_of(grown, f"k{number}") == [offsets[number]]


def fill_plain(store: MessageStore, count: int) -> list[int]:
    """Messages without keys."""
    return [int(at) for at in store.append_run(keyed_run([("T", "", "")] * count, body=b"." * 200)).log_offsets]


def test_a_stop_that_cannot_write_the_index_out_counts_as_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path)
    offsets = fill_keyed(store, 120)

    def no_room(self: IndexFile) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(IndexFile, "write_out", no_room)
    store.close()
    monkeypatch.undo()
    assert (tmp_path / "abort").exists()
    check_findable(brought_up(tmp_path), offsets)


def test_a_quiet_store_marks_its_index_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dejamq_broker.store.log.catch_up.SETTLE_S", 0.01)
    store = open_small(tmp_path, dataclasses.replace(SMALL, flush_commit_log_thorough_interval_ms=50))
    fill_keyed(store, 40)
    mark: dict[str, Any] = {}

    def marked() -> bool:
        path = tmp_path / "indexed.json"
        mark.update(json.loads(path.read_text()) if path.exists() else {})
        return mark.get("log_offset") == store.log_max

    until(marked)
    assert sum(mark["files"].values()) == 121


def test_full_files_are_told_to_a_rocketmq_in_the_checkpoint(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    fill_keyed(store, 230)
    offsets_of(store, "all")
    full = [IndexFile.load(path, SHAPE) for path in sorted((tmp_path / "index").iterdir())[:2]]
    store.close()
    assert full[1] is not None
    assert not full[1].room
    checkpoint = (tmp_path / "checkpoint").read_bytes()
    assert int.from_bytes(checkpoint[16:24], "big") == full[1].header.end_timestamp_ms


def test_many_look_ups_keep_no_descriptor(tmp_path: Path) -> None:
    made(tmp_path, 230)
    store = brought_up(tmp_path)
    for number in range(200):
        assert offsets_of(store, f"k{number}")  # now all log files are open that will be
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        assert offsets_of(store, f"k{number}")
    until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # other threads open theirs for a moment


def test_a_hash_that_is_nowhere_is_answered_by_nothing(tmp_path: Path) -> None:
    index = opened_index(tmp_path)
    assert list(index.matches("T", "k", ALWAYS)) == []
    index.dispatch(found(records([("T", "k", "")])))
    assert key_hash("T", "other") != key_hash("T", "k")
    assert list(index.matches("T", "other", ALWAYS)) == []
    assert list(index.matches("T", "k", ALWAYS)) == [0]


def test_bytes_gone_wrong_in_the_index_never_answer_a_wrong_message_nor_hide_a_new_one(
    tmp_path: Path, chance: random.Random
) -> None:
    offsets = made(tmp_path / "whole", 130)
    for turn in range(12):
        directory = Path(shutil.copytree(tmp_path / "whole", tmp_path / str(turn)))
        if chance.random() < 0.5:
            (directory / "abort").write_text("1")
        for _ in range(chance.randrange(1, 6)):
            garble(chance.choice([*(directory / "index").iterdir(), directory / "indexed.json"]), chance)
        store = open_small(directory)
        more = fill_keyed(store, 20, first=130)
        for number in chance.sample(range(130), 20):
            assert offsets_of(store, f"k{number}") in ([], [offsets[number]])
        for number, log_offset in enumerate(more, 130):
            assert offsets_of(store, f"k{number}") == [log_offset]
        store.close()


def garble(path: Path, choose: random.Random) -> None:
    """A few bytes of the file, often of its beginning, or its end."""
    size = path.stat().st_size
    if size:
        at = choose.randrange(min(40, size) if choose.random() < 0.5 else size)
        overwrite(path, at, choose.randbytes(min(choose.randrange(1, 30), size - at)))
    if choose.random() < 0.2:
        os.truncate(path, choose.randrange(size + 1))
