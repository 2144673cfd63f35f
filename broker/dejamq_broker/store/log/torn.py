"""Records that a power loss tore where no checksum looks: a record's CRC covers its body, not its topic and properties.

Asked only behind the last mark, where sectors may be missing or hold anything; before it all was synced. The rule is
ours: RocketMQ takes such records for good. Pure, like ``scan``.
"""

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt
from dejamq_proto.records.record import HEADER, HEADER_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, OVERHEAD, PAIR, decode
from dejamq_proto.records.run import Bytes, parse

from dejamq_broker.store.log.batch import Ints
from dejamq_broker.store.log.scan import Damage, End, FoundRecords, LogFiles, Read, walk

SECTOR = 512
"""The least that a disk writes as a whole: a larger sector has its edges at the same places."""
TEXT_ENOUGH = 8
"""This number of bytes of garbage looks like text only one time in some thousand."""
_USUAL_CONTROLS = "\x01\x02\t\n\r"
_REASON = "its topic and properties were never written in whole"


def walk_believed(
    read: Read, extent: LogFiles, log_offset: int, cut_from: int
) -> Iterator[FoundRecords | Damage | End]:
    """As ``walk``, but from ``cut_from`` on the first hole ends the log, and so does a torn record."""
    held: FoundRecords | None = None
    for piece in walk(read, extent, log_offset):
        if held is not None and not isinstance(piece, FoundRecords):
            end = _garbled(held, read, extent, cut_from)
            yield from _upto(held, held.end if end is None else end)
            if end is not None:
                yield End(end, _REASON)
                return
        elif held is not None:
            yield held
        held = None
        if isinstance(piece, Damage) and piece.log_offset >= cut_from:
            yield End(piece.log_offset, piece.reason)
            return
        if not isinstance(piece, FoundRecords) or piece.end <= cut_from:
            yield piece
            continue
        zeroed = _zeroed(piece, extent, cut_from)
        if zeroed is not None:
            yield from _upto(piece, zeroed)
            yield End(zeroed, _REASON)
            return
        held = piece


def _upto(found: FoundRecords, end: int) -> Iterator[FoundRecords]:
    """The records before a log offset at which one of them begins or the last one ends."""
    ends = found.log_offset + np.cumsum(found.sizes)
    count = int(np.searchsorted(ends, end, side="right"))
    if count == len(found.sizes):
        yield found
    elif count:
        sizes, data = found.sizes[:count], found.data[: end - found.log_offset]
        yield FoundRecords(found.log_offset, data, sizes, parse(data, np.array(sizes)))


def _tails(found: FoundRecords) -> tuple[Ints, Ints, Ints]:
    """Positions of topic, properties and end of every record."""
    if found.run is not None:
        run = found.run
        return run.topic_at, run.properties_at, run.positions + run.sizes
    record, size = decode(found.data, check_crc=False), len(found.data)
    properties_at = size - len(record.raw_properties)
    return np.array([properties_at - 2 - len(record.topic.encode())]), np.array([properties_at]), np.array([size])


def _zeroed(found: FoundRecords, extent: LogFiles, cut_from: int) -> int | None:
    """Where the first record begins whose topic or properties are zeros up to the edge of a sector, or from it on."""
    topic_at, properties_at, ends = _tails(found)
    base = found.log_offset % extent.file_size
    edges = -(-(topic_at + base) // SECTOR) * SECTOR - base
    starts = found.log_offset + ends - np.array(found.sizes)
    crossing = np.flatnonzero((edges < ends) & (starts >= cut_from))
    places = edges[crossing], topic_at[crossing], properties_at[crossing], ends[crossing]
    for index in crossing[_suspect(np.frombuffer(found.data, np.uint8), *places)].tolist():
        tail = Tail(found.data, int(topic_at[index]), int(properties_at[index]), int(ends[index]))
        if tail.is_torn(int(edges[index])):
            return int(starts[index])
    return None


def _suspect(data: Bytes, edges: Ints, topic_at: Ints, properties_at: Ints, ends: Ints) -> npt.NDArray[np.bool_]:
    """Which tails need a closer look: most have text on both sides of their only edge. As ``Tail``, all together."""
    lengths_at = properties_at - 2
    after = np.where((lengths_at <= edges) & (edges < properties_at), properties_at, edges)
    before = np.where((lengths_at < edges) & (edges <= properties_at), lengths_at, edges) - 1
    zeros_after = (after < ends) & (data[np.minimum(after, ends - 1)] == 0)
    zeros_before = (before >= topic_at) & (data[np.maximum(before, 0)] == 0)
    return np.asarray(zeros_after | zeros_before | (ends - edges >= SECTOR))


class Tail(msgspec.Struct, frozen=True):
    """Where topic and properties of one record are. Between them lies the properties' length, where zeros are usual."""

    data: bytes | memoryview
    topic_at: int
    properties_at: int
    end: int

    def is_torn(self, edge: int) -> bool:
        """Whether zeros touch an edge of a sector, the first of which is given; a whole sector may be garbage too."""
        if self.end - edge >= SECTOR and not self.is_text():
            return True
        return any(self._zeros_at(each) for each in range(edge, self.end, SECTOR))

    def is_text(self) -> bool:
        """Whether the properties are text, as every client makes them."""
        try:
            text = bytes(self.data[self.properties_at : self.end]).decode()
        except UnicodeDecodeError:
            return False
        return not any(character < " " and character not in _USUAL_CONTROLS for character in text)

    def _zeros_at(self, edge: int) -> bool:
        length_at = self.properties_at - 2
        after = self.properties_at if length_at <= edge < self.properties_at else edge
        before = length_at - 1 if length_at <= edge - 1 < self.properties_at else edge - 1
        return (after < self.end and not self.data[after]) or (before >= self.topic_at and not self.data[before])


def _garbled(found: FoundRecords, read: Read, extent: LogFiles, cut_from: int) -> int | None:
    """Where the last record begins if its end may lie in a sector of garbage.

    Such a sector begins inside the properties, or lengths and CRC would not agree. A few bytes of it may look like
    text: then what follows them in the sector decides, which must be zeros or may begin a record.
    """
    begins = found.end - found.sizes[-1]
    if begins < cut_from:
        return None
    topic_at, properties_at, ends = _tails(found)
    tail = Tail(found.data, int(topic_at[-1]), int(properties_at[-1]), int(ends[-1]))
    inside = found.end % extent.file_size % SECTOR
    if inside == 0 or tail.end - inside < tail.properties_at - 1:
        return None
    can_tell = inside >= TEXT_ENOUGH or _could_follow(bytes(read(found.end, SECTOR - inside)), found.end, extent)
    return None if can_tell and tail.is_text() else begins


def _could_follow(data: bytes, log_offset: int, extent: LogFiles) -> bool:
    """Whether these bytes are zeros, or may begin a record or a blank, as far as they were copied."""
    data = data.rstrip(b"\0")
    room = extent.file_end(log_offset) - log_offset
    size, magic = PAIR.unpack(data[: PAIR.size].ljust(PAIR.size, b"\0"))
    if len(data) < PAIR.size:
        return bool(0 <= size <= room)
    if magic == MAGIC_BLANK:
        return bool(size == room)
    if magic not in (MAGIC_V1, MAGIC_V2) or not OVERHEAD <= size <= room:
        return False
    return len(data) < HEADER_SIZE or bool(np.frombuffer(data, HEADER, 1)["log_offset"][0] == log_offset)
