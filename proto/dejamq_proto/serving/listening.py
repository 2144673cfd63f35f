"""The end of a listening server that leaves no connection behind.

Between accepting a connection and making its transport the loop takes a step. Where ``asyncio.Server.close`` comes in
between, the transport cannot be made, and the accepted socket stays open: its client waits for ever.
"""

import asyncio
import socket
from contextlib import suppress

STEPS = 3
"""After so many steps of the loop an accepted connection has its transport."""


def end_listening(server: asyncio.Server) -> None:
    """Let go of its ports at once; connections that are there go on. Who was just accepted still gets its protocol."""
    loop = server.get_loop()
    for held in server.sockets:
        loop.remove_reader(held.fileno())
        with suppress(OSError):  # it does not listen yet
            held.shutdown(socket.SHUT_RDWR)
    _close_later(loop, server, STEPS)


def _close_later(loop: asyncio.AbstractEventLoop, server: asyncio.Server, steps: int) -> None:
    if steps:
        loop.call_soon(_close_later, loop, server, steps - 1)
    else:
        server.close()
