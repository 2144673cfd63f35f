"""One index file: its bytes are RocketMQ's, and its chains lead from the newest entry to the oldest."""

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.store import StoreConfig
from dejamq_broker.store.files.paths import is_index_name
from dejamq_broker.store.index.file import HEADER_SIZE, Bounds, Header, IndexFile, IndexShape
from dejamq_broker.store.index.keys import Keys, key_hash
from hypothesis import given
from hypothesis import strategies as st
from index_making import PlainIndexFile, keys
from store_making import START_MS, overwrite

SMALL = IndexShape(slots=7, entries=20)
ALWAYS = Bounds(0, 1 << 60)
Entry = tuple[int, int, int]


def look_up(file: IndexFile, hash_value: int, bounds: Bounds = ALWAYS) -> list[int]:
    return list(file.head(hash_value).matches(hash_value, bounds))


@pytest.fixture
def file(tmp_path: Path) -> IndexFile:
    return IndexFile.create(tmp_path / "20231114221320000", SMALL, None)


def test_a_file_of_default_size_is_rocketmqs_and_takes_no_room_until_it_is_written(tmp_path: Path) -> None:
    config = StoreConfig()
    shape = IndexShape(config.max_hash_slot_num, config.max_index_num)
    file = IndexFile.create(tmp_path / "f", shape, None)
    file.put(keys(range(100)))
    file.write_out()
    assert shape.file_size == file.path.stat().st_size == 420_000_040
    assert file.path.stat().st_blocks * 512 < 1 << 20
    assert look_up(file, 99) == [1000 + 99 * 100]


def test_a_chain_leads_from_the_newest_to_the_oldest_and_leaves_other_hashes_out(file: IndexFile) -> None:
    file.put(keys([3, 10, 3, 17, 4]))
    file.put(keys([3, 10], log_offset=5000))
    assert look_up(file, 3) == [5000, 1200, 1000]
    assert look_up(file, 10) == [5100, 1100]
    assert look_up(file, 24) == look_up(file, 5) == []


def test_a_full_file_takes_no_more(file: IndexFile) -> None:
    assert file.put(keys(range(30))) == SMALL.entries - 1
    assert file.room == 0
    assert file.put(keys([1])) == 0
    assert look_up(file, 18) == [1000 + 18 * 100]
    assert look_up(file, 19) == []


def test_an_empty_file_answers_nothing(file: IndexFile) -> None:
    assert look_up(file, 0) == []
    file.write_out()
    loaded = IndexFile.load(file.path, SMALL)
    assert loaded is not None
    assert look_up(loaded, 0) == []


def test_a_file_that_was_made_and_never_written_is_read_as_empty(file: IndexFile) -> None:
    loaded = IndexFile.load(file.path, SMALL)
    assert loaded is not None
    assert loaded.put(keys([1])) == 1
    assert look_up(loaded, 1) == [1000]


def test_a_new_file_says_at_once_how_far_the_one_before_it_came(tmp_path: Path, file: IndexFile) -> None:
    """After a kill a RocketMQ would otherwise take up all keys again that it reads from the log."""
    file.put(keys([1, 2]))
    after = IndexFile.create(tmp_path / "20231114221320001", SMALL, file.header)
    on_disk = IndexFile.load(after.path, SMALL)
    assert on_disk is not None
    time_ms, log_offset = file.header.end_timestamp_ms, file.header.end_log_offset
    assert (time_ms, log_offset) > (0, 0)
    assert on_disk.header == Header(time_ms, time_ms, log_offset, log_offset)


def test_what_was_not_written_out_is_not_on_disk_for_a_reader(file: IndexFile) -> None:
    file.put(keys([1, 8]))
    file.write_out()
    file.put(keys([1], log_offset=9000))
    on_disk = IndexFile.load(file.path, SMALL)
    assert on_disk is not None
    assert look_up(on_disk, 1) == [1000]
    assert look_up(file, 1) == [9000, 1000]
    file.write_out()
    on_disk = IndexFile.load(file.path, SMALL)
    assert on_disk is not None
    assert look_up(on_disk, 1) == [9000, 1000]


