"""What may stand in a file that a stranger, a bad disk or another program wrote: real files with something changed."""

import random
import re
from collections.abc import Callable, Iterator, Sequence

NUMBERS = [
    b"-1", b"0", b"1", b"2147483647", b"2147483648", b"-2147483649", b"9007199254740993", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"9" * 400, b"9" * 5000, b"1e400", b"-0",
    b"1.5", b"NaN", b"Infinity", b"null", b"true", b'"7"', b"[]", b"{}", b"0x10", b"1_0", "٣".encode(),
    b"-62135596800001", b"4102444800000", b"253402300800000",
]  # fmt: skip
"""Beyond 2^31, 2^53 and 2^63; times before 1970, in 2100 and behind the year 9999; and what is no number."""
TEXTS = [
    b"", b" ", b".", b"..", b"../../../tmp/x", b"/etc/passwd", b"a/b", b"a\x00b", b"\\u0000", b"\\ud800", b"\\u202e",
    b"\x1b[2J", b"\x1b]0;x\x07", b"\x9b31m", b"<script>alert(1)</script>", b"=cmd|' /C calc'!A0", b'"', b"\\", b"\n",
    b"\r", "оrders".encode(), "ＡＢＣ".encode(), "é".encode() * 200, "🦆".encode(), b"\xff\xfe", b"\xc3\x28",
    b"a" * 300, b"a" * 70_000, b"@", b"a@b@c", b"%s%n", b"{0}", b"0", b"null",
]  # fmt: skip
"""Empty, huge, not UTF-8, control and escape characters, markup, formulas, homoglyphs, separators."""
SPECIAL = [
    (magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (0xDAA320A7, 0xCBD43194, 0xDAA320AB, 0, -1, 1 << 31, 91)
]
NUMBER = re.compile(rb"-?\d+")
TEXT = re.compile(rb'"((?:[^"\\]|\\.)*)"')
LONGEST = 200_000


def damaged(data: bytes, source: random.Random, *, text: bool) -> bytes:
    """The same for the same state of ``source``: one to four changes."""
    ways = TEXT_WAYS if text else BYTE_WAYS
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        data = source.choice(ways)(data, source)
    return data[:LONGEST]


def each_value(data: bytes) -> Iterator[bytes]:
    """The file with each of its numbers and texts replaced, one at a time, by every hostile one; and all as a whole."""
    yield from (
        b"",
        b"\n",
        b"\x00" * 16,
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"-" * 99,
    )
    yield b"\xef\xbb\xbf" + data
    for pattern, group, values in ((NUMBER, 0, NUMBERS), (TEXT, 1, TEXTS)):
        for found in pattern.finditer(data):
            for value in values:
                yield data[: found.start(group)] + value + data[found.end(group) :]


def _flip(data: bytes, source: random.Random) -> bytes:
    if not data:
        return data
    at = source.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << source.randrange(8)]) + data[at + 1 :]


def _special(data: bytes, source: random.Random) -> bytes:
    at = source.randrange(len(data) + 1)
    return data[:at] + source.choice(SPECIAL) + data[at + 4 :]


def _cut(data: bytes, source: random.Random) -> bytes:
    return data[: source.randrange(len(data) + 1)]


def _lost(data: bytes, source: random.Random) -> bytes:
    at = source.randrange(len(data) + 1)
    return data[:at] + data[at + source.choice((1, 2, 8, 100)) :]


def _added(data: bytes, source: random.Random) -> bytes:
    at = source.randrange(len(data) + 1)
    return data[:at] + source.choice((source.randbytes(source.choice((1, 4, 20))), *TEXTS[:20])) + data[at:]


def _twice(data: bytes, source: random.Random) -> bytes:
    at, size = source.randrange(len(data) + 1), source.choice((1, 20, 500))
    return data[:at] + data[at : at + size] + data[at:]


def _zeros(data: bytes, source: random.Random) -> bytes:
    at, size = source.randrange(len(data) + 1), source.choice((1, 8, 500, 4096))
    return data[:at] + bytes(len(data[at : at + size])) + data[at + size :]


def _other_number(data: bytes, source: random.Random) -> bytes:
    return _replaced(data, source, NUMBER, 0, NUMBERS)


def _other_text(data: bytes, source: random.Random) -> bytes:
    return _replaced(data, source, TEXT, 1, TEXTS)


def _replaced(
    data: bytes, source: random.Random, pattern: re.Pattern[bytes], group: int, values: Sequence[bytes]
) -> bytes:
    """One match, near a random place, so that a long file is not searched whole."""
    found = pattern.search(data, source.randrange(max(1, len(data) - 20)) if len(data) > 20 else 0)
    if found is None:
        return data
    return data[: found.start(group)] + source.choice(values) + data[found.end(group) :]


BYTE_WAYS: list[Callable[[bytes, random.Random], bytes]] = [
    _flip,
    _flip,
    _special,
    _special,
    _cut,
    _lost,
    _added,
    _twice,
    _zeros,
]
TEXT_WAYS = [_flip, _cut, _lost, _added, _twice, _other_number, _other_number, _other_number, _other_text, _other_text]
