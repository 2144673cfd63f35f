"""RocketMQ's message record, V1 and V2: the only file that knows a byte offset inside a record.

All integers are big-endian and signed. Source: RocketMQ 5.3, ``MessageExtEncoder``, ``CommitLog``, ``MessageDecoder``.

====== ======================== ==== ==========================================================
offset field                    size meaning
====== ======================== ==== ==========================================================
0      total size                  4 of the whole record
4      magic                       4 ``MAGIC_V1`` or ``MAGIC_V2`` (two-byte topic length)
8      body CRC                    4 CRC-32 of the body as stored, top bit cleared
12     queue id                    4
16     flag                        4 the user's, opaque
20     queue offset                8 entry number in the consume queue
28     log offset                  8 where this record begins in the commit log
36     sys flag                    4 ``SYS_*`` bits
40     born timestamp              8 producer's clock, ms
48     born host                   8 IPv4 4 + port 4; 20 bytes when ``SYS_BORN_HOST_V6``
56     store timestamp             8 broker's clock, ms
64     store host                  8 as born host, ``SYS_STORE_HOST_V6``
72     reconsume times             4
76     prepared transaction        8 log offset of the half message, or 0
84     body length                 4 then the body
88+b   topic length                1 (V1) or 2 (V2), then the topic in UTF-8
…      properties length           2 then ``name 0x01 value 0x02`` repeated
====== ======================== ==== ==========================================================

A magic or size of 0 is never a record: prepared files are full of zeros. At the end of a file stands a blank: the
remaining size (4) and ``MAGIC_BLANK`` (4), the rest undefined. So a file always keeps 8 spare bytes.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache

import msgspec
import numpy as np
from isal import isal_zlib

from dejamq_proto.records.hosts import NO_HOST, Host, host_bytes, offset_message_id, read_host

MAGIC_V1 = -626843481  # 0xDAA320A7
MAGIC_V2 = -626843477  # 0xDAA320AB
MAGIC_BLANK = -875286124  # 0xCBD43194
BLANK_SIZE = 8
HEADER_SIZE = 88  # up to and with the body length, both hosts IPv4
OVERHEAD = 91  # a V1 record with IPv4 hosts and nothing else in it

SYS_COMPRESSED = 1
SYS_TRANSACTION_MASK = 0b1100
SYS_TRANSACTION_PREPARED = 4
SYS_TRANSACTION_COMMIT = 8
SYS_TRANSACTION_ROLLBACK = 12
SYS_BORN_HOST_V6 = 1 << 4
SYS_STORE_HOST_V6 = 1 << 5
SYS_COMPRESSION_SHIFT = 8
SYS_COMPRESSION_MASK = 0b111 << SYS_COMPRESSION_SHIFT  # 1 lz4, 2 zstd, 3 zlib; 0 with SYS_COMPRESSED is zlib

MAX_PROPERTIES_SIZE = 32767
MAX_TOPIC_SIZE_V1 = 127
MAX_TOPIC_SIZE = 32767

FIXED = struct.Struct(">iiiiiqqiq")  # total size … born timestamp
TAIL = struct.Struct(">iqi")  # reconsume times, prepared transaction, body length
PAIR = struct.Struct(">ii")
I16, I32, I64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
STORED = struct.Struct(">28xqi16xq")  # log offset, system flag, store timestamp with an IPv4 host
OUTGOING = struct.Struct(">iiiii16xiq24xi8xi")  # the whole header; pad bytes are the broker's zero fields
INCOMING = struct.Struct(">4i20xi32xi8xi")
"""Total size, magic, body CRC, queue id, sys flag, reconsume times, body length, with IPv4 hosts."""
HEADER = np.dtype([
    ("total_size", ">i4"), ("magic", ">i4"), ("body_crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
    ("queue_offset", ">i8"), ("log_offset", ">i8"), ("sys_flag", ">i4"), ("born_timestamp_ms", ">i8"),
    ("born_ip", ">u4"), ("born_port", ">i4"), ("store_timestamp_ms", ">i8"), ("store_ip", ">u4"), ("store_port", ">i4"),
    ("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_size", ">i4"),
])  # fmt: skip
WHOLE = struct.Struct(">5i2qiqIiqI2iqi")
"""All fields of ``HEADER``, in its order."""
assert HEADER.itemsize == INCOMING.size == WHOLE.size == HEADER_SIZE

LONGEST_KEPT = 256
"""Characters of a text whose hash is remembered: tags and keys have fewer, and strangers fill no memory with others."""


class BadRecord(ValueError):
    """These bytes are not a record; the text says which check failed."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record, decoded. ``raw_properties`` keeps the stored bytes, so that encoding gives the same bytes again."""

    topic: str
    queue_id: int
    body: bytes
    raw_properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    queue_offset: int = 0
    log_offset: int = 0
    born_timestamp_ms: int = 0
    born_host: Host = NO_HOST
    store_timestamp_ms: int = 0
    store_host: Host = NO_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int | None = None
    magic: int | None = None

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.raw_properties)

    @property
    def transaction_type(self) -> int:
        return self.sys_flag & SYS_TRANSACTION_MASK

    @property
    def offset_message_id(self) -> str:
        return offset_message_id(self.store_host, self.log_offset)


