"""A console that listens, until its block ends."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from dejamq_lab.control.connection import PageConnection
from dejamq_proto.codes import ConfigError

from dejamq_cli.console.app import Console, application
from dejamq_cli.console.settings import ConsoleSettings

END_S = 2
"""Pages that listen for news never end by themselves."""


class _Server(uvicorn.Server):
    """Signals are its owner's to take."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(settings: ConsoleSettings) -> AsyncIterator[str]:
    """The address of its first page. Raises ConfigError where it cannot listen."""
    host, port = settings.address
    listener = _listener(host, port)
    server = _Server(uvicorn.Config(
        application(Console(settings)), log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=END_S, lifespan="on", proxy_headers=False, ws="none", log_config=None,
        http=PageConnection,
    ))  # fmt: skip
    task = asyncio.create_task(server.serve([listener]))
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        await task
        listener.close()


def _listener(host: str, port: int) -> socket.socket:
    """Bound here, so that the address is known and taken before anybody is told."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        raise ConfigError(f"the console cannot listen on {host}:{port}: {error.strerror}") from None
    return listener
