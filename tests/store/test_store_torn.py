"""Records torn by a power loss where RocketMQ's format has no checksum: in the topic and the properties."""

import pytest
from dejamq_broker.store.log.scan import Damage, End, FoundRecords, LogFiles
from dejamq_broker.store.log.torn import SECTOR, walk_believed
from dejamq_proto.records.record import MAGIC_BLANK, PAIR, Record, encode, encode_properties

FILE_SIZE = 8192
TOPIC = "a-topic"
PROPERTIES = encode_properties({"TAGS": "red", "KEYS": "k" * 40})


def log_of(*records: bytes) -> bytearray:
    return bytearray(b"".join(records).ljust(FILE_SIZE, b"\0"))


def record(at: int, body_size: int, properties: bytes = PROPERTIES, **fields: object) -> bytes:
    made = Record(TOPIC, 0, b"b" * body_size, properties, log_offset=at, **fields)  # type: ignore[arg-type]  # test only
    return encode(made)


def ending(at: int, end: int, properties: bytes = PROPERTIES) -> bytes:
    """A record with the body that makes it end there."""
    return record(at, end - at - len(record(at, 0, properties)), properties)


def pieces(data: bytes | bytearray, cut_from: int = 0) -> list[FoundRecords | Damage | End]:
    def read(at: int, size: int) -> bytes:
        return bytes(data[at : at + size])

    return list(walk_believed(read, LogFiles(0, FILE_SIZE, FILE_SIZE), 0, cut_from))


def end_of(data: bytes | bytearray, cut_from: int = 0) -> int:
    *found, end = pieces(data, cut_from)
    assert isinstance(end, End)
    assert sum(len(piece.data) for piece in found if isinstance(piece, FoundRecords)) == end.log_offset
    return end.log_offset


@pytest.mark.parametrize("over", range(1, len(PROPERTIES) + 2 + len(TOPIC)))
def test_a_record_whose_end_is_zeros_from_a_sector_on_is_not_believed(over: int) -> None:
    whole = log_of(record(0, 20), ending(len(record(0, 20)), 2 * SECTOR + over))
    assert end_of(whole) == 2 * SECTOR + over
    torn = whole[: 2 * SECTOR].ljust(FILE_SIZE, b"\0")
    assert end_of(torn) == len(record(0, 20))


@pytest.mark.parametrize("over", range(1, len(PROPERTIES) + 2 + len(TOPIC)))
def test_a_record_whose_end_lies_in_a_garbled_sector_is_not_believed(over: int) -> None:
    whole = log_of(record(0, 20), ending(len(record(0, 20)), 2 * SECTOR + over))
    garbled = whole[: 2 * SECTOR] + bytes(range(255, 127, -1)) * 4 + whole[3 * SECTOR :]
    assert end_of(garbled) == len(record(0, 20))


def test_properties_longer_than_a_sector_with_one_missing_in_the_middle_are_not_believed() -> None:
    long = encode_properties({"KEYS": "k" * 2000})
    first = record(0, 20)
    whole = log_of(first, record(len(first), 10, long), record(len(first) + len(record(0, 10, long)), 5))
    assert end_of(whole) == len(bytes(whole).rstrip(b"\0"))
    for hole in (bytes(SECTOR), bytes(range(128, 256)) * 4):
        torn = bytearray(whole)
        torn[2 * SECTOR : 3 * SECTOR] = hole
        assert end_of(torn) == len(first)


def test_a_record_that_a_torn_one_follows_is_believed() -> None:
    first = ending(0, SECTOR + 100)
    second = ending(len(first), 3 * SECTOR)
    for kept in (4, 8, 20, 40, 200):
        assert end_of(log_of(first, second[:kept])) == len(first)


def test_what_lies_before_the_mark_is_not_asked() -> None:
    torn = log_of(ending(0, 2 * SECTOR + 30))[: 2 * SECTOR].ljust(FILE_SIZE, b"\0")
    assert end_of(torn, cut_from=2 * SECTOR + 30) == 2 * SECTOR + 30


def test_records_without_properties_and_with_wide_hosts_are_believed_wherever_they_end() -> None:
    for over in range(-12, 12):
        data = b""
        for fields in ({}, {"born_host": ("::1", 1)}, {}, {"store_host": ("::2", 2)}, {}):
            at = len(data)
            overhead = len(record(at, 0, b"", **fields))
            target = (at // SECTOR + 2) * SECTOR + over
            data += record(at, target - at - overhead, b"", **fields)
        assert end_of(log_of(data)) == len(data)


def test_the_first_hole_behind_the_mark_ends_the_log_and_one_before_it_does_not() -> None:
    parts = [record(0, 300)]
    for _ in range(4):
        parts.append(record(sum(map(len, parts)), 300))
    size = len(parts[0])
    torn = log_of(*parts)
    torn[2 * size + 100] ^= 1
    assert end_of(torn) == 2 * size
    damage = pieces(torn, cut_from=4 * size)[1]
    assert isinstance(damage, Damage)
    assert (damage.log_offset, damage.end) == (2 * size, 3 * size)


def test_a_blank_may_follow_a_record() -> None:
    first = ending(0, 7 * SECTOR + 100)
    room = FILE_SIZE - len(first)
    found, end = pieces(log_of(first, PAIR.pack(room, MAGIC_BLANK), b"\xee" * (room - 8)))
    assert isinstance(found, FoundRecords)
    assert (found.data, end) == (first, End(FILE_SIZE, ""))
