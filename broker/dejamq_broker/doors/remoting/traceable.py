"""What RocketMQ's clients need of a message to trace it: a region, and the word that it may be traced.

RocketMQ's broker writes both when it stores a message, and so does this door. Messages of dejamq's own SDK lie in the
log without them: consumers of RocketMQ would trace none. They get them on their way to such a consumer.
Source: RocketMQ 5.3, ``SendMessageProcessor``, ``ConsumeMessageTraceHookImpl``, ``AsyncTraceDispatcher``.
"""

from dejamq_proto.records.record import (
    I16,
    I32,
    MAX_PROPERTIES_SIZE,
    BadRecord,
    encode_properties,
    properties_at,
    size_at,
)

REGION = "DefaultRegion"
TRACEABLE = {"MSG_REGION": REGION, "TRACE_ON": "true"}
WORD_ALONE, BOTH = encode_properties({"TRACE_ON": "true"}), encode_properties(TRACEABLE)
WORD, REGION_NAME, END = b"TRACE_ON\x01", b"MSG_REGION\x01", b"\x02"


def traceable(records: bytes) -> bytes:
    """Records one after the other, those without the word with it. One whose properties are full stays as it is, and
    so does a damaged one, with all behind it: its reader says what is wrong with it.
    """
    pieces: list[bytes] = []
    at = kept = 0  # from ``kept`` on nothing is in the pieces
    while at < len(records):
        try:
            begin = properties_at(records, at)
        except BadRecord:
            break
        end = at + size_at(records, at)
        more = _missing(records[begin:end])
        if more:
            size, length = I32.pack(end - at + len(more)), I16.pack(end - begin + len(more))
            pieces += (records[kept:at], size, records[at + 4 : begin - 2], length, more)
            kept = begin
        at = end
    return b"".join((*pieces, records[kept:])) if pieces else records


def _missing(properties: bytes) -> bytes:
    """What is to stand before these; nothing where the word is there, or no room."""
    if _has(properties, WORD):
        return b""
    more = WORD_ALONE if _has(properties, REGION_NAME) else BOTH
    return more if len(properties) + len(more) <= MAX_PROPERTIES_SIZE else b""


def _has(properties: bytes, name: bytes) -> bool:
    return properties.startswith(name) or END + name in properties
