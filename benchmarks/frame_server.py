"""A server of frames for benchmarks: each connection is a task."""

import asyncio
from collections.abc import Awaitable, Callable

from dejamq_proto.wire.frame_stream import FrameStream


async def listen(serve: Callable[[FrameStream], Awaitable[None]]) -> int:
    """Accept connections on a free port of the loopback, which is returned, as long as the process lives."""
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    class Accepted(FrameStream):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)

            async def run() -> None:
                await serve(self)

            task = loop.create_task(run())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await loop.create_server(Accepted, "127.0.0.1", 0)
    return int(server.sockets[0].getsockname()[1])
