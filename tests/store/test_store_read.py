"""Reading: the table of answers, limits, filters, slices, time search."""

from pathlib import Path

import pytest
from dejamq_broker.store import MessageStore, ReadStatus, StoreConfig
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.log.commit_log import SHORT_BYTES
from dejamq_broker.store.reading import QueueReader
from dejamq_proto.records.record import HEADER_SIZE, I32, Record, decode, tags_code
from store_making import bodies, bodies_of, fill_queue, log_files, open_small, records_of, run_of, settle


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    """Ten messages in T/0."""
    store = open_small(tmp_path)
    fill_queue(store, 10)
    settle(store)
    return store


@pytest.mark.parametrize(
    ("queue_offset", "status", "next_offset"),
    [
        (-1, ReadStatus.OFFSET_TOO_SMALL, 0),
        (0, ReadStatus.FOUND, 10),
        (9, ReadStatus.FOUND, 10),
        (10, ReadStatus.OFFSET_OVERFLOW_ONE, 10),
        (11, ReadStatus.OFFSET_OVERFLOW_BADLY, 10),
    ],
)
def test_each_place_of_the_offset_has_its_answer(
    store: MessageStore, queue_offset: int, status: ReadStatus, next_offset: int
) -> None:
    result = store.read("T", 0, queue_offset)
    assert (result.status, result.next_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (0, 10)


def test_a_queue_that_is_not_there_has_its_own_answer(store: MessageStore) -> None:
    result = store.read("T", 1, 5)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    assert (store.min_offset("T", 1), store.max_offset("T", 1)) == (0, 0)
    assert store.tags_code_at("T", 1, 0) is None


def test_a_queue_that_lost_everything_has_no_message(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 5)
    store.close()
    for path in log_files(tmp_path):
        path.unlink()
    again = open_small(tmp_path)
    assert again.read("T", 0, 3).status is ReadStatus.NO_MESSAGE_IN_QUEUE


def test_a_read_stops_at_the_number_of_messages(store: MessageStore) -> None:
    result = store.read("T", 0, 2, max_messages=3)
    assert (len(result.sizes), result.next_offset) == (3, 5)
    assert decode(result.records).body == bodies(1, first=2)[0]


def test_a_read_stops_before_too_many_bytes_but_answers_one(store: MessageStore) -> None:
    assert len(store.read("T", 0, 0, max_bytes=400).sizes) == 2
    assert len(store.read("T", 0, 0, max_bytes=384).sizes) == 2
    assert len(store.read("T", 0, 0, max_bytes=383).sizes) == 1
    assert len(store.read("T", 0, 0, max_bytes=1).sizes) == 1


def test_old_messages_have_their_own_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = StoreConfig(
        mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=1000, max_transfer_count_on_message_in_disk=8
    )
    store = open_small(tmp_path, config)
    fill_queue(store, 100)
    settle(store)
    assert store.entry_in_memory("T", 0, 0)
    assert len(store.read("T", 0, 0).sizes) == 32
    monkeypatch.setattr(store.inspect().reader, "_memory_window", 10_000)
    assert not store.entry_in_memory("T", 0, 0)
    assert store.entry_in_memory("T", 0, 99)
    assert len(store.read("T", 0, 0).sizes) == 8
    assert len(store.read("T", 0, 60).sizes) == 32


def test_tags_choose_and_the_offset_passes_what_was_looked_at(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    for number in range(10):
        store.append_run(run_of([("T", 0, str(number).encode())], tag="A" if number % 3 == 0 else "B"))
    settle(store)
    wanted = frozenset({tags_code("A")})
    result = store.read("T", 0, 1, tags=wanted)
    assert (result.status, len(result.sizes), result.next_offset) == (ReadStatus.FOUND, 3, 10)
    first = store.read("T", 0, 1, max_messages=2, tags=wanted)
    assert (len(first.sizes), first.next_offset) == (2, 7)
    nothing = store.read("T", 0, 0, tags=frozenset({tags_code("C")}))
    assert (nothing.status, nothing.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 10)


def test_a_filtered_read_looks_at_a_limited_number_of_entries(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 900)
    settle(store)
    nothing = store.read("T", 0, 0, tags=frozenset({5}))
    assert (nothing.status, nothing.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 800)


def test_slices_of_a_mixed_log_are_joined_in_order(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    for number in range(400):
        store.append_run(run_of([("T", 0, b"even" * 40), ("T", 1, b"odd" * 40), ("T", 0, str(number).encode())]))
    settle(store)
    expected = [body for number in range(400) for body in (b"even" * 40, str(number).encode())]
    assert bodies_of(store, "T", 0) == expected
    assert bodies_of(store, "T", 1) == [b"odd" * 40] * 400


def test_messages_whose_file_is_gone_are_passed_over(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 600)
    settle(store)
    store.inspect().log.files.files = store.inspect().log.files.files[1:]
    result = store.read("T", 0, 0)
    assert (result.status, result.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 32)
    assert store.record_at(0) is None


def test_entries_in_files_and_in_memory_read_as_one(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    sent = fill_queue(store, 120)
    store.close()
    again = open_small(tmp_path)
    sent += fill_queue(again, 120, first=120)
    settle(again)
    assert bodies_of(again) == sent
    result = again.read("T", 0, 100, max_messages=60, max_bytes=1 << 20)
    assert result.next_offset == 160


def test_record_at_answers_only_where_a_record_begins(store: MessageStore) -> None:
    raw = store.record_at(192)
    assert raw is not None
    assert decode(raw).queue_offset == 1
    assert [store.record_at(log_offset) for log_offset in (-1, 1, 191, 1919, 1920, 1 << 40)] == [None] * 6


def test_an_offset_where_no_record_begins_costs_no_more_than_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes inside a body may say that they are a record of 32 KB."""
    store = open_small(tmp_path)
    store.append_run(run_of([("T", 0, I32.pack(32_000) * 10_000)]))
    settle(store)
    read, sizes = MappedFile.read, list[int]()

    def noting(file: MappedFile, at: int, size: int) -> bytes:
        sizes.append(size)
        return read(file, at, size)

    monkeypatch.setattr(MappedFile, "read", noting)
    assert [store.record_at(log_offset) for log_offset in range(1, 200)] == [None] * 199
    assert max(sizes) <= HEADER_SIZE


@pytest.fixture
def timed(tmp_path: Path) -> MessageStore:
    """Entries 0..6 stored at 100, 200, 200, 200, 300, 400, 400."""
    stamps = iter([100, 200, 200, 200, 300, 400, 400])
    store = open_small(tmp_path, clock_ms=lambda: next(stamps))
    for number in range(7):
        store.append_run(run_of([("T", 0, str(number).encode())]))
    settle(store)
    return store


@pytest.mark.parametrize(
    ("timestamp_ms", "lower", "upper"),
    [(50, 0, 0), (100, 0, 0), (150, 1, 0), (200, 1, 3), (250, 4, 3), (300, 4, 4), (400, 5, 6), (401, 7, 6)],
)
def test_time_search_has_two_boundaries(timed: MessageStore, timestamp_ms: int, lower: int, upper: int) -> None:
    assert timed.search_offset("T", 0, timestamp_ms) == lower
    assert timed.search_offset("T", 0, timestamp_ms, upper=True) == upper
    assert timed.search_offset("nothing", 0, timestamp_ms) == 0


def test_time_search_reads_records_with_wide_hosts(tmp_path: Path) -> None:
    store = open_small(tmp_path, clock_ms=iter([10, 20, 30]).__next__)
    for _ in range(3):
        store.put(Record("T", 0, b"x", born_host=("::1", 1), store_host=("::1", 2)))
    settle(store)
    assert store.search_offset("T", 0, 20) == 1
    assert len(records_of(store)) == 3
    assert isinstance(store.inspect().reader, QueueReader)


def test_long_stretches_of_the_log_are_read_as_they_lie_and_short_ones_as_one_copy(tmp_path: Path) -> None:
    store, sizes = open_small(tmp_path, StoreConfig(mapped_file_size_commit_log=1 << 20)), (SHORT_BYTES, 100)
    for number in range(12):
        store.append_run(run_of([("T", number % 2, bytes((number,)) * sizes[number // 6])]))
    settle(store)
    long, short = (store.read("T", 1, at, max_messages=3, max_bytes=1 << 20) for at in (0, 3))
    assert (len(long.pieces), len(short.pieces)) == (3, 1)
    assert [record.body[0] for record in records_of(store, "T", 1)] == [1, 3, 5, 7, 9, 11]
