"""Ports of the loopback that nobody has, held until their servers have them.

A port that was only looked for may be taken before its server binds it. A socket that is bound and does not listen
holds it: the system gives it to nobody, and a server that sets SO_REUSEADDR may bind it too and listen. All servers
that the lab starts do so, in gRPC, asyncio, Java, Go, Erlang and Redis.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dejamq_lab.cluster.plan import LOOPBACK


def hold(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A socket that holds the port, 0: a free one, until it is closed. Raises OSError where another has it."""
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        held.bind((host, port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not before: two holders would share a port
    except BaseException:
        held.close()
        raise
    return held


def port_of(held: socket.socket) -> int:
    """The port that the socket holds."""
    port: int = held.getsockname()[1]
    return port


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """That many free ports of the loopback. They stay held until the end of the ``with``."""
    with ExitStack() as holding:
        yield [port_of(holding.enter_context(hold())) for _ in range(count)]


@contextmanager
def held_block(below: int, above: int) -> Iterator[int]:
    """A free port of the loopback, with ``below`` and ``above`` free ones next to it, all held. Raises OSError."""
    for _ in range(100):
        with ExitStack() as holding:
            port = port_of(holding.enter_context(hold()))
            try:
                for near in (*range(port - below, port), *range(port + 1, port + above + 1)):
                    holding.enter_context(hold(LOOPBACK, near))
            except (OSError, OverflowError):
                continue
            yield port
            return
    raise OSError(f"no {below + 1 + above} free ports beside one another on {LOOPBACK}")
