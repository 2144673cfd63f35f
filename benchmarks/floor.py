"""What gRPC, frames over TCP and asyncio alone cost, with nothing of dejamq: the least that a message takes on them.

Measured by gRPC and as frames:

- streams of 1 MiB messages in both directions: µs of a core for each KiB, in writer and reader
- an echo by a call, by a stream and by a frame: the median, and µs of the caller's core
- futures, made, told and awaited by one task, or by 256 tasks that wait for one each
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import frame_server
import grpc
import grpc.aio
from dejamq_lab.bench import rpc_echo
from dejamq_proto.wire.calling import dial, keep_pages
from dejamq_proto.wire.frame_stream import FrameStream
from dejamq_proto.wire.framed import Frame

MESSAGE = bytes(1 << 20)
KIB = len(MESSAGE) >> 10
END: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # grpc-stubs lacks it
TASKS = 256
Figures = dict[str, float]
Read = Callable[[], Awaitable[Frame]]
Write = Callable[[bytes], Awaitable[object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1000, help="of 1 MiB, each way")
    parser.add_argument("--echoes", type=int, default=2000)
    parser.add_argument("--futures", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.messages))
        return
    rounds = asyncio.run(measured(options))
    for what in rounds[0]:
        values = [each[what] for each in rounds]
        print(f"{what:52} {statistics.median(values):8.2f}   ({min(values):.2f} to {max(values):.2f})")


async def measured(options: argparse.Namespace) -> list[Figures]:
    """Each round by itself. The server is a process of its own, as a broker is."""
    async with rpc_echo.served(__file__, "--serve", f"--messages={options.messages}") as address:
        channel = dial(address)
        rounds = [
            await streams(channel, options.messages) | await frames(channel, options.messages, options.echoes)
            | await echoes(channel, options.echoes) | await futures(options)
            for _ in range(options.rounds)
        ]  # fmt: skip
        await channel.close(None)
    return rounds


async def streams(channel: grpc.aio.Channel, count: int) -> Figures:
    down, up = rpc_echo.opened(channel, "/floor/Down"), rpc_echo.opened(channel, "/floor/Up")
    await down.write(b"now")
    found = await both_ways("a stream", (down.read, up.read, up.write), count)
    for call in (down, up):
        call.cancel()
    return found


async def frames(channel: grpc.aio.Channel, count: int, echoes: int) -> Figures:
    """The same, and echoes, on connections of frames."""
    down, up, echo = [await connected(channel) for _ in range(3)]
    for stream, what in ((down, b"down"), (up, b"up"), (echo, b"echo")):
        await stream.send(what)
    found = await both_ways("frames", (down.read, up.read, up.send), count)
    body = bytes(1024)

    async def ask() -> None:
        await echo.send(body)
        await echo.read()

    found |= await timed("an echo by a frame", ask, echoes)
    for stream in (down, up, echo):
        stream.close()
    return found


async def connected(channel: grpc.aio.Channel) -> FrameStream:
    port = await channel.unary_unary("/floor/Port", request_serializer=None, response_deserializer=None)(b"")
    return (await asyncio.get_running_loop().create_connection(FrameStream, "127.0.0.1", int(port)))[1]


async def both_ways(what: str, ends: tuple[Read, Read, Write], count: int) -> Figures:
    """``ends``: read what comes down, read what is said of what went up, write up."""
    read_down, read_up, write_up = ends
    before = time.process_time()
    for _ in range(count):
        await read_down()
    read_s, written_by_server_s = time.process_time() - before, float(await read_down())
    before = time.process_time()
    for _ in range(count):
        await write_up(MESSAGE)
    read_by_server_s, written_s = float(await read_up()), time.process_time() - before
    each = 1e6 / count / KIB
    return {
        f"{what} to the server, the writer (µs a KiB)": written_s * each,
        f"{what} to the server, the reader (µs a KiB)": read_by_server_s * each,
        f"{what} from the server, the writer (µs a KiB)": written_by_server_s * each,
        f"{what} from the server, the reader (µs a KiB)": read_s * each,
    }


async def echoes(channel: grpc.aio.Channel, count: int) -> Figures:
    body = bytes(1024)
    call = channel.unary_unary("/floor/Echo", request_serializer=None, response_deserializer=None)
    stream = rpc_echo.opened(channel, "/floor/Echoes")

    async def by_stream() -> None:
        await stream.write(body)
        await stream.read()

    found = await timed("an echo by a call", lambda: call(body), count)
    found |= await timed("an echo by a stream", by_stream, count)
    stream.cancel()
    return found


async def timed(what: str, ask: Callable[[], Awaitable[object]], count: int) -> Figures:
    took = []
    before = time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        await ask()
        took.append(time.perf_counter() - began)
    core_s = time.process_time() - before
    return {f"{what}, median (µs)": statistics.median(took) * 1e6, f"{what}, of a core (µs)": core_s / count * 1e6}


async def futures(options: argparse.Namespace) -> Figures:
    """As the results of sends are told: many at once, in another task than those that wait."""
    loop, each = asyncio.get_running_loop(), max(1, options.futures // TASKS)
    count, untold = each * TASKS, list[asyncio.Future[int]]()

    async def wait() -> None:
        for _ in range(each):
            untold.append(loop.create_future())
            await untold[-1]

    async def tell() -> None:
        told = 0
        while told < count:
            await asyncio.sleep(0)
            waiting = untold.copy()
            untold.clear()
            told += len(waiting)
            for future in waiting:
                future.set_result(0)

    before = time.process_time()
    made = [loop.create_future() for _ in range(count)]
    for future in made:
        future.set_result(0)
    for future in made:
        await future
    between = time.process_time()
    await asyncio.gather(tell(), *(wait() for _ in range(TASKS)))
    alone_s, waiting_s = between - before, time.process_time() - between
    return {
        "a future made, told, awaited (µs)": alone_s / count * 1e6,
        f"the same, {TASKS} tasks that wait for one each (µs)": waiting_s / count * 1e6,
    }


async def serve(count: int) -> None:
    """Tells at the end of each stream of 1 MiB messages what it cost this process (s of a core)."""
    keep_pages()  # as a broker has it: without, a KiB takes its reader up to 1.7 µs, of which 1.3 are new pages
    port = await frame_server.listen(lambda stream: by_frames(stream, count))

    async def where(_: bytes, context: Any) -> bytes:
        return b"%d" % port

    async def down(asked: AsyncIterator[bytes], context: Any) -> None:
        await anext(asked)
        await write_down(context.write, count)

    async def up(asked: AsyncIterator[bytes], context: Any) -> None:
        await read_up(context.read, context.write, count)

    async def echo(body: bytes, context: Any) -> bytes:
        return body

    async def echo_all(asked: AsyncIterator[bytes], context: Any) -> None:
        while (body := await context.read()) is not END:
            await context.write(body)

    streaming, unary = grpc.stream_stream_rpc_method_handler, grpc.unary_unary_rpc_method_handler
    await rpc_echo.serve("floor", {
        "Port": unary(where), "Down": streaming(down), "Up": streaming(up), "Echo": unary(echo),
        "Echoes": streaming(echo_all),
    })  # fmt: skip


async def by_frames(stream: FrameStream, count: int) -> None:
    """Each connection says first what it is for."""
    with suppress(ConnectionError):
        match await stream.read():
            case b"down":
                await write_down(stream.send, count)
            case b"up":
                await read_up(stream.read, stream.send, count)
            case _:
                while True:
                    await stream.send(await stream.read())


async def write_down(write: Write, count: int) -> None:
    before = time.process_time()
    for _ in range(count):
        await write(MESSAGE)
    await write(repr(time.process_time() - before).encode())


async def read_up(read: Read, write: Write, count: int) -> None:
    await read()
    before = time.process_time()
    for _ in range(count - 1):
        await read()
    await write(repr(time.process_time() - before).encode())


if __name__ == "__main__":
    main()
