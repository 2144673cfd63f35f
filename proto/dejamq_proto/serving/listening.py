"""Ports that this process listens at, and their end, which leaves no connection behind.

Between accepting a connection and making its transport the event loop takes a step. Where ``asyncio.Server.close`` is
called in between, the transport cannot be made, and the accepted socket stays open: its client waits for ever. So
whoever listens holds the sockets himself, and no server is closed.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable

WAITING_CONNECTIONS = 1024
"""As many clients may connect in one step of the loop, as all do after a restart."""


async def bound(host: str, port: int) -> list[socket.socket]:
    """Take the port, without listening yet; port 0 takes a free one. Raises OSError.

    ``::`` means both families. Of a name that has several addresses, all that this machine has are taken.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    held: list[socket.socket] = []
    trouble: OSError | None = None
    for address in dict.fromkeys(str(each[4][0]) for each in found):
        try:
            held.append(_bound(address, held[0].getsockname()[1] if held else port))
        except OSError as error:
            trouble = error
    if trouble is not None and (not held or trouble.errno == errno.EADDRINUSE):
        for each in held:
            each.close()
        raise trouble
    return held


def _bound(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        held.bind((address, port))
    except BaseException:
        held.close()
        raise
    return held


async def listen(held: Iterable[socket.socket], opened: Callable[[], asyncio.BaseProtocol]) -> None:
    """Accept connections at these ports; each gets a protocol of its own. Raises OSError; the ports are free then."""
    try:
        for each in held:
            await asyncio.get_running_loop().create_server(opened, sock=each, backlog=WAITING_CONNECTIONS)
    except BaseException:
        end_listening(held)
        raise


def end_listening(held: Iterable[socket.socket]) -> None:
    """Let go of these ports; connections that are there go on. Who was just accepted still gets its protocol.

    May be called twice.
    """
    loop = asyncio.get_running_loop()
    for each in held:
        if each.fileno() >= 0:
            loop.remove_reader(each.fileno())
        each.close()
