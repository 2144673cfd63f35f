"""Hostile inputs past gRPC: frames of the fast port, and connections whose first bytes are nobody's."""

import asyncio
import os
import random

from dejamq_proto.fast_pb2 import Hello, Welcome, WhereRequest, WhereResponse
from dejamq_proto.fast_pb2_grpc import FastStub
from dejamq_proto.wire.calling import dial
from dejamq_proto.wire.frame_stream import FrameStream
from hostile import Hostile, Method, methods
from hostile_attack import ANSWER_S, Told, by_workers

FAST = ("/dejamq.v1.Send/SendStream", "/dejamq.v1.Pull/PullStream")
CONNECTIONS, FRAMES = 8, (1, 4, 16, 64)
HELD_S = 3
"""A damaged pull may ask to be held for days, and those behind it wait."""
FIRST_BYTES = (
    b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01", b"\0\0\0\x10\x02", b"\xff\xff\xff\xff",
    b"GET / HTTP/1.1",
    b"\0\0\0\x20\0\0\0\x08{}", b"\x7f\xff\xff\xff\0", b"\0",
)  # fmt: skip


async def where(broker: str) -> WhereResponse:
    """The broker's fast port."""
    channel = dial(broker)
    try:
        found: WhereResponse = await FastStub(channel).Where(WhereRequest(), timeout=ANSWER_S)
        return found
    finally:
        await channel.close(None)


async def fast_stream(broker: str, found: WhereResponse, method: str) -> FrameStream:
    """A stream that is welcome."""
    host = broker.rpartition(":")[0]
    _, stream = await asyncio.get_running_loop().create_connection(FrameStream, host, found.port)
    await stream.send(Hello(boot_id=found.boot_id, method=method).SerializeToString())
    welcome = Welcome.FromString(bytes(await stream.read()))
    assert welcome.code == 0, welcome
    return stream


class FastAttack:
    """Inputs to both streams of the fast port, many on a connection."""

    def __init__(self, broker: str, hostile: Hostile, seed: int) -> None:
        self._broker, self._hostile, self._random = broker, hostile, random.Random(seed)
        self._methods = [each for each in methods() if each.path in FAST]
        self._where: WhereResponse | None = None
        self.told = Told()

    async def run(self, inputs: int) -> None:
        self._where = await where(self._broker)
        await by_workers(self.told, inputs, CONNECTIONS, self._one)

    async def _one(self) -> None:
        """A frame that is no request ends the connection, once those before it are answered: it has arrived too."""
        assert self._where is not None
        method = self._random.choice(self._methods)
        frames = [self._hostile.frame(method) for _ in range(self._random.choice(FRAMES))]
        stream = await fast_stream(self._broker, self._where, method.path)
        writing = asyncio.create_task(_write(stream, frames))
        pulls = method.path.endswith("PullStream")
        try:
            async with asyncio.timeout(HELD_S if pulls else ANSWER_S):
                for frame in frames:
                    await self._answered(method, frame, stream)
        except TimeoutError:
            self.told.outcomes["held"] += 1
            if not pulls:
                self.told.wrong.append(f"{method.path}: no answer within {ANSWER_S} s to one of {len(frames)} frames")
        except ConnectionError:
            self.told.reached("connection ended")
        finally:
            writing.cancel()
            stream.fail("left")

    async def _answered(self, method: Method, frame: bytes, stream: FrameStream) -> None:
        answer = bytes(await stream.read())
        self.told.reached("answered")
        if method.path.endswith("SendStream"):
            self.told.remember(frame, answer)


async def _write(stream: FrameStream, frames: list[bytes]) -> None:
    for frame in frames:
        if stream.closing:
            return
        await stream.send(frame)


class FirstBytesAttack:
    """Connections that begin with something that no door takes. Each is ended by the server, or by its client."""

    def __init__(self, addresses: list[str], seed: int) -> None:
        self._addresses, self._random = addresses, random.Random(seed)
        self.told = Told()

    async def run(self, inputs: int) -> None:
        await by_workers(self.told, inputs, CONNECTIONS, self._one)

    async def _one(self) -> None:
        host, _, port = self._random.choice(self._addresses).rpartition(":")
        data = self._random.choice(FIRST_BYTES) + os.urandom(self._random.choice((1, 8, 200)))
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(ANSWER_S):
                while await reader.read(1 << 16):
                    pass
            self.told.reached("connection ended")
        except ConnectionError:
            self.told.reached("connection reset")
        except TimeoutError:
            self.told.wrong.append(f"the connection is still open {ANSWER_S} s after its end: {data.hex()}")
        finally:
            writer.close()
