"""What gRPC and asyncio alone cost, with nothing of dejamq: the least that a program on them pays for a message.

Streams of 1 MiB messages in both directions (µs of a core for each KiB, in the process that writes and in the one that
reads), an echo by a call and by a stream (median, and µs of the caller's core), and futures: made, told and awaited by
one task, or by 256 tasks that wait for one each.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from dejamq_lab.bench import rpc_echo
from dejamq_proto.calling import dial, keep_pages

MESSAGE = bytes(1 << 20)
KIB = len(MESSAGE) >> 10
END: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # grpc-stubs lacks it
TASKS = 256
Figures = dict[str, float]


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
            await streams(channel, options.messages) | await echoes(channel, options.echoes) | await futures(options)
            for _ in range(options.rounds)
        ]
        await channel.close(None)
    return rounds


async def streams(channel: grpc.aio.Channel, count: int) -> Figures:
    down, up = rpc_echo.opened(channel, "/floor/Down"), rpc_echo.opened(channel, "/floor/Up")
    await down.write(b"now")
    before = time.process_time()
    for _ in range(count):
        await down.read()
    read_s, written_by_server_s = time.process_time() - before, float(await down.read())
    before = time.process_time()
    for _ in range(count):
        await up.write(MESSAGE)
    read_by_server_s, written_s = float(await up.read()), time.process_time() - before
    for call in (down, up):
        call.cancel()
    each = 1e6 / count / KIB
    return {
        "a stream to the server, its writer (µs a KiB)": written_s * each,
        "a stream to the server, its reader (µs a KiB)": read_by_server_s * each,
        "a stream from the server, its writer (µs a KiB)": written_by_server_s * each,
        "a stream from the server, its reader (µs a KiB)": read_s * each,
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

    async def down(asked: AsyncIterator[bytes], context: Any) -> None:
        await anext(asked)
        before = time.process_time()
        for _ in range(count):
            await context.write(MESSAGE)
        await context.write(repr(time.process_time() - before).encode())

    async def up(asked: AsyncIterator[bytes], context: Any) -> None:
        await context.read()
        before = time.process_time()
        for _ in range(count - 1):
            await context.read()
        await context.write(repr(time.process_time() - before).encode())

    async def echo(body: bytes, context: Any) -> bytes:
        return body

    async def echo_all(asked: AsyncIterator[bytes], context: Any) -> None:
        while (body := await context.read()) is not END:
            await context.write(body)

    handlers = {
        "Down": grpc.stream_stream_rpc_method_handler(down), "Up": grpc.stream_stream_rpc_method_handler(up),
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Echoes": grpc.stream_stream_rpc_method_handler(echo_all),
    }  # fmt: skip
    await rpc_echo.serve("floor", handlers)


if __name__ == "__main__":
    main()