def body_crc(body: bytes | memoryview) -> int:
    """RocketMQ's body check: CRC-32 with the sign bit cleared."""
    crc: int = isal_zlib.crc32(body)
    return crc & 0x7FFFFFFF


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``, signed 32 bits: the tags code of a queue entry, the key hash of the index."""
    return _kept_hash(text) if len(text) <= LONGEST_KEPT else _hash(text)


def _hash(text: str) -> int:
    value = 0
    for unit in struct.unpack(f">{len(text.encode('utf-16-be')) // 2}H", text.encode("utf-16-be")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


_kept_hash = lru_cache(maxsize=65536)(_hash)


def tags_code(tags: str | None) -> int:
    """The code that a queue entry keeps of a tag; 0 without one."""
    return java_hash(tags) if tags else 0


def encode_properties(properties: dict[str, str]) -> bytes:
    """``name 0x01 value 0x02`` repeated. RocketMQ cannot keep an empty value, so neither does this."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items() if value).encode()


def decode_properties(raw: bytes) -> dict[str, str]:
    """Read a property text as RocketMQ does: pieces without name or value are skipped, the last 0x02 may be missing."""
    properties = {}
    for piece in raw.decode("utf-8", "replace").split("\x02"):
        name, separator, value = piece.partition("\x01")
        if separator and name and value:
            properties[name] = value
    return properties


def record_size(topic_size: int, body_size: int, properties_size: int, sys_flag: int = 0) -> int:
    """Bytes that a record takes in the log; all sizes in bytes."""
    wide = 12 * bool(sys_flag & SYS_BORN_HOST_V6) + 12 * bool(sys_flag & SYS_STORE_HOST_V6)
    return OVERHEAD + wide + (topic_size > MAX_TOPIC_SIZE_V1) + topic_size + body_size + properties_size


def encode(record: Record) -> bytes:
    """The record's bytes. Raises BadRecord for a topic or properties that no record can hold.

    A magic that the record brings along stays, but a topic too long for V1 makes it V2.
    """
    topic, properties = record.topic.encode(), record.raw_properties
    if len(properties) > MAX_PROPERTIES_SIZE:
        raise BadRecord(f"properties take {len(properties)} bytes, a record holds at most {MAX_PROPERTIES_SIZE}")
    magic = MAGIC_V2 if len(topic) > MAX_TOPIC_SIZE_V1 else record.magic or MAGIC_V1
    sys_flag = _with_host_bits(record)
    size = record_size(len(topic), len(record.body), len(properties), sys_flag)
    field = topic_field(record.topic)
    if magic == MAGIC_V2 and len(topic) <= MAX_TOPIC_SIZE_V1:
        size, field = size + 1, I16.pack(len(topic)) + topic
    crc = body_crc(record.body) if record.body_crc is None else record.body_crc
    fixed = FIXED.pack(
        size, magic, crc, record.queue_id, record.flag, record.queue_offset, record.log_offset, sys_flag,
        record.born_timestamp_ms,
    )  # fmt: skip
    return b"".join((
        fixed,
        host_bytes(record.born_host),
        I64.pack(record.store_timestamp_ms),
        host_bytes(record.store_host),
        TAIL.pack(record.reconsume_times, record.prepared_transaction_offset, len(record.body)),
        record.body,
        field,
        I16.pack(len(properties)),
        properties,
    ))  # fmt: skip


