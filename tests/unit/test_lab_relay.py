"""The lab's relay breaks what it should, also while it dials the other side."""

import asyncio
from contextlib import suppress

import pytest
from dejamq_lab.cluster.relay import Relay

DEADLINE_S = 10.0


@pytest.mark.parametrize("how", ["cut", "close"])
async def test_a_connection_that_is_dialled_on_is_broken_like_the_others(how: str) -> None:
    reached: list[asyncio.StreamWriter] = []
    far = await asyncio.start_server(lambda reader, writer: reached.append(writer), "127.0.0.1", 0)
    ending: list[asyncio.Future[None]] = []

    def target() -> str:
        """Asked for just before the other side is dialled."""
        if how == "cut":
            relay.cut()
        else:
            ending.append(asyncio.ensure_future(relay.close()))
        return f"127.0.0.1:{far.sockets[0].getsockname()[1]}"

    relay = Relay(target)
    host, _, port = (await relay.start("127.0.0.1")).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        with suppress(ConnectionResetError):  # an end is as good
            async with asyncio.timeout(DEADLINE_S):
                assert await reader.read() == b""
    finally:
        writer.close()
        for one in reached:
            one.close()
        far.close()
        await asyncio.gather(relay.close(), *ending)
