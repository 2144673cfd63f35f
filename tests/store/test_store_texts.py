"""What is told of many records at once is what is told of each alone: texts, tags, sizes, the pieces of a walk."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.files.paths import file_name
from dejamq_broker.store.log.batch import NOT_QUEUED, QueueTable, grouped
from dejamq_broker.store.log.entries import batch_of
from dejamq_broker.store.log.record_texts import COMPARED, WIDEST, distinct, tags_codes
from dejamq_broker.store.log.scan import Damage, End, FoundRecords, LogFiles, walk
from dejamq_proto.records.record import Record, decode_properties, encode, tags_code
from dejamq_proto.records.run import Run, parse
from hypothesis import given
from hypothesis import strategies as st
from store_making import SMALL, open_small, run_of

FILE_SIZE = 1 << 20


def joined(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The texts behind something else, where each begins and its size."""
    size = np.array([len(text) for text in texts], np.int64)
    return np.frombuffer(b"--" + b"".join(texts), np.uint8), 2 + np.cumsum(size) - size, size


@given(st.lists(st.text("ab", max_size=3).map(str.encode), min_size=1, max_size=40))
def test_different_texts_are_told_apart(texts: list[bytes]) -> None:
    found, which = distinct(*joined(texts))
    assert [found[number] for number in which] == texts
    assert len(found) == len(set(texts))


def test_more_texts_than_are_compared_are_told_apart_too() -> None:
    texts = [b"%d" % (number % (3 * COMPARED)) for number in range(5 * COMPARED)]
    found, which = distinct(*joined(texts))
    assert [found[number] for number in which] == texts


def run_with(raw_properties: list[bytes]) -> Run:
    records = [encode(Record("T", 0, b"", raw)) for raw in raw_properties]
    return parse(b"".join(records), np.array([len(record) for record in records]))


@given(st.lists(st.lists(st.sampled_from([b"TAGS", b"\1", b"\2", b"A", b"X", "é".encode()])).map(b"".join), min_size=1))
def test_tags_of_a_run_are_those_of_its_records_one_by_one(raw_properties: list[bytes]) -> None:
    expected = [tags_code(decode_properties(raw).get("TAGS")) for raw in raw_properties]
    assert tags_codes(run_with(raw_properties)).tolist() == expected


@given(st.lists(st.permutations([b"TAGS", b"TAGS", b"\1", b"\1", b"\2", b"\2", b"A", b"X"]).map(b"".join), min_size=2))
def test_tags_of_records_of_one_size_are_those_of_its_records_one_by_one(raw_properties: list[bytes]) -> None:
    expected = [tags_code(decode_properties(raw).get("TAGS")) for raw in raw_properties]
    assert tags_codes(run_with(raw_properties)).tolist() == expected


def test_tags_in_very_long_properties_are_found() -> None:
    long = b"KEYS\1" + b"k" * WIDEST + b"\2TAGS\1Aa\2"
    assert tags_codes(run_with([b"TAGS\1b\2", long, long])).tolist() == [98, 2112, 2112]
    assert tags_codes(run_with([long])).tolist() == [2112]


@given(st.lists(st.integers(NOT_QUEUED, 3), min_size=1, max_size=300))
def test_groups_hold_each_queued_record_once_in_log_order(queue_numbers: list[int]) -> None:
    numbers = np.arange(len(queue_numbers))
    groups = {number: numbers[members].tolist() for number, members in grouped(np.array(queue_numbers))}
    expected: dict[int, list[int]] = {}
    for index, number in enumerate(queue_numbers):
        expected.setdefault(number, []).append(index)
    expected.pop(NOT_QUEUED, None)
    assert groups == expected


def test_groups_of_thousands_of_queues_are_in_log_order() -> None:
    queue_numbers = np.arange(70_000) % 40_000
    groups = grouped(queue_numbers)
    assert [number for number, _ in groups] == list(range(40_000))
    assert np.concatenate([np.arange(70_000)[members] for _, members in list(groups)[:2]]).tolist() == [
        0,
        40_000,
        1,
        40_001,
    ]


class Bytes:
    """A log of one file in memory that counts what is read."""

    def __init__(self, records: list[Record]) -> None:
        parts: list[bytes] = []
        at = 0
        for record in records:
            parts.append(encode(msgspec.structs.replace(record, log_offset=at)))
            at += len(parts[-1])
        self.data = bytearray(b"".join(parts))
        self.read_bytes = 0

    def read(self, log_offset: int, size: int) -> bytes:
        self.read_bytes += size
        return bytes(self.data[log_offset : log_offset + size]).ljust(size, b"\0")

    def walk(self, **options: bool) -> list[FoundRecords | Damage | End]:
        return list(walk(self.read, LogFiles(0, FILE_SIZE, FILE_SIZE), 0, **options))


BODY_SIZES = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), min_size=1, max_size=8)


@given(BODY_SIZES, st.booleans())
def test_records_of_any_sizes_are_walked(sizes: list[tuple[int, int]], check_crc: bool) -> None:
    log = Bytes([Record("T", 0, b"x" * size) for size, count in sizes for _ in range(count)])
    *found, end = log.walk(check_crc=check_crc)
    assert [size for piece in found if isinstance(piece, FoundRecords) for size in piece.sizes] == [
        92 + size for size, count in sizes for _ in range(count)
    ]
    assert end == End(len(log.data), "")


