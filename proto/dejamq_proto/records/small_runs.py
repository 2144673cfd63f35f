"""Runs of a few records, read in plain numbers: a call of numpy costs as much as a whole record here.

Only good news: a record that is not plainly fit to be stored is left to ``run``, which says which record is at fault
and why. So each rule has its words in one place, and a record that this file refuses by mistake is only slow.
"""

from collections.abc import Sequence

import msgspec
from isal import isal_zlib

from dejamq_proto.records.record import (
    HEADER,
    HEADER_SIZE,
    INCOMING,
    MAGIC_V1,
    MAX_PROPERTIES_SIZE,
    MAX_TOPIC_SIZE_V1,
    OVERHEAD,
    WHOLE,
    decode_properties,
)
from dejamq_proto.records.run import KEY_DIGITS, PROPERTY_END, UNIQUE_KEY_NAME, WIDE_HOSTS

FEW = 48
"""The most records of a run that a broker reads so: with more, columns cost less. It was measured against the whole way
there, with checks, places and entries, while others have the processor's caches between two runs. Other files have
smaller measures of their own, where numpy has less to do, or nobody comes between.
"""
KEY_END = len(UNIQUE_KEY_NAME) + KEY_DIGITS

Header = tuple[int, ...]
"""The values of one header, each field at its place in ``FIELDS``."""
FIELDS = {name: place for place, name in enumerate(HEADER.names or ())}
_SIZE, _MAGIC, _SYS_FLAG, _BODY_SIZE = (FIELDS[name] for name in ("total_size", "magic", "sys_flag", "body_size"))


class SmallRecord(msgspec.Struct, frozen=True, gc=False):
    """One record of a run, which it begins at ``at`` of; its body matches its CRC."""

    at: int
    size: int
    queue_id: int
    sys_flag: int
    reconsume_times: int
    body_size: int
    topic: bytes
    properties: bytes


def pieces(data: bytes | memoryview, sizes: Sequence[int]) -> list[SmallRecord] | None:
    """The records of a run that is exactly records of these sizes, all V1 with IPv4 hosts. None: it is not."""
    found, at = [], 0
    if min(sizes) < OVERHEAD or sum(sizes) != len(data):
        return None
    for size in sizes:
        total, magic, crc, queue_id, sys_flag, tries, body_size = INCOMING.unpack_from(data, at)
        if total != size or magic != MAGIC_V1 or sys_flag & WIDE_HOSTS or not 0 <= body_size <= size - OVERHEAD:
            return None
        body_at = at + HEADER_SIZE
        body_end, end = body_at + body_size, at + size
        topic_end = body_end + 1 + data[body_end]  # as in ``headers``: a call for both would be 8 % of either loop
        if topic_end + 2 > end or data[body_end] > MAX_TOPIC_SIZE_V1:
            return None
        properties_size = data[topic_end] << 8 | data[topic_end + 1]
        if properties_size != end - topic_end - 2 or properties_size > MAX_PROPERTIES_SIZE:
            return None
        if isal_zlib.crc32(data[body_at:body_end]) & 0x7FFFFFFF != crc:
            return None
        topic, properties = bytes(data[body_end + 1 : topic_end]), bytes(data[topic_end + 2 : end])
        found.append(SmallRecord(at, size, queue_id, sys_flag, tries, body_size, topic, properties))
        at = end
    return found


def unique_key(properties: bytes) -> str:
    """As ``run.unique_keys``, of one record."""
    if properties.startswith(UNIQUE_KEY_NAME) and properties.find(PROPERTY_END) == KEY_END:
        return properties[len(UNIQUE_KEY_NAME) : KEY_END].decode("utf-8", "replace")
    return decode_properties(properties).get("UNIQ_KEY", "")


def headers(data: bytes, at: int, sizes: Sequence[int]) -> list[Header] | None:
    """The headers' statement of the run that is the data from ``at`` on. None as ``pieces``; CRCs are not looked at."""
    found = []
    if min(sizes) < OVERHEAD or at + sum(sizes) != len(data):
        return None
    for size in sizes:
        header = WHOLE.unpack_from(data, at)
        body_size = header[_BODY_SIZE]
        if header[_SIZE] != size or header[_MAGIC] != MAGIC_V1 or header[_SYS_FLAG] & WIDE_HOSTS:
            return None
        if not 0 <= body_size <= size - OVERHEAD:
            return None
        body_end, end = at + HEADER_SIZE + body_size, at + size
        properties_at = body_end + 3 + data[body_end]
        if properties_at > end or data[body_end] > MAX_TOPIC_SIZE_V1:
            return None
        properties_size = data[properties_at - 2] << 8 | data[properties_at - 1]
        if properties_size != end - properties_at or properties_size > MAX_PROPERTIES_SIZE:
            return None
        found.append(header)
        at = end
    return found


def properties_from(data: bytes, body_end: int, end: int) -> bytes:
    """The properties of a record that was found fit, by where its body and itself end."""
    return data[body_end + 3 + data[body_end] : end]