@lru_cache(maxsize=4096)
def topic_field(topic: str) -> bytes:
    """The topic with its length in front, as wide as the record version that this topic needs."""
    raw = topic.encode()
    if len(raw) > MAX_TOPIC_SIZE:
        raise BadRecord(f"a topic of {len(raw)} bytes fits no record")
    return (I16.pack(len(raw)) if len(raw) > MAX_TOPIC_SIZE_V1 else bytes((len(raw),))) + raw


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """Values that records of one topic have in common on their way to a broker."""

    magic: int
    topic: bytes
    sys_flag: int = 0
    flag: int = 0
    reconsume_times: int = 0
    header: bytes = b""
    """That of a record of which nothing else is known yet."""

    @classmethod
    def to(cls, topic: str, *, sys_flag: int = 0, flag: int = 0, reconsume_times: int = 0) -> "Outgoing":
        field = topic_field(topic)
        magic = MAGIC_V2 if len(field) > MAX_TOPIC_SIZE_V1 + 1 else MAGIC_V1
        header = OUTGOING.pack(0, magic, 0, 0, flag, sys_flag, 0, reconsume_times, 0)
        return cls(magic, field, sys_flag, flag, reconsume_times, header)

    def encode(self, queue_id: int, born_timestamp_ms: int, body: bytes, properties: bytes) -> bytes:
        """One record, the broker's fields (offsets, store time, hosts) left zero; the caller has checked the sizes."""
        crc: int = isal_zlib.crc32(body)
        head = OUTGOING.pack(
            HEADER_SIZE + len(body) + len(self.topic) + 2 + len(properties), self.magic, crc & 0x7FFFFFFF,
            queue_id, self.flag, self.sys_flag, born_timestamp_ms, self.reconsume_times, len(body),
        )  # fmt: skip
        return b"".join((head, body, self.topic, I16.pack(len(properties)), properties))


def size_at(buffer: bytes | memoryview, at: int = 0) -> int:
    """Bytes of the whole record that begins at ``at``."""
    size: int = I32.unpack_from(buffer, at)[0]
    return size


def stored_at(buffer: bytes | memoryview, at: int = 0) -> tuple[int, int]:
    """(log offset, store timestamp in ms) of a whole record, without looking at the rest of it."""
    log_offset, sys_flag, timestamp_ms = STORED.unpack_from(buffer, at)
    if sys_flag & SYS_BORN_HOST_V6:
        timestamp_ms = I64.unpack_from(buffer, at + FIXED.size + 20)[0]
    return log_offset, timestamp_ms


