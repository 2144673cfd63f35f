"""Where the bodies come from that ``dejamq send`` sends: the command line, a file, a pipe; whole or in lines."""

import asyncio
import errno
import io
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dejamq_proto.codes import MessageTooLarge

CHUNK_BYTES = 1 << 18


def check(file: Path) -> None:
    """Raise OSError for what is no file to read, before anybody is asked. A pipe is not opened for that."""
    file.stat()
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))


@contextmanager
def opened(file: Path | None) -> Iterator[BinaryIO]:
    """The file, or standard input."""
    if file is None:
        yield sys.stdin.buffer
    else:
        with file.open("rb", buffering=0) as stream:
            yield stream


async def whole(stream: BinaryIO, limit: int) -> bytes:
    """Everything, as one body. Raises MessageTooLarge as soon as it is more than a message can have."""
    found = bytearray()
    async for chunk in chunks(stream):
        found += chunk
        if len(found) > limit:
            raise MessageTooLarge(
                f"the body has more than {limit} bytes, which is the limit (max_message_size); with --lines every line "
                "is a message of its own"
            )
    return bytes(found)


async def lines(stream: BinaryIO, limit: int) -> AsyncIterator[bytes]:
    """Each line as soon as it is there, without its end (``\\n`` or ``\\r\\n``), the last one with or without an end.

    Raises MessageTooLarge for a line that no message can hold, with its number; so memory is bounded.
    """
    number, rest = 0, b""
    async for chunk in chunks(stream):
        first, *more = chunk.split(b"\n")
        rest += first
        for piece in more:
            number += 1
            yield _checked(rest, number, limit)
            rest = piece
        _checked(rest, number + 1, limit)
    if rest:
        yield _checked(rest, number + 1, limit)


def _checked(line: bytes, number: int, limit: int) -> bytes:
    line = line.removesuffix(b"\r")
    if len(line) > limit:
        raise MessageTooLarge(f"line {number} has more than {limit} bytes, which is the limit (max_message_size)")
    return line


async def chunks(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the bytes as they come. A pipe or a terminal is waited for without blocking the loop."""
    try:
        descriptor = stream.fileno()
    except (io.UnsupportedOperation, ValueError):  # a test's, in memory
        descriptor = -1
    while chunk := await _read(stream, descriptor):
        yield chunk


async def _read(stream: BinaryIO, descriptor: int) -> bytes:
    if descriptor < 0:
        return stream.read(CHUNK_BYTES)
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:  # a regular file: always ready, as epoll says
        await asyncio.sleep(0)
        return os.read(descriptor, CHUNK_BYTES)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, CHUNK_BYTES)
