"""Reads that look into each message, over a queue that comes in stretches."""

from collections.abc import Mapping

import pytest
from dejamq_broker.paths.filtered import MAX_SEEN, Most, read_wanted
from dejamq_broker.store import ReadResult, ReadStatus
from dejamq_proto.records.record import Record, decode, encode, encode_properties
from hypothesis import given
from hypothesis import strategies as st


class Queue:
    """Answers reads with at most ``stretch`` messages; message ``n`` has the property n. ``gone`` were deleted."""

    def __init__(self, count: int, stretch: int, *, host: str = "127.0.0.1", body: bytes = b"") -> None:
        self.stretch, self.gone, self.reads = stretch, range(0), 0
        self.records = [
            encode(Record(
                topic="orders", queue_id=0, body=body, raw_properties=encode_properties({"n": str(number)}),
                queue_offset=number, store_host=(host, 10911),
            ))
            for number in range(count)
        ]  # fmt: skip

    def read(self, queue_offset: int, most: int) -> ReadResult:
        self.reads += 1
        end = len(self.records)
        if queue_offset >= end:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset, 0, end)
        if queue_offset in self.gone:
            return ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, self.gone.stop, 0, end)
        pieces = self.records[queue_offset : queue_offset + min(most, self.stretch)]
        sizes = [len(piece) for piece in pieces]
        return ReadResult(ReadStatus.FOUND, queue_offset + len(pieces), 0, end, sizes, pieces)


def numbers(result: ReadResult) -> list[int]:
    at, found = 0, []
    for size in result.sizes:
        found.append(int(decode(result.records, at).properties["n"]))
        at += size
    return found


def never(properties: Mapping[str, str]) -> bool:
    return False


@given(st.integers(1, 40), st.integers(1, 9), st.sets(st.integers(0, 39)), st.integers(1, 5), st.integers(1, 20))
def test_reads_one_after_the_other_give_each_wanted_message_once(
    count: int, stretch: int, wanted: set[int], messages: int, entries: int
) -> None:
    queue, at, found = Queue(count, stretch), 0, []
    while at < count:
        result = read_wanted(queue.read, lambda each: int(each["n"]) in wanted, at, Most(messages, 200, entries))
        found += numbers(result)
        assert result.next_offset > at
        assert len(result.sizes) <= messages
        assert result.status is (ReadStatus.FOUND if result.sizes else ReadStatus.NO_MATCHED_MESSAGE)
        at = result.next_offset
    assert found == sorted(number for number in wanted if number < count)


def test_the_first_stretch_with_a_wanted_message_is_the_last_that_is_read() -> None:
    queue = Queue(100, 10)
    result = read_wanted(queue.read, lambda each: each["n"] in ("25", "27", "35"), 0, Most(32, 1 << 20, 800))
    assert (numbers(result), result.next_offset, queue.reads) == ([25, 27], 30, 3)


def test_records_with_an_ipv6_host_are_judged_too() -> None:
    result = read_wanted(Queue(10, 10, host="::1").read, lambda each: each["n"] > "7", 0, Most(1, 1 << 20, 800))
    assert (numbers(result), result.next_offset) == ([8], 9)


def test_a_look_ends_after_many_bytes_although_the_queue_goes_on() -> None:
    queue = Queue(20, 1, body=bytes(1 << 20))
    result = read_wanted(queue.read, never, 0, Most(32, 1 << 20, 800))
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, MAX_SEEN >> 20)


@pytest.mark.parametrize(("start", "status", "next_offset"), [
    (0, ReadStatus.NO_MATCHED_MESSAGE, 4),
    (4, ReadStatus.MESSAGE_WAS_REMOVING, 6),
    (10, ReadStatus.OFFSET_OVERFLOW_ONE, 10),
])  # fmt: skip
def test_what_stops_a_look_is_told_only_when_it_stands_at_its_beginning(
    start: int, status: ReadStatus, next_offset: int
) -> None:
    queue = Queue(10, 2)
    queue.gone = range(4, 6)
    result = read_wanted(queue.read, never, start, Most(32, 1 << 20, 800))
    assert (result.status, result.next_offset) == (status, next_offset)
