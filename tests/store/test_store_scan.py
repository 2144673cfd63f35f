"""The pure parts: walking a log, entries of what was read, names, numbers, the queue of twenty-byte entries."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from dejamq_broker.store.files.errors import StoreDamaged
from dejamq_broker.store.files.paths import StorePaths, file_name, file_start
from dejamq_broker.store.log.batch import Batch, QueueKey, QueueTable
from dejamq_broker.store.log.entries import batch_of, queue_tags_code
from dejamq_broker.store.log.scan import Damage, End, FoundRecords, LogFiles, find_record, walk
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from dejamq_broker.store.queues.entry_files import ENTRY, FILLER_SIZE
from dejamq_proto.records.record import (
    MAGIC_BLANK,
    PAIR,
    SYS_TRANSACTION_PREPARED,
    Record,
    decode,
    encode,
    encode_properties,
    tags_code,
)
from hypothesis import given
from hypothesis import strategies as st

FILE_SIZE = 4096
LEVELS = (1000, 5000, 10_000)


class Log:
    """A log in memory, made by hand."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, body: bytes = b"x" * 100, **fields: object) -> int:
        """Answers where the record begins."""
        record = Record("T", 0, body, log_offset=len(self.data), **fields)  # type: ignore[arg-type]  # test only
        self.data += encode(record)
        return record.log_offset

    def roll(self) -> None:
        room = FILE_SIZE - len(self.data) % FILE_SIZE
        self.data += PAIR.pack(room, MAGIC_BLANK).ljust(room, b"\xee")

    def pieces(self, start: int = 0) -> list[FoundRecords | Damage | End]:
        return list(self.walk(start))

    def walk(self, start: int = 0) -> Iterator[FoundRecords | Damage | End]:
        end = -(-len(self.data) // FILE_SIZE) * FILE_SIZE
        data = bytes(self.data).ljust(end, b"\0")

        def read(log_offset: int, size: int) -> bytes:
            file_end = (log_offset // FILE_SIZE + 1) * FILE_SIZE
            return data[log_offset : min(log_offset + size, file_end)]

        return walk(read, LogFiles(0, end, FILE_SIZE), start)


def test_a_walk_goes_over_blanks_and_ends_at_zeros() -> None:
    log = Log()
    places = [log.add(), log.add()]
    log.roll()
    places.append(log.add())
    *found, end = log.pieces()
    assert [piece.log_offset for piece in found if isinstance(piece, FoundRecords)] == [places[0], places[2]]
    assert end == End(len(log.data), "")


def test_an_empty_log_ends_where_it_begins() -> None:
    assert Log().pieces() == [End(0, "")]


@pytest.mark.parametrize(
    ("at", "damage", "reason"),
    [
        (0, b"\0\0\0\x05", "cannot be"),
        (4, b"\0\0\0\0", "cannot be"),
        (28, b"\0\0\0\1", "belongs"),
        (95, b"!", "CRC"),
        (84, b"\x7f\xff\xff\xff", "body length"),
        (188, b"\xff", "topic length"),
        (189, b"\xff", "not UTF-8"),
        (190, b"\x7f\xff", "properties length"),
    ],
)
def test_each_kind_of_damage_is_named_and_passed_over(at: int, damage: bytes, reason: str) -> None:
    log = Log()
    log.add()
    bad = log.add()
    good = log.add()
    log.data[bad + at : bad + at + len(damage)] = damage
    first, hole, after, end = log.pieces()
    assert isinstance(first, FoundRecords)
    assert isinstance(hole, Damage)
    assert (hole.log_offset, hole.end) == (bad, good)
    assert reason in hole.reason
    assert isinstance(after, FoundRecords)
    assert (after.log_offset, end) == (good, End(len(log.data), ""))


def test_zeros_between_records_are_damage_not_the_end() -> None:
    log = Log()
    first = log.add()
    log.data[first : first + 192] = bytes(192)
    log.roll()
    log.add()
    hole, _, _ = log.pieces()
    assert isinstance(hole, Damage)
    assert hole.end == FILE_SIZE


def test_bytes_of_an_older_life_are_not_taken_for_records() -> None:
    log = Log()
    log.add()
    old = encode(Record("T", 0, b"old", log_offset=77))
    log.data += old
    _, end = log.pieces()
    assert isinstance(end, End)
    assert "belongs" in end.reason


def test_a_record_with_wide_hosts_is_walked_like_any_other() -> None:
    log = Log()
    places = [log.add(), log.add(born_host=("::1", 1)), log.add(store_host=("::2", 2)), log.add()]
    *found, end = log.pieces()
    assert [piece.log_offset for piece in found] == places
    assert end == End(len(log.data), "")


def test_a_magic_across_two_chunks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dejamq_broker.store.log.scan.CHUNK_SIZE", 256)
    for garbage in range(240, 270):
        record = encode(Record("T", 0, b"x", log_offset=garbage))
        data = (b"\xff" * garbage + record).ljust(FILE_SIZE, b"\0")
        extent = LogFiles(0, FILE_SIZE, FILE_SIZE)

        def read(at: int, size: int, data: bytes = data) -> bytes:
            return data[at : at + size]

        assert find_record(read, extent, 0) == garbage


@given(st.binary(max_size=600), st.integers(0, 5))
def test_no_bytes_make_a_walk_fail(garbage: bytes, before: int) -> None:
    log = Log()
    for _ in range(before):
        log.add()
    log.data += garbage
    *_, end = log.pieces()
    assert isinstance(end, End)
    assert end.log_offset >= before * 192


PROPERTIES = st.dictionaries(
    st.sampled_from(["TAGS", "XTAGS", "KEYS", "DELAY", "UNIQ_KEY"]), st.sampled_from(["1", "9", "订单", "TAGS", "Aa"])
)


@given(st.lists(st.tuples(st.sampled_from(["T", "订单", "SCHEDULE_TOPIC_XXXX"]), PROPERTIES), min_size=1, max_size=8))
def test_entries_of_a_run_are_those_of_its_records_one_by_one(messages: list[tuple[str, dict[str, str]]]) -> None:
    log = Log()
    for number, (topic, properties) in enumerate(messages):
        record = Record(
            topic, number % 2, b"body", encode_properties(properties), queue_offset=number,
            log_offset=len(log.data), store_timestamp_ms=50,
        )  # fmt: skip
        log.data += encode(record)
    table = QueueTable()
    found = next(log.walk())
    assert isinstance(found, FoundRecords)
    batch = batch_of(found, table.number_of, LEVELS)
    at = 0
    for index, size in enumerate(found.sizes):
        record = decode(found.data, at)
        assert batch.tags_codes[index] == queue_tags_code(record, LEVELS)
        assert queue_of(batch, table, index) == (record.topic, record.queue_id)
        assert (batch.queue_offsets[index], batch.log_offsets[index]) == (index, at)
        at += size
    assert batch.end_log_offset == len(log.data)


def queue_of(batch: Batch, table: QueueTable, index: int) -> QueueKey:
    """The queue whose group has the record of this number."""
    numbers = np.arange(len(batch.sizes))
    (number,) = [number for number, members in batch.groups if index in numbers[members]]
    return table.keys[number]


def test_a_queue_of_prepared_records_only_does_not_come_into_being() -> None:
    log = Log()
    log.add(sys_flag=SYS_TRANSACTION_PREPARED)
    table = QueueTable()
    found = next(log.walk())
    assert isinstance(found, FoundRecords)
    assert list(batch_of(found, table.number_of, LEVELS).groups) == []
    assert table.keys == []


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        ("1", 1050), ("3", 10_050), ("99", 10_050), ("0", 2112), ("x", 2112), ("", 2112), ("-1", 2112), ("²", 2112),
        ("٣", 2112), ("0" * 5000 + "1", 1050), ("9" * 5000, 10_050),
    ],
)  # fmt: skip
def test_a_delay_level_decides_the_time_of_delivery(delay: str, expected: int) -> None:
    properties = encode_properties({"DELAY": delay, "TAGS": "Aa"})
    record = Record("SCHEDULE_TOPIC_XXXX", 0, b"", properties, store_timestamp_ms=50)
    assert queue_tags_code(record, LEVELS) == expected
    assert tags_code("Aa") == 2112


