"""A message path with next to nothing on it: one log, one queue, records of one size, a stream for each direction.

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
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import msgspec
import numpy as np
from dejamq_lab.bench import rpc_echo
from dejamq_lab.bench.result import Span
from dejamq_lab.bench.stopwatch import Stopwatch, age_ms, paced, stamped
from dejamq_proto.calling import dial, keep_pages
from isal import isal_zlib

HEAD = struct.Struct("<IQ")  # CRC of the rest, offset in the queue
ID_BYTES = 32
MOST_BYTES = 1 << 20
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

    async def send(runs: AsyncIterator[bytes], context: Any) -> None:
        async for run in runs:
            await context.write(log.append(run))

    async def pull(places: AsyncIterator[bytes], context: Any) -> None:
        async for place in places:
            await context.write(await log.read(int.from_bytes(place, "little")))

    handlers = {
        "Send": grpc.stream_stream_rpc_method_handler(send), "Pull": grpc.stream_stream_rpc_method_handler(pull)
    }  # fmt: skip
    await rpc_echo.serve("bare", handlers)


class Message(msgspec.Struct, eq=False):
    body: bytes
    message_id: bytes = b""


class Sent(msgspec.Struct, gc=False):
    message_id: bytes
    queue_offset: int


class Producer:
    """What is submitted while runs are under way leaves with the next one."""

    def __init__(self, call: Any) -> None:
        self._call, self._loop = call, asyncio.get_running_loop()
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
                await self._call.write(b"".join([part for one, _ in run for part in _record(one)]))
            self._wake.clear()

    async def read(self) -> None:
        while True:
            _, first = HEAD.unpack(await self._call.read())
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
    channel = dial(address)  # kept: a channel that is let go closes its streams
    producer, body, watch = Producer(rpc_echo.opened(channel, "/bare/Send")), bytes(body_bytes), Stopwatch()

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
    channel = dial(address)  # kept: a channel that is let go closes its streams
    stream, record, watch = rpc_echo.opened(channel, "/bare/Pull"), record_bytes(body_bytes), Stopwatch()
    gc.freeze()

    async def handle(message: Message) -> None:
        watch.samples_ms.append(age_ms(message.body))

    place = 0
    await stream.write(place.to_bytes(8, "little"))
    print("ready", flush=True)
    while place < messages * record:
        found = await stream.read()
        if not place:
            watch.start()
        place += len(found)
        await stream.write(place.to_bytes(8, "little"))
        for begin in range(HEAD.size, len(found), record):
            identity, body = begin + ID_BYTES, begin + ID_BYTES + body_bytes
            await handle(Message(found[identity:body], found[begin:identity]))
    span = watch.span()
    stream.cancel()
    return span