entries = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 5), st.integers(-3000, 90_000)), max_size=40
)  # hash, bytes from the record before, ms from the record before


@given(steps=entries, cuts=st.lists(st.integers(1, 12), min_size=40, max_size=40), before=st.integers(0, 1))
def test_many_keys_at_once_make_the_bytes_that_one_at_a_time_makes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Entry], cuts: list[int], before: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "f"
    previous = Header(1, START_MS - 5000, 0, 77) if before else None
    file = IndexFile.create(path, SMALL, previous)
    plain = PlainIndexFile(SMALL, previous.end_timestamp_ms if previous else 0, 77 * before)
    time_ms, log_offset = START_MS, 100
    rows: list[Entry] = []
    for hash_value, more_bytes, more_ms in steps:
        log_offset, time_ms = log_offset + more_bytes, time_ms + more_ms
        rows.append((hash_value, log_offset, time_ms))
    taken = sum(plain.put(*row) for row in rows)
    left = rows
    for cut in cuts:
        if left:
            file.put(_keys(left[:cut]))
            left = left[cut:]
    assert file.header.next_entry == 1 + taken
    file.write_out()
    assert path.read_bytes() == plain.bytes()


def _keys(rows: list[Entry]) -> Keys:
    made = keys(row[0] for row in rows)
    made.log_offsets[:] = [row[1] for row in rows]
    made.store_timestamps_ms[:] = [row[2] for row in rows]
    return made


def test_seconds_count_from_the_first_record_and_those_of_the_first_from_the_file_before(tmp_path: Path) -> None:
    file = IndexFile.create(tmp_path / "f", SMALL, Header(1, START_MS - 3_600_000, 0, 77))
    assert (file.header.begin_log_offset, file.header.end_log_offset) == (77, 77)
    file.put(keys([1, 1, 1], step_ms=1999))
    file.put(keys([1], time_ms=START_MS - 1))
    file.put(keys([1], time_ms=START_MS + (1 << 42)))
    assert file.entries(1, 6)["seconds"].tolist() == [3600, 1, 3, 0, 2**31 - 1]
    assert file.header.begin_timestamp_ms == START_MS


def test_the_first_entry_of_a_later_file_is_found_by_its_own_time(tmp_path: Path) -> None:
    file = IndexFile.create(tmp_path / "f", SMALL, Header(1, START_MS - 3_600_000, 0, 77))
    file.put(keys([1, 1], step_ms=10_000))
    assert look_up(file, 1, Bounds(START_MS, START_MS)) == [1000]
    assert look_up(file, 1, Bounds(START_MS + 3_600_000, START_MS + 3_600_000)) == []


def test_nothing_inside_the_time_bounds_is_left_out_by_the_seconds(file: IndexFile) -> None:
    file.put(keys([1] * 10, step_ms=700))
    for first in range(10):
        for last in range(first, 10):
            found = look_up(file, 1, Bounds(START_MS + 700 * first, START_MS + 700 * last))
            wanted = {1000 + 100 * number for number in range(first, last + 1)}
            assert wanted <= set(found)
            assert all(offset - 1000 - 100 * first > -200 and offset <= 1200 + 100 * last for offset in found)


def test_a_damaged_chain_ends(file: IndexFile) -> None:
    file.put(keys([1] * 5))
    file.write_out()
    for previous in (5, 6, 19, 20, 1 << 30, -1):
        overwrite(file.path, SMALL.entries_at + 3 * 20 + 16, previous.to_bytes(4, "big", signed=True))
        assert look_up(file, 1) == [1400, 1300, 1200]
    for head in (6, 20, 1 << 30, -5):
        overwrite(file.path, HEADER_SIZE + 4, head.to_bytes(4, "big", signed=True))
        loaded = IndexFile.load(file.path, SMALL)
        assert loaded is not None
        assert look_up(loaded, 1) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: overwrite(path, 36, b"\x7f"),
        lambda path: overwrite(path, 36, b"\xff"),
        lambda path: overwrite(path, 32, b"\x7f"),
        lambda path: overwrite(path, 16, b"\x7f"),
    ],
    ids=["short", "empty", "too many entries", "negative entries", "too many slots", "begin after end"],
)
def test_a_file_that_cannot_be_an_index_file_is_not_loaded(file: IndexFile, change: Any) -> None:
    file.put(keys([1, 2]))
    file.write_out()
    assert IndexFile.load(file.path, SMALL) is not None
    change(file.path)
    assert IndexFile.load(file.path, SMALL) is None