def test_file_names_are_twenty_digits_both_ways() -> None:
    assert file_name(65_536) == "00000000000000065536"
    assert file_start("00000000000000065536") == 65_536
    assert [file_start(name) for name in ("65536", "0000000000000006553x", "²" * 20, "")] == [None] * 4


def test_a_second_cut_at_the_same_place_gets_its_own_name(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    paths.cut.mkdir()
    first = paths.cut_file("7", 5)
    first.touch()
    assert (first.name, paths.cut_file("7", 5).name) == ("7.cut-5", "7.cut-5.2")


def test_entries_are_twenty_bytes_as_rocketmq_writes_them(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "q", 100, lambda: 4_096)
    push(queue, [0, 1], log_offset=0x1122334455)
    queue.write_out()
    raw = (tmp_path / "q" / file_name(0)).read_bytes()
    assert raw[:20] == bytes.fromhex("0000001122334455 00000064 ffffffffffffffff")
    assert len(raw) == 100


def push(queue: ConsumeQueue, queue_offsets: list[int], *, log_offset: int | None = None) -> None:
    """Entries of 100-byte records; the record of entry N is at log offset 1000 N unless said."""
    entries = np.empty(len(queue_offsets), ENTRY)
    starts = np.array(queue_offsets) * 1000 if log_offset is None else log_offset + np.arange(len(queue_offsets)) * 1000
    entries["log_offset"], entries["size"], entries["tags_code"] = starts, 100, -1
    queue.append(np.array(queue_offsets), entries, starts + 100)


def test_a_queue_passes_over_what_it_has(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "q", 100, lambda: 4_096)
    push(queue, [0, 1, 2])
    push(queue, [0, 1, 2])
    push(queue, [1, 2, 3, 4])
    assert queue.entries(0, 10)["log_offset"].tolist() == [0, 1000, 2000, 3000, 4000]


def test_gaps_become_fillers_and_a_late_queue_begins_in_its_file(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "q", 100, lambda: 4_096)
    push(queue, [12, 13, 16])
    assert (queue.min_offset, queue.max_offset) == (12, 17)
    assert queue.entries(10, 10)["size"].tolist() == [FILLER_SIZE, FILLER_SIZE, 100, 100, FILLER_SIZE, FILLER_SIZE, 100]
    queue.write_out()
    again = ConsumeQueue(tmp_path / "q", 100, lambda: 4_096)
    again.load(None)
    again.correct_min(0)
    assert (again.min_offset, again.max_offset, again.max_log_offset) == (12, 17, 16_100)


def test_a_gap_that_cannot_be_is_refused(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "q", 100, lambda: 4_096)
    push(queue, [0])
    with pytest.raises(StoreDamaged, match="dump"):
        push(queue, [1 << 40])


def test_a_long_queue_keeps_only_its_end_in_memory(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "q", 20 * 1000, lambda: 4_096)
    for start in range(0, 50_000, 500):
        push(queue, list(range(start, start + 500)))
        queue.write_out()
    start, tail = queue._tail.start, queue._tail.entries
    assert start > 30_000
    assert len(tail) < 20_000
    assert queue.entries(0, 50_000)["log_offset"].tolist() == [1000 * number for number in range(50_000)]
