"""Fields of protobuf messages, written and read by hand: parts of the hot frames in ``messages`` and ``replication``.

Nothing is written for a value that is the default, as protobuf does.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class BadMessage(ValueError):
    """Bytes that are not the expected message."""


def with_payload(
    head: list[bytes], pieces: Sequence[bytes | memoryview], size: int | None = None
) -> list[bytes | memoryview]:
    """The frame before it is joined, with the pieces as its field 15. ``size``: bytes of all of them, where known."""
    if pieces:
        head += [b"\x7a", varint(sum(map(len, pieces)) if size is None else size)]
    return [b"".join(head), *pieces]


def integer(field: int, value: int) -> bytes:
    """A varint; one below 0 as protobuf's int64 has it."""
    if 0 < value < 0x80:
        return bytes((field << 3, value))
    return bytes((field << 3,)) + varint(value & 0xFFFFFFFFFFFFFFFF) if value else b""


def chunk(field: int, value: bytes) -> bytes:
    """A string, bytes, or a message in a message."""
    if 0 < (size := len(value)) < 0x80:
        return bytes((field << 3 | _BYTES, size)) + value
    return bytes((field << 3 | _BYTES,)) + varint(size) + value if size else b""


def packed(field: int, values: npt.NDArray[np.generic] | Sequence[int], kind: str) -> bytes:
    """A repeated number of fixed width; ``kind`` is numpy's name of it."""
    return chunk(field, np.asarray(values, kind).tobytes()) if len(values) else b""


def varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields_of(frame: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(field number, value): ints for varints, views for length-delimited fields; fixed-width ones are skipped.

    Raises BadMessage, when it comes to a malformed part.
    """
    view, at, end = memoryview(frame), 0, len(frame)
    while at < end:
        # numbers of one byte are read here and not by a call: of a small frame almost all are
        if (key := frame[at]) < 0x80:
            at += 1
        else:
            key, at = _read_varint(frame, at)
        if key < 8:
            raise BadMessage("field 0 is none")
        kind = key & 7
        if kind == _VARINT:
            value, at = _read_varint(frame, at)
            yield key >> 3, value - (1 << 64) if value >> 63 else value
        elif kind == _BYTES:
            if at < end and (size := frame[at]) < 0x80:
                at += 1
            else:
                size, at = _read_varint(frame, at)
            if at + size > end:
                raise BadMessage(f"field {key >> 3} ends beyond the frame")
            yield key >> 3, view[at : at + size]
            at += size
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise BadMessage(f"wire type {kind} is unknown")


def _read_varint(frame: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(frame) and shift < 70:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise BadMessage("a number does not end")


def words(value: memoryview, kind: str) -> npt.NDArray[Any]:
    """The frame that ``packed`` wrote, not copied. Raises BadMessage."""
    try:
        return np.frombuffer(value, kind)
    except ValueError:
        raise BadMessage(f"{len(value)} bytes are no array of {kind}") from None


def text_of(value: memoryview) -> str:
    """Raises BadMessage."""
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        raise BadMessage("a text is not UTF-8") from None
