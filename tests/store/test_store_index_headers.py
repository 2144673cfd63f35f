"""Headers of index files that contradict their entries or the log: they may hide no message from a query by key."""

import dataclasses
import errno
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from dejamq_broker.store import KeyQuery, MessageStore
from dejamq_broker.store.index.file import HEADER, IndexFile
from dejamq_broker.store.index.trust import contradiction
from dejamq_proto.records.record import decode
from index_making import SHAPE, fill_keyed, index_bytes, keys, offsets_of
from store_making import SMALL, START_MS, log_files, open_small, overwrite
from verify_making import I32, I64, verified

pytestmark = pytest.mark.slow

CONFIG = dataclasses.replace(SMALL, mapped_file_size_commit_log=16_384)
COUNT = 230
"""Messages of three keys each, so of three index files two are full."""
AN_AGE = 1 << 62
BEGIN_MS, END_MS, BEGIN_AT, END_AT, SLOTS, NEXT = (0, 8, 16, 24, 32, 36)
Harm = Callable[[Path], None]
Stored = list[tuple[int, int]]
"""Log offset and store time (ms) of each message."""


def made(directory: Path, step_ms: int = 1) -> Stored:
    """A store closed cleanly."""
    store = opened(directory, step_ms)
    fill_keyed(store, COUNT)
    found = [decode(raw) for number in range(COUNT) for raw in store.query(KeyQuery("T", f"k{number}")).records]
    store.close()
    assert len(index_bytes(directory)) == 3
    return [(record.log_offset, record.store_timestamp_ms) for record in found]


def opened(directory: Path, step_ms: int = 1) -> MessageStore:
    return open_small(directory, CONFIG, clock_ms=itertools.count(START_MS, step_ms).__next__)


def check_found(store: MessageStore, stored: Stored, numbers: range) -> None:
    """By key within the millisecond in which it was stored: a query that a header's times decide about."""
    for number in numbers:
        log_offset, time_ms = stored[number]
        answer = store.query(KeyQuery("T", f"k{number}", begin_ms=time_ms, end_ms=time_ms))
        assert [decode(raw).log_offset for raw in answer.records] == [log_offset], number


def says(at: int, value: int) -> Harm:
    def harm(path: Path) -> None:
        overwrite(path, at, I64.pack(value) if at < SLOTS else I32.pack(value))

    return harm


def more(at: int, by: int) -> Harm:
    """The field says so much more than is right."""

    def harm(path: Path) -> None:
        code = I64 if at < SLOTS else I32
        (value,) = code.unpack_from(path.read_bytes(), at)
        overwrite(path, at, code.pack(value + by))

    return harm


def exchange_times(path: Path) -> None:
    begin_ms, end_ms, *rest = HEADER.unpack_from(path.read_bytes())
    overwrite(path, 0, HEADER.pack(end_ms + AN_AGE, begin_ms, *rest))


def shift_times(path: Path) -> None:
    begin_ms, end_ms, *rest = HEADER.unpack_from(path.read_bytes())
    overwrite(path, 0, HEADER.pack(begin_ms + 10_000, end_ms + 10_000, *rest))


HARMS: dict[str, Harm] = {
    "a first time that never comes": says(BEGIN_MS, AN_AGE),
    "a first time of tomorrow": more(BEGIN_MS, 86_400_000),
    "a first time a little late": more(BEGIN_MS, 2000),
    "a first time of long ago": says(BEGIN_MS, 5),
    "a first time of zero": says(BEGIN_MS, 0),
    "a first time below zero": says(BEGIN_MS, -AN_AGE),
    "a last time that never comes": says(END_MS, AN_AGE),
    "a last time of long ago": says(END_MS, 5),
    "a first time behind the last": exchange_times,
    "both times late": shift_times,
    "a first place outside of the log": says(BEGIN_AT, 1 << 40),
    "a first place of no record": more(BEGIN_AT, 7),
    "a last place outside of the log": says(END_AT, 1 << 40),
    "a last place earlier": more(END_AT, -7),
    "both places at the beginning": lambda path: overwrite(path, BEGIN_AT, bytes(16)),
    "more entries than there is room for": says(NEXT, 301),
    "entries below zero": says(NEXT, -3),
    "fewer entries": more(NEXT, -30),
    "one entry": says(NEXT, 2),
    "no entries": says(NEXT, 1),
    "more slots than there are": says(SLOTS, 98),
    "nothing": lambda path: overwrite(path, 0, bytes(40)),
}


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("file", [0, 1, 2])
@pytest.mark.parametrize("name", HARMS)
def test_a_header_that_cannot_be_right_hides_no_message(tmp_path: Path, name: str, file: int, clean: bool) -> None:
    stored = made(tmp_path)
    before = index_bytes(tmp_path)
    HARMS[name](sorted((tmp_path / "index").iterdir())[file])
    if not clean:
        (tmp_path / "abort").write_text("1")
    assert index_bytes(tmp_path) != before
    store = opened(tmp_path)
    check_found(store, stored, range(0, COUNT, 7))
    (again,) = fill_keyed(store, 1, first=1000)
    assert offsets_of(store, "k1000") == [again]
    store.close()
    assert index_bytes(tmp_path)[:2] == before[:2]


