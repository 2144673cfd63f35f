"""How soon a client finds a server that was away and is back."""

import asyncio
import contextlib
from typing import Any, cast

from dejamq_proto.codes import DejamqError
from dejamq_proto.wire import calling

MANY = 12
DEADLINE_S = 6.0


async def test_a_server_that_is_away_is_dialled_many_times_a_second_however_long_it_has_been() -> None:
    """Growing pauses would need 17 s for so many: sends would fail for seconds after the server is back."""
    dialled = 0

    async def away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dialled
        dialled += 1
        writer.close()

    server = await asyncio.start_server(away, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    channel = calling.dial(address)
    method = cast(Any, channel).unary_unary("/dejamq.v1.Nothing/Nothing")
    try:
        async with asyncio.timeout(DEADLINE_S):
            while dialled < MANY:
                with contextlib.suppress(DejamqError):
                    await calling.call(method, b"", address=address, timeout_ms=1_000)
                await asyncio.sleep(0.01)
    finally:
        await channel.close(None)
        server.close()
