"""Connections over a slow link, or to a server that is busy for a moment."""

import asyncio
from contextlib import AsyncExitStack

from dejamq.net.namesrv import NameServerLink
from dejamq_proto.common_pb2 import Caller
from scripted_broker import ScriptedNamesrv

DELAY_S = 1.3
"""As long as a machine that is shared stood still once."""


class Somebody:
    def caller(self, seq: int = 0) -> Caller:
        return Caller(client_id="c", boot_id="b", seq=seq)


async def test_a_server_that_is_slow_to_greet_is_waited_for() -> None:
    async with AsyncExitStack() as stack:
        namesrv = ScriptedNamesrv({"t": []})  # type: ignore[abstract]  # answers only what is asked here
        await namesrv.start()
        stack.push_async_callback(namesrv.close)
        host, _, port = namesrv.address.rpartition(":")
        pipes: list[asyncio.Task[None]] = []

        async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1 << 16):
                writer.write(data)
            writer.close()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(DELAY_S)
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            pipes.extend(map(asyncio.ensure_future, (pipe(reader, far_writer), pipe(far_reader, writer))))

        relay = await stack.enter_async_context(await asyncio.start_server(accept, "127.0.0.1", 0))
        link = NameServerLink([f"127.0.0.1:{relay.sockets[0].getsockname()[1]}"], Somebody(), timeout_ms=8000)
        await link.get_route("t")
        await link.close()
        await asyncio.gather(*pipes)
