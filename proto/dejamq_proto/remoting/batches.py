"""The elements of a batch as clients send it. Source: RocketMQ ``MessageDecoder.encodeMessage``, ``decodeMessages``.

Each: total size 4, magic 4, body CRC 4 (both zero), flag 4, body size 4, body, properties size 2, properties.
"""

import struct
from typing import NamedTuple

from dejamq_proto.codes import Code, DejamqError

HEAD, PROPERTIES_SIZE = struct.Struct(">iiiii"), struct.Struct(">h")


class Element(NamedTuple):
    """One message of a batch; its topic and queue are the batch's."""

    flag: int
    body: bytes
    properties: bytes


def elements(body: bytes) -> list[Element]:
    """The messages of a batch. Raises MESSAGE_ILLEGAL for bytes that are none."""
    found: list[Element] = []
    at = 0
    while at < len(body):
        try:
            size, _, _, flag, body_size = HEAD.unpack_from(body, at)
            body_at, end = at + HEAD.size, at + size
            properties_at = body_at + body_size + PROPERTIES_SIZE.size
            if body_size < 0 or not body_at + PROPERTIES_SIZE.size <= properties_at <= end <= len(body):
                raise struct.error
            properties_size = PROPERTIES_SIZE.unpack_from(body, properties_at - PROPERTIES_SIZE.size)[0]
            if properties_size != end - properties_at:
                raise struct.error
        except struct.error:
            text = f"the batch cannot be read: its message {len(found)} does not fit where it stands"
            raise DejamqError(text, code=Code.MESSAGE_ILLEGAL) from None
        found.append(Element(flag, body[body_at : body_at + body_size], body[properties_at:end]))
        at = end
    return found
