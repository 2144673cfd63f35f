"""``dejamq dev --control``: the HTTP pages in this process, the server under test in another one."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from dejamq_broker.base.config import BrokerConfig, is_loopback
from dejamq_proto.codes import ConfigError
from dejamq_proto.serving.server import CANNOT_LISTEN, wait_for_signal

from dejamq_lab.control.app import app
from dejamq_lab.control.connection import PageConnection
from dejamq_lab.control.server import ServerUnderTest


class ControlServer(uvicorn.Server):
    """Signals are the command's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(config: BrokerConfig, control: str, directory: Path) -> None:
    """Until a signal. The first line says that clients can connect, the second where faults are asked for.

    Raises ConfigError and ClusterFailed.
    """
    listener = _bound(control)
    server = ServerUnderTest(config, directory)
    pages = ControlServer(uvicorn.Config(
        app(server), log_config=None, access_log=False, lifespan="off", ws="none", http=PageConnection
    ))  # fmt: skip
    signalled = asyncio.create_task(wait_for_signal())
    serving = asyncio.create_task(pages.serve(sockets=[listener]))
    try:
        address = await server.start()
        print(f"ready dev {address}; export NAMESRV_ADDR={address} DEJAMQ_NAMESRV={address}", flush=True)
        print(f"control http://{_address(listener)}", flush=True)
        await signalled
    finally:
        signalled.cancel()
        await server.close()
        pages.should_exit = True
        await serving


def _bound(control: str) -> socket.socket:
    host, _, port = control.rpartition(":")
    bare = host.strip("[]")
    try:
        listener = socket.create_server(
            (bare, int(port)), family=socket.AF_INET6 if ":" in bare else socket.AF_INET, backlog=100
        )
    except ValueError:
        raise ConfigError(f"--control takes HOST:PORT, not {control!r}") from None
    except (OSError, OverflowError):
        raise ConfigError(
            f"{CANNOT_LISTEN} {control}: the port is in use or the address is not of this machine"
        ) from None
    if not is_loopback(bare):
        print(
            f"dejamq-dev: {control} lets everybody who reaches it kill this server: use 127.0.0.1, or publish it to "
            "the host alone", file=sys.stderr,
        )  # fmt: skip
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