def test_keys_that_found_no_room_on_the_disk_are_taken_the_next_time(
    file: IndexFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.put(keys([1, 2]))
    real = os.pwrite
    taken = 0

    def nearly_full(descriptor: int, data: Any, at: int) -> int:
        nonlocal taken
        if taken >= 30:
            raise OSError(errno.ENOSPC, "no room")
        taken += 30
        return real(descriptor, data[:30], at)

    monkeypatch.setattr(os, "pwrite", nearly_full)
    with pytest.raises(OSError, match="no room"):
        file.put(keys([1, 2], log_offset=5000))
    assert look_up(file, 1) == [1000]
    monkeypatch.undo()
    assert file.put(keys([1, 2], log_offset=5000)) == 2
    assert look_up(file, 1) == [5000, 1000]
    assert look_up(file, 2) == [5100, 1100]


def test_no_descriptor_is_kept(file: IndexFile) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file.put(keys([1, 2]))
    file.write_out()
    chain = file.head(1).matches(1, ALWAYS)
    next(chain)
    chain.close()  # type: ignore[attr-defined]  # it is a generator
    look_up(file, 2)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_expires_before_it_is_read_answers_nothing(file: IndexFile) -> None:
    file.put(keys([1]))
    chain = file.head(1)
    file.path.unlink()
    assert list(chain.matches(1, ALWAYS)) == []


def test_a_file_that_expires_before_its_chain_is_found_answers_nothing(file: IndexFile) -> None:
    file.put(keys(range(SMALL.entries)))
    file.write_out()
    file.path.unlink()
    assert look_up(file, 1) == []


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("20240229235959999", True),
        ("20230229235959999", False),
        ("2024022923595999", False),
        ("2024022923595999x", False),
    ],
)
def test_only_a_time_names_an_index_file(name: str, made: bool) -> None:
    assert is_index_name(name) is made


REAL = (
    "d1fce08bd37d4dedd320a06e8a4e7c2a2a27560bd6ad6c21e57346c88877ed62",
    "b4083fbed811be796fd7bb175c2238b50ada368c63f7fdec286be3593dc6e0c5",
    "00c5ca3b3de03d326482f2fd002fc8d242787e0f0020c115d084778f6d8525dc",
    "e864b425de630ac11d477e3734e9f6da1e1cbbd75e83c933e7d79c0aa2247455",
)
"""SHA-256 of the files that RocketMQ 5.3.3's own ``IndexFile`` wrote, given the keys of the test below."""


def test_rolled_files_are_the_bytes_that_a_rocketmq_wrote(tmp_path: Path) -> None:
    """With what golden stores do not show: hours between two files, a clock put back, seconds beyond 32 bits."""
    shape, years, hours = IndexShape(slots=7, entries=40), 80 * 365 * 86_400_000, 7_200_000
    rows = [
        (
            key_hash("T", f"k{number * number * 7919 % 50}"),
            100 + number // 2 * 100,
            START_MS + number * 1500 - 700 * (number % 9 == 0) + years * (number >= 100) + hours * (number >= 39),
        )
        for number in range(120)
    ]
    digests: list[str] = []
    previous = None
    while rows:
        file = IndexFile.create(tmp_path / str(len(digests)), shape, previous)
        rows = rows[file.put(_keys(rows)) :]
        file.write_out()
        previous = file.header
        digests.append(hashlib.sha256(file.path.read_bytes()).hexdigest())
    assert tuple(digests) == REAL
