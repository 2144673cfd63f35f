"""A message path with next to nothing on it: one log, one queue, records of one size, frames over TCP each way.

What any broker of this kind in Python has to do, and no more: a message and a future for each send, a CRC in each
record that the server checks, offsets filled in, one copy into a file, slices of it to who reads. No routes, retries,
queues, journal or offsets of groups.
"""

import asyncio
import gc
import mmap
import os
import struct
import time
from collections import deque
from contextlib import suppress

import frame_server
import msgspec
import numpy as np
from dejamq_lab.bench.client.result import Span
from dejamq_lab.bench.client.stopwatch import Stopwatch, age_ms, paced, stamped
from dejamq_proto.wire.calling import keep_pages
from dejamq_proto.wire.frame_stream import FrameStream
from isal import isal_zlib

HEAD = struct.Struct("<IQ")  # CRC of the rest, offset in the queue
ID_BYTES = 32
MOST_BYTES = 1 << 20
SEND, PULL = b"send", b"pull"
IN_FLIGHT = 3
RUN = 800
BACKLOG = 60_000
"""Sends that wait for their result at most: 64 MiB of bodies of 1 KiB."""


def record_bytes(body_bytes: int) -> int:
    return HEAD.size + ID_BYTES + body_bytes


class Log:
    """One file with room for everything. Owned by the server's loop."""

    def __init__(self, path: str, record: int, messages: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._fd, record * messages)
        self._map, self._record, self._end = mmap.mmap(self._fd, record * messages), record, 0
        self._grown = asyncio.Event()

    def append(self, frame: bytes) -> bytes:
        """Check a run, number it, store it. Answers the offset of the first and how many they are."""
        run = bytearray(frame)
        view, count, first = memoryview(run), len(run) // self._record, self._end // self._record
        for begin in range(0, len(run), self._record):
            crc, _ = HEAD.unpack_from(run, begin)
            if isal_zlib.crc32(view[begin + HEAD.size : begin + self._record]) != crc:
                raise ValueError("a record is damaged")
        numbers = np.arange(first, first + count, dtype="<u8").view(np.uint8).reshape(count, 8)
        np.frombuffer(run, np.uint8).reshape(count, self._record)[:, 4:12] = numbers
        os.pwrite(self._fd, run, self._end)
        self._end += len(run)
        self._grown.set()
        return HEAD.pack(count, first)

    async def read(self, begin: int) -> bytes:
        """What is there from this place on, at most 1 MiB of whole records; waits for the first of them."""
        while begin >= self._end:
            self._grown.clear()
            await self._grown.wait()
        return self._map[begin : min(self._end, begin + MOST_BYTES // self._record * self._record)]


async def serve(path: str, body_bytes: int, messages: int) -> None:
    keep_pages()
    gc.set_threshold(50_000)
    log = Log(path, record_bytes(body_bytes), messages)

    async def conversation(stream: FrameStream) -> None:
        """A connection says first what it is for."""
        with suppress(ConnectionError):
            sends = await stream.read() == SEND
            while True:
                frame = bytes(await stream.read())
                await stream.send(log.append(frame) if sends else await log.read(int.from_bytes(frame, "little")))

    print(f"127.0.0.1:{await frame_server.listen(conversation)}", flush=True)
    await asyncio.Event().wait()


async def connected(address: str, what: bytes) -> FrameStream:
    host, _, port = address.rpartition(":")
    _, stream = await asyncio.get_running_loop().create_connection(FrameStream, host, int(port))
    await stream.send(what)
    return stream


class Message(msgspec.Struct, eq=False):
    body: bytes
    message_id: bytes = b""


class Sent(msgspec.Struct, gc=False):
    message_id: bytes
    queue_offset: int


class Producer:
    """What is submitted while runs are under way leaves with the next one."""

    def __init__(self, stream: FrameStream) -> None:
        self._stream, self._loop = stream, asyncio.get_running_loop()
        self._waiting: list[tuple[Message, asyncio.Future[Sent]]] = []
        self._flying: deque[list[tuple[Message, asyncio.Future[Sent]]]] = deque()
        self._count, self._untold = 0, 0
        self._wake, self._told = asyncio.Event(), asyncio.Event()

    def submit(self, message: Message) -> "asyncio.Future[Sent]":
        self._count += 1
        message.message_id = b"%032x" % self._count
        future: asyncio.Future[Sent] = self._loop.create_future()
        self._waiting.append((message, future))
        self._untold += 1
        self._wake.set()
        return future

    async def room(self, most: int = BACKLOG) -> None:
        """Wait while more than so many have no result."""
        while self._untold > most:
            self._told.clear()
            await self._told.wait()

    async def write(self) -> None:
        while True:
            await self._wake.wait()
            while self._waiting:
                while len(self._flying) >= IN_FLIGHT:
                    self._told.clear()
                    await self._told.wait()
                run, self._waiting = self._waiting[:RUN], self._waiting[RUN:]
                self._flying.append(run)
                await self._stream.send(b"".join([part for one, _ in run for part in _record(one)]))
            self._wake.clear()

    async def read(self) -> None:
        while True:
            _, first = HEAD.unpack(await self._stream.read())
            run = self._flying.popleft()
            for offset, (message, future) in enumerate(run, first):
                future.set_result(Sent(message.message_id, offset))
            self._untold -= len(run)
            self._told.set()


def _record(message: Message) -> tuple[bytes, bytes, bytes]:
    crc = isal_zlib.crc32(message.body, isal_zlib.crc32(message.message_id))
    return HEAD.pack(crc, 0), message.message_id, message.body


async def produce(address: str, what: str, body_bytes: int, messages: int, rate: int) -> Span:
    """``what`` is flood, single or paced."""
    keep_pages()
    producer, body, watch = Producer(await connected(address, SEND)), bytes(body_bytes), Stopwatch()

    async def due(count: int) -> None:
        for _ in range(count):
            producer.submit(Message(stamped(body)))

    gc.freeze()
    print("ready", flush=True)
    async with asyncio.TaskGroup() as tasks:
        both = tasks.create_task(producer.write()), tasks.create_task(producer.read())
        watch.start()
        if what == "flood":
            await flood(producer, body, messages)
        elif what == "single":
            watch.samples_ms = await single(producer, body, messages)
        else:
            await paced(due, messages, rate)
        await producer.room(0)
        span = watch.span()
        for task in both:
            task.cancel()
    return span


async def flood(producer: Producer, body: bytes, messages: int) -> None:
    sent = []
    for number in range(messages):
        sent.append(producer.submit(Message(body)))
        if not number % 4096:
            await asyncio.sleep(0)
            await producer.room()
    for future in sent:
        await future


async def single(producer: Producer, body: bytes, messages: int) -> list[float]:
    """How long each took, in ms."""
    samples = []
    for _ in range(messages):
        began = time.perf_counter()
        await producer.submit(Message(body))
        samples.append((time.perf_counter() - began) * 1000)
    return samples


async def consume(address: str, body_bytes: int, messages: int) -> Span:
    """Every message goes to a handler that reads its body and notes how old it is."""
    keep_pages()
    stream, record, watch = await connected(address, PULL), record_bytes(body_bytes), Stopwatch()
    gc.freeze()

    async def handle(message: Message) -> None:
        watch.samples_ms.append(age_ms(message.body))

    place = 0
    await stream.send(place.to_bytes(8, "little"))
    print("ready", flush=True)
    while place < messages * record:
        found = bytes(await stream.read())
        if not place:
            watch.start()
        place += len(found)
        await stream.send(place.to_bytes(8, "little"))
        for begin in range(HEAD.size, len(found), record):
            identity, body = begin + ID_BYTES, begin + ID_BYTES + body_bytes
            await handle(Message(found[identity:body], found[begin:identity]))
    span = watch.span()
    stream.close()
    return span
