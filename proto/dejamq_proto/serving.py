"""How a server of ours is bound, made healthy, and stopped: shared by name server and broker."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterable, Sequence

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from dejamq_proto import failpoints
from dejamq_proto.calling import MAX_FRAME_BYTES
from dejamq_proto.codes import ConfigError
from dejamq_proto.refusals import Refusals
from dejamq_proto.rpc_faults import RpcFaults
from dejamq_proto.timings import Timings

STREAM_WINDOW_BYTES = 1 << 20
"""What gRPC takes in for a stream that is not read; a frame that is being read may be larger."""
SERVER_OPTIONS: list[tuple[str, int]] = [
    ("grpc.so_reuseport", 0),  # a port in use is an error, never a second listener
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.max_concurrent_streams", 1000),  # of one connection; what is more waits in the client
    ("grpc.http2.bdp_probe", 0),  # on a busy machine it takes the delay for a long line: 50 MB for each unread stream
    ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
]


LIVENESS, READINESS = "liveness", "readiness"


class Server:
    """A gRPC server with health and reflection.

    Health knows ``liveness``, SERVING while the process answers at all, and ``readiness``, which is SERVING only when a
    client can use the server: between ``ready`` and ``drain``. Without a name the answer is that of readiness, and
    each service has its own, so that one may be closed while the others serve.
    """

    def __init__(self, services: Sequence[str], timings: Timings | None = None) -> None:
        """``services`` are the full names that reflection lists; add servicers to ``grpc`` before ``start``.

        ``timings`` is told how long each call took.
        """
        self._services, self._ready = services, False
        faults = (RpcFaults(),) if failpoints.ARMED else ()
        timed = () if timings is None else (timings,)
        self.grpc = grpc.aio.server(interceptors=(*timed, Refusals(), *faults), options=SERVER_OPTIONS)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)
        reflection.enable_server_reflection((*services, health.SERVICE_NAME, reflection.SERVICE_NAME), self.grpc)

    async def start(self, listen: str) -> str:
        """Bind ``host:port`` (port 0: any) and accept calls. Returns the bound address. Raises ConfigError."""
        await self._set(("", READINESS, *self._services), False)
        host = listen.rpartition(":")[0]
        try:
            _probe(listen)
            port = self.grpc.add_insecure_port(listen)
        except (OSError, RuntimeError):
            port = 0
        if not port:
            raise ConfigError(f"cannot listen on {listen}: the port is in use or the address is not of this machine")
        await self.grpc.start()
        await self._set((LIVENESS,), True)
        return f"{host}:{port}"

    async def ready(self) -> None:
        """Clients can use it from now on."""
        self._ready = True
        await self._set(("", READINESS, *self._services), True)

    async def drain(self) -> None:
        """Say that clients should go elsewhere; calls are still served. May be called twice, and before ``ready``."""
        self._ready = False
        await self._set(("", READINESS, *self._services), False)

    async def set_serving(self, service: str, serving: bool) -> None:
        """One service opens or closes while the others go on. Nothing changes before ``ready`` and after ``drain``."""
        if self._ready:
            await self._set((service,), serving)

    async def _set(self, names: Iterable[str], serving: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in names:
            await self._health.set(name, status)

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
