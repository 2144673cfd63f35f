"""Walking a commit log record by record, from bytes alone: recovery, reput after recovery, and dump all read this way.

Pure: nothing is changed and bad bytes are values, not exceptions. A record counts when its lengths agree, its magic is
known, its body matches its CRC, and it says that it belongs where it is: bytes of an older life never pass.
Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``; the check of the place is ours.
"""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from dejamq_proto.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD,
    PAIR,
    BadRecord,
    decode,
)
from dejamq_proto.run import BadRun, Run, check_crcs, parse

CHUNK_SIZE = 4 << 20
MAX_RECORDS = 4096
_MAGIC_AT = 4
_MAGICS = {PAIR.pack(0, magic)[_MAGIC_AT:] for magic in (MAGIC_V1, MAGIC_V2)}
_MAGIC_COMMON = next(iter(_MAGICS))[:3]

Read = Callable[[int, int], bytes]
"""Copy ``size`` bytes at a log offset; shorter at the end of a file."""


class Found(msgspec.Struct, frozen=True):
    """Good records, one after the other. ``run`` is None for a single record with an IPv6 host."""

    log_offset: int
    data: bytes
    sizes: list[int]
    run: Run | None

    @property
    def end(self) -> int:
        return self.log_offset + len(self.data)


class Damage(msgspec.Struct, frozen=True):
    """Bytes that are no record, with good records after them."""

    log_offset: int
    end: int
    reason: str


class End(msgspec.Struct, frozen=True):
    """Nothing good from here on. ``reason`` is "" where only zeros begin, as after the last append."""

    log_offset: int
    reason: str


class Extent(msgspec.Struct, frozen=True):
    """Where a log lies: equally long files from ``start`` to ``end``."""

    start: int
    end: int
    file_size: int

    def file_end(self, log_offset: int) -> int:
        return (log_offset // self.file_size + 1) * self.file_size


def walk(read: Read, extent: Extent, log_offset: int) -> Iterator[Found | Damage | End]:
    """Everything from ``log_offset`` on; the last piece is an End."""
    at = log_offset
    while at < extent.end:
        piece = step(read, extent, at)
        if isinstance(piece, int):
            at = piece
            continue
        if isinstance(piece, End):
            resumed = find_record(read, extent, at)
            if resumed is None:
                yield piece
                return
            yield Damage(at, resumed, piece.reason or "zeros where a record must be")
            at = resumed
        else:
            yield piece
            at = piece.end
    yield End(min(at, extent.end), "")


def find_record(read: Read, extent: Extent, log_offset: int) -> int | None:
    """The first good record after ``log_offset``, which is none itself."""
    at = log_offset + 1
    while at < extent.end:
        file_end = extent.file_end(at)
        data = read(at, min(CHUNK_SIZE, file_end - at))
        found = data.find(_MAGIC_COMMON)
        while found >= 0:
            candidate = at + found - _MAGIC_AT
            if candidate > log_offset and data[found : found + 4] in _MAGICS and _is_record(read, extent, candidate):
                return candidate
            found = data.find(_MAGIC_COMMON, found + 1)
        # a magic may lie across two chunks
        at = at + len(data) if at + len(data) >= file_end else at + len(data) - 3
    return None


def _is_record(read: Read, extent: Extent, log_offset: int) -> bool:
    return isinstance(step(read, extent, log_offset), Found)


def step(read: Read, extent: Extent, at: int) -> Found | End | int:
    """One chunk of records, the reason why there is none, or the offset to go on at after a blank."""
    room = extent.file_end(at) - at
    data = read(at, min(CHUNK_SIZE, room))
    size, magic = PAIR.unpack_from(data) if len(data) >= PAIR.size else (0, 0)
    if magic == MAGIC_BLANK:
        return at + room
    if size == 0 and magic == 0:
        return End(at, "")
    if len(data) < size <= room:
        data = read(at, size)
    sizes = _sizes(data)
    if not sizes:
        return End(at, f"a record of {size} bytes and magic {magic & 0xFFFFFFFF:#010x} cannot be, {room} are left")
    return _good_ones(data, sizes, at)


def _sizes(data: bytes) -> list[int]:
    """Sizes of what looks like whole records at the start of the data."""
    sizes: list[int] = []
    at, length, unpack = 0, len(data), PAIR.unpack_from
    while at + OVERHEAD <= length and len(sizes) < MAX_RECORDS:
        size, magic = unpack(data, at)
        if magic not in (MAGIC_V1, MAGIC_V2) or size < OVERHEAD or at + size > length:
            break
        sizes.append(size)
        at += size
    return sizes


def _good_ones(data: bytes, sizes: list[int], at: int) -> Found | End:
    while sizes:
        end = sum(sizes)
        try:
            run = parse(memoryview(data)[:end], np.array(sizes))
            check_crcs(run)
            _check_places(run, at)
        except BadRun as bad:
            if bad.index == 0:
                return _single(data[: sizes[0]], at)
            sizes = sizes[: bad.index]
        else:
            return Found(at, data[:end], sizes, run)
    raise AssertionError("a run that is bad at its first record has been answered")


def _single(data: bytes, at: int) -> Found | End:
    """Runs hold no IPv6 hosts, so a record that is bad for a run may still be good alone."""
    try:
        record = decode(data)
    except BadRecord as bad:
        return End(at, str(bad))
    if record.log_offset != at:
        return End(at, f"it says it belongs at {record.log_offset}")
    return Found(at, data, [len(data)], None)


def _check_places(run: Run, at: int) -> None:
    places = run.headers["log_offset"] == at + run.positions
    if not places.all():
        raise BadRun(int(np.argmin(places)), "it says it belongs elsewhere")
