"""Walking a commit log record by record, from bytes alone: recovery, reput after recovery, and dump all read this way.

Pure: nothing is changed and bad bytes are values, not exceptions. A record counts when its lengths agree, its magic is
known, its body matches its CRC, and it names the place where it is. So bytes of an earlier life never pass. Source:
RocketMQ ``CommitLog.checkMessageAndReturnSize``; the check of the place is ours.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
from dejamq_proto.records.record import (
    HEADER_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD,
    PAIR,
    BadRecord,
    decode,
)
from dejamq_proto.records.run import PLACE, PLACE_AT, BadRun, Run, check_crcs, demand, every, has_wide_hosts, parse

from dejamq_broker.store.log.batch import Ints

CHUNK_SIZE = 4 << 20
"""Bytes looked at together: enough to make the price of calling numpy small."""
_ZERO_CHUNK = bytes(CHUNK_SIZE)
"""The rest of a file is zeros: comparing is many times faster than searching."""
WIDEST_TOPIC = 255
MAX_RECORDS = 4096
STEADY = 8
"""After this number of records of one size, more of them are expected and looked for together."""
FIRST_PIECE = 64
_HEAD = np.dtype([("size", ">i4"), ("magic", ">i4")])
_MAGIC_AT = 4
_MAGICS = {PAIR.pack(0, magic)[_MAGIC_AT:] for magic in (MAGIC_V1, MAGIC_V2)}
_MAGIC_COMMON = next(iter(_MAGICS))[:3]

Read = Callable[[int, int], bytes | memoryview]
"""``size`` bytes at a log offset, a copy or a view; shorter at the end of a file."""


class FoundRecords(msgspec.Struct, frozen=True):
    """Good records, one after the other. ``run`` is None for a single record with an IPv6 host."""

    log_offset: int
    data: bytes | memoryview
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


class LogFiles(msgspec.Struct, frozen=True):
    """Where a log lies: equally long files from ``start`` to ``end``."""

    start: int
    end: int
    file_size: int

    def file_end(self, log_offset: int) -> int:
        return (log_offset // self.file_size + 1) * self.file_size


def walk(
    read: Read, extent: LogFiles, log_offset: int, *, check_crc: bool = True
) -> Iterator[FoundRecords | Damage | End]:
    """Everything from ``log_offset`` on; the last piece is an End.

    ``check_crc=False`` leaves bodies unread, for bytes that were checked before (as RocketMQ's reput does).
    """
    at, chunk_size = log_offset, CHUNK_SIZE
    while at < extent.end:
        for piece in _chunk(read, extent, at, chunk_size, check_crc):
            if isinstance(piece, int):
                at = piece
            elif isinstance(piece, FoundRecords):
                yield piece
                at = piece.end
                # if the next ones are of this size too, the chunk ends with a record and needs no second copy
                chunk_size = max(CHUNK_SIZE - CHUNK_SIZE % piece.sizes[-1], piece.sizes[-1])
            else:
                resumed = find_record(read, extent, at)
                if resumed is None:
                    yield piece
                    return
                yield Damage(at, resumed, piece.reason or "zeros where a record must be")
                at = resumed
    yield End(min(at, extent.end), "")


def find_record(read: Read, extent: LogFiles, log_offset: int) -> int | None:
    """The first good record after ``log_offset``, where no good record begins."""
    at = log_offset + 1
    while at < extent.end:
        file_end = min(extent.file_end(at), extent.end)
        data = bytes(read(at, min(CHUNK_SIZE, file_end - at)))
        if not data:  # the file expired while it was being read
            at = file_end
        found = -1 if _ZERO_CHUNK.startswith(data) else data.find(_MAGIC_COMMON)
        while found >= 0:
            candidate = at + found - _MAGIC_AT
            if candidate > log_offset and data[found : found + 4] in _MAGICS and _is_record(read, extent, candidate):
                return candidate
            found = data.find(_MAGIC_COMMON, found + 1)
        # a magic may lie across two chunks
        at += len(data) if at + len(data) >= file_end or len(data) <= 3 else len(data) - 3
    return None


def _is_record(read: Read, extent: LogFiles, at: int) -> bool:
    """Asked for every magic in damaged bytes, so it reads no more than it must."""
    head = read(at, min(HEADER_SIZE, extent.file_end(at) - at))
    if len(head) < HEADER_SIZE or PLACE.unpack_from(head, PLACE_AT)[1] != at:
        return False
    size, _ = PAIR.unpack_from(head)
    return OVERHEAD <= size <= extent.file_end(at) - at and isinstance(_single(read(at, size), at), FoundRecords)


def step(read: Read, extent: LogFiles, at: int) -> FoundRecords | End | int:
    """The first piece from here on: records, the reason why there are no records, or the offset to go on at after a
    blank.
    """
    return next(_chunk(read, extent, at, CHUNK_SIZE, True))


def _chunk(
    read: Read, extent: LogFiles, at: int, chunk_size: int, check_crc: bool
) -> Iterator[FoundRecords | End | int]:
    """The content of one chunk of bytes. It goes on behind the last piece, unless that is an End."""
    room = extent.file_end(at) - at
    data = read(at, min(chunk_size, room))
    size, magic = PAIR.unpack_from(data) if len(data) >= PAIR.size else (0, 0)
    if magic == MAGIC_BLANK:
        yield at + room
        return
    if size == 0 and magic == 0:
        yield End(at, "")
        return
    if len(data) < size <= room:
        data = read(at, size)
    sizes = _sizes(data)
    if not len(sizes):
        yield End(at, f"a record of {size} bytes and magic {magic & 0xFFFFFFFF:#010x} cannot be, {room} are left")
        return
    for piece in _pieces(data, sizes, at, check_crc):
        yield piece
        if isinstance(piece, End):
            return


def _sizes(data: bytes | memoryview) -> Ints:
    """Sizes of the parts that look like whole records at the start of the data."""
    parts: list[Ints] = []
    sizes: list[int] = []
    at, length, unpack = 0, len(data), PAIR.unpack_from
    count = steady = 0
    while at + OVERHEAD <= length and count < MAX_RECORDS:
        size, magic = unpack(data, at)
        if magic not in (MAGIC_V1, MAGIC_V2) or size < OVERHEAD or at + size > length:
            break
        steady = steady + 1 if sizes and size == sizes[-1] else 0
        sizes.append(size)
        at, count = at + size, count + 1
        if steady == STEADY:
            more = _count_of(data, at, size, MAX_RECORDS - count)
            parts += [np.array(sizes), np.full(more, size)]
            at, count, sizes, steady = at + size * more, count + more, [], 0
    return np.concatenate([*parts, np.array(sizes, np.int64)])


def _count_of(data: bytes | memoryview, at: int, size: int, most: int) -> int:
    """How many records of this size follow one another from here on.

    Looked for in pieces that grow: where sizes change often, most of a large one is of other sizes.
    """
    room, found, piece = min((len(data) - at) // size, most), 0, FIRST_PIECE
    while found < room:
        count = min(piece, room - found)
        heads: npt.NDArray[np.void] = np.ndarray((count,), _HEAD, data, at + found * size, (size,))
        same = (heads["size"] == size) & ((heads["magic"] == MAGIC_V1) | (heads["magic"] == MAGIC_V2))
        if not same.all():
            return found + int(np.argmin(same))
        found, piece = found + count, piece * 4
    return found


def _pieces(data: bytes | memoryview, sizes: Ints, at: int, check_crc: bool) -> Iterator[FoundRecords | End]:
    """Runs of parts that look like records, and between them the records that no run can hold, one by one."""
    ends = np.cumsum(sizes)
    starts = ends - sizes
    wide = has_wide_hosts(np.frombuffer(data, np.uint8), starts)
    edges = [0, *((wide[1:] != wide[:-1]).nonzero()[0] + 1).tolist(), len(sizes)]
    for first, after in pairwise(edges):
        if wide[first]:
            for start, end in zip(starts[first:after].tolist(), ends[first:after].tolist(), strict=True):
                yield _single(data[start:end], at + start)
        else:
            start = int(starts[first])
            yield from _good_ones(data[start : int(ends[after - 1])], sizes[first:after], at + start, check_crc)


def _good_ones(data: bytes | memoryview, sizes: Ints, at: int, check_crc: bool) -> Iterator[FoundRecords | End]:
    """The records up to the first bad one, and its fault."""
    run = _run_of(data, sizes, at, check_crc)
    if isinstance(run, Run):
        yield FoundRecords(at, data, sizes.tolist(), run)
        return
    good = int(sizes[:run].sum())
    if run:
        yield from _good_ones(data[:good], sizes[:run], at, check_crc)
    after = good + int(sizes[run])
    piece = _single(data[good:after], at + good)
    yield piece
    if isinstance(piece, FoundRecords) and run + 1 < len(sizes):
        yield from _good_ones(data[after:], sizes[run + 1 :], at + after, check_crc)


def _run_of(data: bytes | memoryview, sizes: Ints, at: int, check_crc: bool) -> Run | int:
    """The run that these records are, or the number of the first bad one."""
    try:
        run = parse(data, sizes)
        if check_crc:
            check_crcs(run)
            _check_topics(run)
        demand(run.headers["log_offset"] == at + run.positions, "it says it belongs elsewhere")
    except BadRun as bad:
        return bad.index
    return run


def _check_topics(run: Run) -> None:
    """Demand that topics are text, which no checksum vouches for. Nearly all are ASCII, and looked at together."""
    for index in _not_ascii(run).nonzero()[0].tolist():
        start = int(run.topic_at[index])
        try:
            run.data[start : start + int(run.topic_size[index])].tobytes().decode()
        except UnicodeDecodeError as error:
            raise BadRun(index, f"the topic is not UTF-8: {error.reason}") from None


def _not_ascii(run: Run) -> npt.NDArray[np.bool_]:
    """The topics that have other bytes, or are so long that it would cost much to look."""
    at, sizes = run.topic_at, run.topic_size
    first, size, step = int(at[0]), int(sizes[0]), int(run.sizes[0])
    if every(sizes == size) and every(at == first + step * np.arange(len(at))):
        topics = np.ndarray((len(at), size), np.uint8, run.data, first, (step, 1))
        return np.asarray((topics >= 0x80).any(axis=1))
    within = np.arange(min(int(sizes.max()), WIDEST_TOPIC)) < sizes[:, None]
    places = np.where(within, at[:, None] + np.arange(within.shape[1]), 0)
    found: npt.NDArray[np.bool_] = ((run.data[places] >= 0x80) & within).any(axis=1) | (sizes > WIDEST_TOPIC)
    return found


def _single(data: bytes | memoryview, at: int) -> FoundRecords | End:
    """One record alone: the only way for those with IPv6 hosts, and the way to say what is wrong with a bad one."""
    try:
        record = decode(data)
    except BadRecord as bad:
        return End(at, str(bad))
    if record.log_offset != at:
        return End(at, f"it says it belongs at {record.log_offset}")
    return FoundRecords(at, data, [len(data)], None)
