"""Reads of a queue that look into each message: only those whose properties are wanted are given."""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from dejamq_proto.records.record import decode, decode_properties
from dejamq_proto.records.run import BadRun, parse

from dejamq_broker.filters.chosen import Wanted
from dejamq_broker.store import ReadResult, ReadStatus

MAX_SEEN = 8 << 20
"""Bytes after which a look ends, whatever it found: the event loop has others to serve."""

Read = Callable[[int, int], ReadResult]
"""Reads from a queue offset on, at most this number of messages."""


class Most(msgspec.Struct, frozen=True):
    """The most that one look gives, and the number of ``entries`` of the queue that it goes through for that."""

    messages: int
    bytes: int
    entries: int


def read_wanted(read: Read, wanted: Wanted, queue_offset: int, most: Most) -> ReadResult:
    """As an ordinary read, of wanted messages alone; NO_MATCHED_MESSAGE says how far a look without one came.

    It ends with the first part of the queue that has a wanted message. Source: RocketMQ
    ``DefaultMessageStore.getMessage`` with its filter by commit log.
    """
    at, end, seen = queue_offset, queue_offset + max(most.entries, most.messages), 0
    while True:
        found = read(at, end - at)
        if found.status is not ReadStatus.FOUND:
            return found if at == queue_offset else _nothing(found, at)
        chosen = _chosen(found, wanted, most)
        if chosen is not None:
            return chosen
        at, seen = found.next_offset, seen + sum(found.sizes)
        if at >= min(end, found.max_offset) or seen >= MAX_SEEN:
            return _nothing(found, at)


def _chosen(found: ReadResult, wanted: Wanted, most: Most) -> ReadResult | None:
    """The wanted records of those read, None without any. A later look gives the records that no longer fit."""
    sizes: list[int] = []
    pieces: list[bytes] = []
    records = found.records
    room, next_offset = most.bytes, found.next_offset
    for start, size, offset, properties in _records(found, records):
        if not wanted(decode_properties(properties)):
            continue
        if pieces and size > room:
            next_offset = offset
            break
        pieces.append(records[start : start + size])
        sizes.append(size)
        room -= size
        if len(sizes) == most.messages:
            next_offset = offset + 1
            break
    if not pieces:
        return None
    return msgspec.structs.replace(found, next_offset=next_offset, sizes=sizes, pieces=pieces)


def _records(found: ReadResult, records: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Of each record: where it begins, its size, its queue offset, its properties."""
    try:
        run = parse(records, np.array(found.sizes))
    except BadRun:  # a record with an IPv6 host stands in no run
        start = 0
        for size in found.sizes:
            record = decode(records, start, check_crc=False)
            yield start, size, record.queue_offset, record.raw_properties
            start += size
        return
    columns = run.positions, run.sizes, run.headers["queue_offset"], run.properties_at, run.properties_size
    for start, size, offset, at, length in zip(*(column.tolist() for column in columns), strict=True):
        yield start, size, offset, records[at : at + length]


def _nothing(found: ReadResult, next_offset: int) -> ReadResult:
    return ReadResult(ReadStatus.NO_MATCHED_MESSAGE, next_offset, found.min_offset, found.max_offset)
