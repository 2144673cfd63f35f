"""The baseline: a bare grpc.aio unary echo, a bare stream to a process of its own, a memory copy, and a Python loop."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from dejamq_proto.serving.server import SERVER_OPTIONS
from dejamq_proto.wire.calling import dial

ECHO_CALLS = 500
COPY_BYTES = 64 << 20
METHOD, STREAM = "/echo.Echo/Echo", "/echo.Echo/Take"
STREAM_MESSAGES, STREAM_BYTES = 128, 1 << 20
LOOP_STEPS = 500_000


async def baseline(body_bytes: int) -> dict[str, float]:
    """``grpc_echo_p50_ms``, ``grpc_echo_per_second`` (one at a time), ``grpc_stream_gb_per_second`` (messages of 1 MiB,
    one way) and ``memory_copy_gb_per_second``.

    Measured in the same run and on the same body size, so that a ratio to it compares across machines.
    """
    async with served("-m", "dejamq_lab.bench.rpc_echo") as address:
        samples = await _echo_times(address, bytes(body_bytes))
        streamed = await _stream_rate(address)
    samples.sort()
    return {
        "grpc_echo_p50_ms": round(samples[len(samples) // 2] * 1000, 3),
        "grpc_echo_per_second": round(len(samples) / sum(samples), 1),
        "grpc_stream_gb_per_second": round(streamed, 3),
        "memory_copy_gb_per_second": round(_copy_rate(), 2),
    }


def python_step_ns() -> float:
    """Nanoseconds of a step of a loop that touches next to no memory: how fast the processor is for Python just now.

    A virtual core that shares its core with somebody else's takes twice as long, and no other figure of it tells.
    """
    table, total = {number: number for number in range(1000)}, 0
    began = time.perf_counter()
    for number in range(LOOP_STEPS):
        total += table[number % 1000]
    return round((time.perf_counter() - began) / LOOP_STEPS * 1e9, 1)


async def _echo_times(address: str, body: bytes) -> list[float]:
    """Seconds of each call, one at a time, after 50 that warm the connection up."""
    channel = dial(address)
    try:
        echo = channel.unary_unary(METHOD, request_serializer=None, response_deserializer=None)
        samples = []
        for _ in range(ECHO_CALLS + 50):
            began = time.perf_counter()
            await echo(body)
            samples.append(time.perf_counter() - began)
        return samples[50:]
    finally:
        await channel.close(None)


async def _stream_rate(address: str) -> float:
    """Gigabytes a second that the other process has taken out of one stream."""
    message = bytes(STREAM_BYTES)

    async def messages() -> AsyncIterator[bytes]:
        for _ in range(STREAM_MESSAGES):
            yield message

    channel = dial(address)
    try:
        take = channel.stream_unary(STREAM, request_serializer=None, response_deserializer=None)
        await channel.channel_ready()
        began = time.perf_counter()
        await take(messages())
        return STREAM_BYTES * STREAM_MESSAGES / (time.perf_counter() - began) / 1e9
    finally:
        await channel.close(None)


def _copy_rate() -> float:
    """Gigabytes a second of one copy that is larger than the caches; the first copy makes the pages."""
    source, target = bytes(COPY_BYTES), bytearray(COPY_BYTES)
    target[:] = source
    began = time.perf_counter()
    target[:] = source
    return COPY_BYTES / (time.perf_counter() - began) / 1e9


async def _serve() -> None:
    async def echo(request: bytes, _context: object) -> bytes:
        return request

    async def take(requests: AsyncIterator[bytes], _context: object) -> bytes:
        async for _ in requests:
            pass
        return b""

    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo), "Take": grpc.stream_unary_rpc_method_handler(take)
    }  # fmt: skip
    await serve("echo.Echo", handlers)


def opened(channel: grpc.aio.Channel, method: str) -> Any:
    """A stream of bytes each way, begun; ``method`` is its whole path."""
    method_of: Any = channel.stream_stream(method, request_serializer=None, response_deserializer=None)
    return method_of()  # grpc-stubs wants what is written later


@asynccontextmanager
async def served(*program: str) -> AsyncIterator[str]:
    """The address of a server in a process of its own, which is a Python program that calls ``serve``."""
    process = await asyncio.create_subprocess_exec(sys.executable, *program, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


async def serve(service: str, handlers: "dict[str, grpc.RpcMethodHandler[Any, Any]]") -> None:
    """Serve these methods on a free port of the loopback, whose address is printed, until the process is ended."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve())
