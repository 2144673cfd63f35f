"""What RocketMQ's clients need of a message to trace it: a region, and the word that it may be traced.

RocketMQ's broker writes both when it stores a message, and so does this door. Messages of dejamq's own SDK lie in the
log without them: consumers of RocketMQ would trace none. They get them on their way to such a consumer.
Source: RocketMQ 5.3, ``SendMessageProcessor``, ``ConsumeMessageTraceHookImpl``, ``AsyncTraceDispatcher``.
"""

from dejamq_proto.records import record as r

REGION = "DefaultRegion"
TRACEABLE = {"MSG_REGION": REGION, "TRACE_ON": "true"}
ADDED = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
WORD_ALONE = b"TRACE_ON\x01true\x02"
MARK, REGION_MARK, END = b"TRACE_ON\x01", b"MSG_REGION\x01", b"\x02"
SYS_FLAG_AT = 36


def traceable(records: bytes) -> bytes:
    """Records one after the other, those without the word with it. One whose properties are full stays as it is, and
    so does a damaged one, with all behind it: its reader says what is wrong with it.
    """
    pieces: list[bytes] = []
    at = kept = 0  # from ``kept`` on nothing is in the pieces
    while len(records) - at >= r.OVERHEAD:
        end = at + r.size_at(records, at)
        properties_at = _properties_at(records, at)
        if not at < properties_at <= end <= len(records):
            break
        more = _missing(records[properties_at:end])
        if more:
            size = r.I32.pack(end - at + len(more))
            length = r.I16.pack(end - properties_at + len(more))
            pieces += (records[kept:at], size, records[at + 4 : properties_at - 2], length, more)
            kept = properties_at
        at = end
    return b"".join((*pieces, records[kept:])) if pieces else records


def _properties_at(records: bytes, at: int) -> int:
    """Where the properties of the record begin that begins at ``at``; 0 when it ends before."""
    flag = r.I32.unpack_from(records, at + SYS_FLAG_AT)[0]
    widths = (20 if flag & r.SYS_BORN_HOST_V6 else 8) + (20 if flag & r.SYS_STORE_HOST_V6 else 8)
    body_at = at + r.FIXED.size + widths + 8 + r.TAIL.size
    wide = r.I32.unpack_from(records, at + 4)[0] == r.MAGIC_V2
    topic_at = body_at + max(0, r.I32.unpack_from(records, body_at - 4)[0]) if body_at <= len(records) else 0
    if not topic_at or topic_at + 2 > len(records):
        return 0
    topic_size = r.I16.unpack_from(records, topic_at)[0] if wide else records[topic_at]
    return int(topic_at + (2 if wide else 1) + max(0, topic_size) + 2)


def _missing(properties: bytes) -> bytes:
    """What is to stand before these; nothing where the word is there, or no room."""
    if _has(properties, MARK):
        return b""
    more = WORD_ALONE if _has(properties, REGION_MARK) else ADDED
    return more if len(properties) + len(more) <= r.MAX_PROPERTIES_SIZE else b""


def _has(properties: bytes, mark: bytes) -> bool:
    return properties.startswith(mark) or END + mark in properties