def decode(buffer: bytes | memoryview, at: int = 0, *, check_crc: bool = True) -> Record:
    """Read the record that begins at ``at``. Raises BadRecord; never reads beyond the buffer."""
    fixed = _fixed_part(buffer, at)
    size, magic, crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms = fixed
    born_width, store_width = _host_widths(sys_flag)
    store_at = at + FIXED.size + born_width
    tail_at = store_at + 8 + store_width
    body_at = tail_at + TAIL.size
    if body_at > at + size:
        raise BadRecord("the record ends inside its header")
    reconsume_times, prepared, body_size = TAIL.unpack_from(buffer, tail_at)
    body_end, topic_at, properties_begin = _variable_part(buffer, body_at, at + size, body_size, magic)
    try:
        topic = bytes(buffer[topic_at : properties_begin - 2]).decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"the topic is not UTF-8: {error.reason}") from None
    body, properties = bytes(buffer[body_at:body_end]), bytes(buffer[properties_begin : at + size])
    if check_crc and body_crc(body) != crc:
        raise BadRecord(f"body CRC is {body_crc(body):#010x}, the record says {crc:#010x}")
    return Record(
        topic=topic, queue_id=queue_id, body=body, raw_properties=properties, flag=flag, sys_flag=sys_flag,
        queue_offset=queue_offset, log_offset=log_offset, born_timestamp_ms=born_ms,
        born_host=read_host(buffer, at + FIXED.size, born_width - 4),
        store_timestamp_ms=I64.unpack_from(buffer, store_at)[0],
        store_host=read_host(buffer, store_at + 8, store_width - 4),
        reconsume_times=reconsume_times, prepared_transaction_offset=prepared, body_crc=crc, magic=magic,
    )  # fmt: skip


def properties_at(buffer: bytes | memoryview, at: int = 0) -> int:
    """Where the properties begin of the record that begins at ``at``; they end with it. Raises as ``decode``."""
    size, magic, *_, sys_flag, _ = _fixed_part(buffer, at)
    body_at = at + FIXED.size + sum(_host_widths(sys_flag)) + 8 + TAIL.size
    if body_at > at + size:
        raise BadRecord("the record ends inside its header")
    return _variable_part(buffer, body_at, at + size, I32.unpack_from(buffer, body_at - 4)[0], magic)[2]


def decode_each(buffer: bytes) -> Iterator[Record]:
    """Records one after the other, as the answer to a pull has them. Raises BadRecord at the first one that is none."""
    at = 0
    while at < len(buffer):
        yield decode(buffer, at)
        at += size_at(buffer, at)


def _fixed_part(buffer: bytes | memoryview, at: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    available = len(buffer) - at
    if available < OVERHEAD:
        raise BadRecord(f"only {available} bytes left, a record has at least {OVERHEAD}")
    fixed = FIXED.unpack_from(buffer, at)
    size, magic = fixed[:2]
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise BadRecord(f"magic {magic & 0xFFFFFFFF:#010x} is not that of a record")
    if not OVERHEAD <= size <= available:
        raise BadRecord(f"record says {size} bytes, {available} are there")
    return fixed


def _host_widths(sys_flag: int) -> tuple[int, int]:
    """Bytes of the born host and of the store host."""
    return 20 if sys_flag & SYS_BORN_HOST_V6 else 8, 20 if sys_flag & SYS_STORE_HOST_V6 else 8


def _variable_part(
    buffer: bytes | memoryview, body_at: int, end: int, body_size: int, magic: int
) -> tuple[int, int, int]:
    """Where the body ends, and where topic and properties begin."""
    width = 1 if magic == MAGIC_V1 else 2
    body_end = body_at + body_size
    if body_size < 0 or body_end + width + 2 > end:
        raise BadRecord(f"body length {body_size} does not fit the record")
    topic_size = buffer[body_end] if width == 1 else I16.unpack_from(buffer, body_end)[0]
    topic_at = body_end + width
    begin = topic_at + topic_size + 2
    if not 0 <= topic_size <= (MAX_TOPIC_SIZE_V1 if width == 1 else MAX_TOPIC_SIZE) or begin > end:
        raise BadRecord(f"topic length {topic_size} does not fit the record")
    properties_size = I16.unpack_from(buffer, begin - 2)[0]
    if properties_size < 0 or begin + properties_size != end:
        raise BadRecord(f"properties length {properties_size} does not end where the record does")
    return body_end, topic_at, begin


def _with_host_bits(record: Record) -> int:
    flag = record.sys_flag & ~(SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6)
    return flag | SYS_BORN_HOST_V6 * (":" in record.born_host[0]) | SYS_STORE_HOST_V6 * (":" in record.store_host[0])
