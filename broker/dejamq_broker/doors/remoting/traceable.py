"""What RocketMQ's clients need of a message to trace it: a region, and the word that it may be traced.

RocketMQ's broker writes both when it stores a message, and so does this door. Messages of dejamq's own SDK lie in the
log without them: consumers of RocketMQ would trace none. They get them on their way to such a consumer.
Source: RocketMQ 5.3, ``SendMessageProcessor``, ``ConsumeMessageTraceHookImpl``, ``AsyncTraceDispatcher``.
"""

from collections.abc import Mapping

import msgspec
from dejamq_proto.records.record import MAX_PROPERTIES_SIZE, Record, decode, encode, encode_properties, size_at

REGION = "DefaultRegion"
TRACEABLE: Mapping[str, str] = {"MSG_REGION": REGION, "TRACE_ON": "true"}
MARK = b"TRACE_ON\x01"


def traceable(records: bytes) -> bytes:
    """Records one after the other, those without the word with it. One whose properties are full stays as it is."""
    pieces, at = [], 0
    while at < len(records):
        end = at + size_at(records, at)
        if records.find(MARK, at, end) < 0:
            pieces.append(_marked(decode(records, at, check_crc=False)))
        else:
            pieces.append(records[at:end])
        at = end
    return b"".join(pieces)


def _marked(record: Record) -> bytes:
    properties = encode_properties({**TRACEABLE, **record.properties})
    if len(properties) > MAX_PROPERTIES_SIZE:
        properties = record.raw_properties
    return encode(msgspec.structs.replace(record, raw_properties=properties))
