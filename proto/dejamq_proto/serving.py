"""How a server of ours is bound, made healthy, and stopped: shared by name server and broker."""

import asyncio
import os
import signal
import socket
from collections.abc import Sequence

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from dejamq_proto import failpoints
from dejamq_proto.calling import MAX_FRAME_BYTES
from dejamq_proto.codes import ConfigError
from dejamq_proto.refusals import Refusals
from dejamq_proto.rpc_faults import RpcFaults

SERVER_OPTIONS: list[tuple[str, int]] = [
    ("grpc.so_reuseport", 0),  # a port in use is an error, never a second listener
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
]


class Server:
    """A gRPC server with health and reflection. Health says SERVING only between ``ready`` and ``stop``."""

    def __init__(self, services: Sequence[str]) -> None:
        """``services`` are the full names that reflection lists; add servicers to ``grpc`` before ``start``."""
        self.refusals = Refusals()
        faults = (RpcFaults(),) if failpoints.ARMED else ()
        self.grpc = grpc.aio.server(interceptors=(self.refusals, *faults), options=SERVER_OPTIONS)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)
        reflection.enable_server_reflection((*services, health.SERVICE_NAME, reflection.SERVICE_NAME), self.grpc)

    async def start(self, listen: str) -> str:
        """Bind ``host:port`` (port 0: any) and accept calls. Returns the bound address. Raises ConfigError."""
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        host = listen.rpartition(":")[0]
        try:
            _probe(listen)
            port = self.grpc.add_insecure_port(listen)
        except (OSError, RuntimeError):
            port = 0
        if not port:
            raise ConfigError(f"cannot listen on {listen}: the port is in use or the address is not of this machine")
        await self.grpc.start()
        return f"{host}:{port}"

    async def ready(self) -> None:
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_ms: float) -> None:
        """Refuse new calls, let running ones end within the grace. May be called twice."""
        await self._health.enter_graceful_shutdown()
        await self.grpc.stop(grace_ms / 1000)


def _probe(listen: str) -> None:
    """Bind and let go: gRPC would print its own many words about a port in use beside our one line."""
    host, _, port = listen.rpartition(":")
    family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


async def wait_for_signal(signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT)) -> signal.Signals:
    """Wait for the first of these signals; a second one ends the process at once with status 128 + number."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[signal.Signals] = loop.create_future()
    seen: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        if seen:
            os._exit(128 + number)
        seen.append(number)
        # done already when asyncio's own Ctrl-C handler met the same signal and cancelled us: that is still the first
        if not arrived.done():
            arrived.set_result(number)

    for number in signals:
        loop.add_signal_handler(number, on_signal, number)
    return await arrived
