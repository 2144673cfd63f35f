"""Ports of the loopback that nobody has."""

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """That many. All are held at once, so that they differ; another process may take one before it is used."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
