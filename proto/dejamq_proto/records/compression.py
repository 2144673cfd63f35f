"""Compressed bodies: packing by a sender, unpacking by a receiver, and the flags that say which.

The three formats are RocketMQ's (``CompressionType``, ``CompressorFactory``): zlib streams, LZ4 frames, Zstandard
frames. Pure; the two libraries that few programs need are imported when the first such body comes.
"""

from enum import IntEnum

from isal import isal_zlib

from dejamq_proto.records.record import SYS_COMPRESSED, SYS_COMPRESSION_MASK, SYS_COMPRESSION_SHIFT

MOST_UNPACKED = 256 << 20
"""Bytes: a body of some megabytes can be made to unpack to as many gigabytes, and its receiver would be gone."""
ZSTD_STEP = 1 << 10
"""Bytes that are unpacked at a time: none of them can become more than some megabytes."""


class Compression(IntEnum):
    """The number is what a record's sys flag carries. ``OLD`` is a body of clients that named no type: zlib."""

    OLD = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits that say that a body is compressed, and how."""
        return SYS_COMPRESSED | self << SYS_COMPRESSION_SHIFT


class BadCompression(ValueError):
    """A body that says it is compressed and cannot be unpacked; the text says why."""


def compress(body: bytes, kind: Compression, level: int) -> bytes:
    """The packed body. ``level`` is RocketMQ's, 1 (fast) to 9 (small); LZ4 has one level only, as in RocketMQ.

    zlib is written by ISA-L, in a tenth of zlib's time for about the same size. Bodies are packed in the event loop,
    where the time of one message delays all others. ISA-L knows three levels, so two of zlib's share one.
    """
    if kind is Compression.LZ4:
        import lz4.frame

        return bytes(lz4.frame.compress(body))
    if kind is Compression.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=level).compress(body)
    return bytes(isal_zlib.compress(body, min(3, (level + 1) // 2)))


def decompress(body: bytes, sys_flag: int, most: int | None = None) -> bytes:
    """The body as it was given to its sender; itself when the flag says that it is not compressed.

    Raises BadCompression for a type that RocketMQ does not have, for bytes that are damaged or end early, and for more
    than ``most`` bytes, by default 256 MiB.
    """
    if not sys_flag & SYS_COMPRESSED:
        return body
    number = (sys_flag & SYS_COMPRESSION_MASK) >> SYS_COMPRESSION_SHIFT
    try:
        kind = Compression(number)
    except ValueError:
        raise BadCompression(f"compression type {number} is unknown; 1 is lz4, 2 zstd, 3 zlib") from None
    try:
        return _UNPACK[kind](body, MOST_UNPACKED if most is None else most)
    except Exception as error:  # each library has its own, some of them plain RuntimeErrors
        raise BadCompression(f"the {kind.name.lower()} body of {len(body)} bytes cannot be unpacked: {error}") from None


def _unzlib(body: bytes, most: int) -> bytes:
    stream = isal_zlib.decompressobj()
    unpacked = bytes(stream.decompress(body, most + 1))
    return _whole(unpacked, stream.eof, most)


def _unlz4(body: bytes, most: int) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    unpacked = bytes(stream.decompress(body, max_length=most + 1))
    return _whole(unpacked, stream.eof, most)


def _unzstd(body: bytes, most: int) -> bytes:
    """By stream: frames made by other writers need not say how large their content is."""
    import zstandard

    stream = zstandard.ZstdDecompressor().decompressobj()
    parts, size = [], 0
    for at in range(0, len(body), ZSTD_STEP):
        if stream.eof:
            break
        parts.append(stream.decompress(body[at : at + ZSTD_STEP]))
        size += len(parts[-1])
        if size > most:
            break
    return _whole(b"".join(parts), stream.eof, most)


def _whole(unpacked: bytes, ended: bool, most: int) -> bytes:
    """Raises ValueError for a body that is too large, and for a stream that did not come to its end."""
    if len(unpacked) > most:
        raise ValueError(f"it holds more than {most} bytes")
    if not ended:
        raise ValueError("the frame ends early")
    return unpacked


_UNPACK = {Compression.OLD: _unzlib, Compression.LZ4: _unlz4, Compression.ZSTD: _unzstd, Compression.ZLIB: _unzlib}