def test_records_with_ipv6_hosts_cost_no_second_reading() -> None:
    records = [Record("T", 0, b"x" * 100, born_host=("::1" if number % 3 else "10.0.0.1", 5)) for number in range(3000)]
    log = Bytes(records)
    pieces = log.walk()
    assert sum(len(piece.sizes) for piece in pieces if isinstance(piece, FoundRecords)) == 3000
    ends = [piece.end for piece in pieces if isinstance(piece, FoundRecords)]
    assert [piece.log_offset for piece in pieces] == [0, *ends]
    assert log.read_bytes < 3 * FILE_SIZE


def test_without_crc_a_changed_body_passes_and_with_it_does_not() -> None:
    log = Bytes([Record("T", 0, b"x" * 100) for _ in range(30)])
    log.data[192 * 12 + 100] ^= 1
    assert [type(piece) for piece in log.walk(check_crc=False)] == [FoundRecords, End]
    assert [type(piece) for piece in log.walk()] == [FoundRecords, Damage, FoundRecords, End]


def test_records_inside_bodies_are_not_read_for_nothing_when_bytes_are_damaged() -> None:
    inner = encode(Record("T", 0, b"y" * 100, log_offset=7)) * 500
    log = Bytes([Record("T", 0, b"first"), Record("T", 0, inner), Record("T", 0, b"last")])
    log.data[100] ^= 1  # the size of the second
    pieces = log.walk()
    assert [type(piece) for piece in pieces] == [FoundRecords, Damage, FoundRecords, End]
    assert log.read_bytes < 5 * FILE_SIZE


def test_a_run_over_many_topics_and_queues_finds_them_all() -> None:
    log = Bytes([Record(f"T{number % 50}", number % 7, b"x", queue_offset=number) for number in range(1000)])
    table = QueueTable()
    found = log.walk()[0]
    assert isinstance(found, FoundRecords)
    batch = batch_of(found, table.number_of, ())
    for number, members in batch.groups:
        topic, queue_id = table.keys[number]
        offsets = batch.queue_offsets[members].tolist()
        assert offsets == [each for each in range(1000) if (f"T{each % 50}", each % 7) == (topic, queue_id)]
    assert len(batch.groups) == 350


@pytest.mark.parametrize("host", ["10.0.0.1", "::1"])
def test_a_record_of_a_queue_that_cannot_be_gets_no_entry(host: str) -> None:
    found = Bytes([Record("T", 0, b"x", born_host=(host, 5))]).walk()[0]
    assert isinstance(found, FoundRecords)
    assert batch_of(found, lambda key: NOT_QUEUED, ()).queue_numbers == []


def test_a_view_outlives_its_file_and_can_not_be_written(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / file_name(0), 0, 8192)
    file.write(4090, b"both pages")
    seen = file.view(4090, 10)
    file.close()
    file.delete()
    assert (bytes(seen), seen.readonly) == (b"both pages", True)
    assert not (tmp_path / file_name(0)).exists()
    assert bytes(file.view(4090, 10)) == b""


def test_a_log_shows_views_of_what_is_published_and_no_more(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    end = store.append_run(run_of([("T", 0, b"x" * 100)] * 3)).end_log_offset
    log = store.inspect().log
    assert bytes(log.view(0, 10_000)) == log.read(0, 10_000)
    assert (len(log.view(0, 10_000)), len(log.view(end, 8)), len(log.view(end + 100_000, 8))) == (end, 0, 0)
    views = list(walk(log.view, LogFiles(0, end, SMALL.mapped_file_size_commit_log), 0))
    copies = list(walk(log.read, LogFiles(0, end, SMALL.mapped_file_size_commit_log), 0))
    assert [piece.sizes for piece in views if isinstance(piece, FoundRecords)] == [[192] * 3]
    assert views[-1] == copies[-1] == End(end, "")
    store.close()


@pytest.mark.parametrize("others", [
    (b"TAGS\1b\2KEYS\1k\2", b"TAGS\1c\2KEYS\1q\2"),  # only values differ
    (b"KEYS\1a\2TAGSxb\2", b"KEYS\1a\2TAGS\1b\2"),  # an end of a name is missing
    (b"KEYS\1aaTAGS\1b\2", b"KEYS\1a\2TAGS\1b\2"),  # a value hides an end and a name
    (b"\xffAGS\1b\2", b"TAGS\1b\2"),
    (b"TAGS\1a\2TAGS\1\2", b"TAGS\1b\2TAGS\1\2"),
    (b"TAGS\1a\2TAGS\1x\2", b"TAGS\1b\2TAGS\1y\2"),
    (b"TAGS\1a\1b", b"TAGS\1ab\1"),
    (b"XTAGS\1b\2", b"XTAGS\1c\2"),
    (b"TAGS\1a\nb\2", b"TAGS\1a\nc\2"),
])  # fmt: skip
def test_tags_of_properties_of_one_size_are_those_of_each_record(others: tuple[bytes, bytes]) -> None:
    for first, second in (others, others[::-1]):
        expected = [tags_code(decode_properties(raw).get("TAGS")) for raw in (first, second, first)]
        assert tags_codes(run_with([first, second, first])).tolist() == expected
