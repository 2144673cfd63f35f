"""The body of REGISTER_BROKER, which a broker may deflate. Source: RocketMQ ``RegisterBrokerBody``, ``TopicConfig``.

Deflated it holds parts, each behind its size in 4 bytes: the data version as JSON, then behind their number the topics,
then filter servers and static mappings, which are passed over. A topic is ``name readQueues writeQueues perm filterType
attributes``, with a blank between. RocketMQ 5.3 does not say in the header that the body is deflated, so its first byte
decides.
"""

import struct
import zlib

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.remoting import bodies
from dejamq_proto.remoting.frames import MAX_FRAME_BYTES

ZLIB_MARK = 0x78
SIZE = struct.Struct(">i")
FIXED_FIELDS = 5


def read(raw: bytes) -> bodies.RegisterBroker:
    """The registration in either form. Raises SYSTEM_ERROR for bytes that are none."""
    if raw[:1] != bytes((ZLIB_MARK,)):
        return bodies.read(raw, bodies.RegisterBroker)
    try:
        plain = _inflated(raw)
        version, at = _part(plain, 0)
        (count,) = SIZE.unpack_from(plain, at)
        at += SIZE.size
        topics: dict[str, bodies.TopicConfigBody] = {}
        for _ in range(count):
            line, at = _part(plain, at)
            topic = _topic(line.decode())
            topics[topic.topic_name] = topic
    except (zlib.error, struct.error, ValueError) as error:
        text = f"the request's deflated body is no RegisterBroker: {error}"
        raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True) from None
    told = bodies.TopicConfigs(data_version=bodies.read(version, bodies.DataVersion), topic_config_table=topics)
    return bodies.RegisterBroker(topic_config_serialize_wrapper=told)


def _inflated(raw: bytes) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(raw, MAX_FRAME_BYTES)
    if not inflater.eof:
        more = len(plain) >= MAX_FRAME_BYTES
        raise ValueError(f"it holds more than {MAX_FRAME_BYTES} bytes" if more else "it ends too early")
    return plain


def _part(plain: bytes, at: int) -> tuple[bytes, int]:
    (size,) = SIZE.unpack_from(plain, at)
    begin, end = at + SIZE.size, at + SIZE.size + size
    if not begin <= end <= len(plain):
        raise ValueError(f"a part of {size} bytes is announced where {len(plain) - begin} are left")
    return plain[begin:end], end


def _topic(line: str) -> bodies.TopicConfigBody:
    fields = line.split(" ", FIXED_FIELDS)
    if len(fields) < FIXED_FIELDS:
        raise ValueError(f"{line[:100]!r} is no topic")
    name, read_queues, write_queues, perm, filter_type = fields[:FIXED_FIELDS]
    return bodies.TopicConfigBody(
        topic_name=name, read_queue_nums=int(read_queues), write_queue_nums=int(write_queues), perm=int(perm),
        topic_filter_type=filter_type,
    )  # fmt: skip