@pytest.mark.parametrize("step_ms", [1, 400])
@pytest.mark.parametrize("name", HARMS)
def test_nor_when_the_first_records_of_its_file_have_expired(tmp_path: Path, name: str, step_ms: int) -> None:
    stored = made(tmp_path, step_ms)
    log_files(tmp_path)[0].unlink()
    HARMS[name](min((tmp_path / "index").iterdir()))
    store = opened(tmp_path, step_ms)
    left = [number for number in range(COUNT) if stored[number][0] >= store.log_min]
    assert 0 < left[0] < 90
    check_found(store, stored, range(left[0], COUNT))


@pytest.mark.parametrize("step_ms", [1, 400])
def test_an_index_file_whose_first_records_have_expired_is_kept(tmp_path: Path, step_ms: int) -> None:
    stored = made(tmp_path, step_ms)
    log_files(tmp_path)[0].unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "index").iterdir()}
    store = opened(tmp_path, step_ms)
    check_found(store, stored, range(90, COUNT))
    store.close()
    assert {path: path.read_bytes() for path in (tmp_path / "index").iterdir()} == before


def test_a_file_behind_one_that_is_not_full_is_made_anew(tmp_path: Path) -> None:
    """As when the last file was put beside the index of an older copy of the store."""
    stored = made(tmp_path)
    paths = sorted((tmp_path / "index").iterdir())
    last = paths[2].read_bytes()
    before = index_bytes(tmp_path)
    paths[1].write_bytes(last)
    store = opened(tmp_path)
    check_found(store, stored, range(0, COUNT, 7))
    store.close()
    assert index_bytes(tmp_path) == before


def test_a_record_that_cannot_be_read_does_not_cost_its_index_file(tmp_path: Path) -> None:
    stored = made(tmp_path)
    before = {path.name: path.stat().st_ino for path in (tmp_path / "index").iterdir()}
    for at in (HEADER.unpack_from(each)[2] for each in index_bytes(tmp_path)):
        overwrite(log_files(tmp_path)[at // 16_384], at % 16_384 + 90, b"?")
    store = opened(tmp_path)
    check_found(store, stored, range(1, 90))
    assert {path.name: path.stat().st_ino for path in (tmp_path / "index").iterdir()} == before


def test_a_bad_sector_of_the_log_costs_no_index_file(tmp_path: Path) -> None:
    file = IndexFile.create(tmp_path / "20231114221320000", SHAPE, None)
    file.put(keys([1, 2, 3]))

    def broken(log_offset: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    assert contradiction(file, 0, broken) == ""
    assert "first time" in contradiction(file, 0, lambda log_offset: file.header.end_timestamp_ms)


@pytest.mark.parametrize("steps_ms", [[0, 5000, 1000], [5000, 0], [0, 1 << 42], [0, 0]])
def test_a_header_of_a_clock_that_was_put_back_is_believed(tmp_path: Path, steps_ms: list[int]) -> None:
    """A RocketMQ's store times follow its clock; only what the log contradicts is wrong."""
    file = IndexFile.create(tmp_path / "20231114221320000", SHAPE, None)
    taken = keys([1] * len(steps_ms))
    taken.store_timestamps_ms[:] = [START_MS + ms for ms in steps_ms]
    file.put(taken)
    stored = dict(zip(taken.log_offsets.tolist(), taken.store_timestamps_ms.tolist(), strict=True))
    assert contradiction(file, 0, stored.get) == ""


@pytest.mark.parametrize("file", [0, 1, 2])
@pytest.mark.parametrize("name", HARMS)
def test_verify_finds_it(tmp_path: Path, name: str, file: int) -> None:
    made(tmp_path)
    HARMS[name](sorted((tmp_path / "index").iterdir())[file])
    report = verified(tmp_path)
    assert report.verdict == "damaged"
    assert any(finding.kind.startswith("index-") for finding in report.findings)


@pytest.mark.parametrize("name", HARMS)
def test_verify_finds_it_where_the_first_records_have_expired(tmp_path: Path, name: str) -> None:
    made(tmp_path)
    log_files(tmp_path)[0].unlink()
    whole = Path(shutil.copytree(tmp_path, tmp_path.with_name(tmp_path.name + "-whole")))
    HARMS[name](min((tmp_path / "index").iterdir()))
    assert verified(whole).verdict == "whole"
    assert verified(tmp_path).verdict == "damaged"
