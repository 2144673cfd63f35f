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
from dejamq_proto.access.guard import Guard
from dejamq_proto.access_pb2_grpc import add_AccessServicer_to_server
from dejamq_proto.codes import ConfigError
from dejamq_proto.serving.acceptor import Acceptor
from dejamq_proto.serving.access_gate import AccessGate
from dejamq_proto.serving.access_service import AccessService
from dejamq_proto.serving.faults import RpcFaults
from dejamq_proto.serving.heap import Heap
from dejamq_proto.serving.refusals import Refusals
from dejamq_proto.serving.through_port import OnlyThroughPort
from dejamq_proto.serving.timings import Timings
from dejamq_proto.serving.tls import TlsDoor
from dejamq_proto.wire.calling import MAX_FRAME_BYTES

STREAM_WINDOW_BYTES = 1 << 20
"""The bytes that gRPC takes in for a stream that is not read; a frame that is being read may be larger."""
SERVER_OPTIONS: list[tuple[str, int]] = [
    ("grpc.so_reuseport", 0),  # a port in use is an error, never a second listener
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.max_concurrent_streams", 1000),  # of one connection; further calls wait in the client
    ("grpc.http2.bdp_probe", 0),  # on a busy machine it takes the delay for a long line: 50 MB for each unread stream
    ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
]


ACCESS = "dejamq.v1.Access"
"""The service that every server has: its users and their rules."""
GRPC_BELOW, ANY_PORT = 1, 0
"""gRPC's own port is so far below the public one, or any that is free."""
LOOPBACK = "127.0.0.1"
HERE = {"0.0.0.0": LOOPBACK, "::": "::1", "": LOOPBACK}
"""Where a server that listens on every address is dialled from its own process."""
LIVENESS, READINESS = "liveness", "readiness"
CANNOT_LISTEN = "cannot listen on"
"""So begins the last word of a server whose port another process has."""


class Server:
    """A gRPC server with health and reflection, behind a public port that has doors for other protocols as well.

    gRPC's own listener is beside the public port. Who dials the public port is passed on to it.

    Health knows ``liveness`` and ``readiness``. ``liveness`` is SERVING while the process answers at all. ``readiness``
    is SERVING only when a client can use the server: between ``ready`` and ``drain``. Without a name the answer is the
    state of readiness. Each service has its own state, so that one may be closed while the others serve.
    """

    def __init__(
        self, services: Sequence[str], timings: Timings | None = None, tls: TlsDoor | None = None,
        guard: Guard | None = None,
    ) -> None:  # fmt: skip
        """``services`` are the full names that reflection lists; add servicers to ``grpc`` before ``start``.

        ``timings`` gets the time of each call. ``tls``: of the public port; None: it takes none. ``guard`` is asked
        before each call.
        """
        self._services, self._ready = services, False
        self.acceptor, self._tls = Acceptor(), tls
        self.acceptor.tls = tls
        self._beside: list[asyncio.Task[None]] = []
        self.direct = ""
        """gRPC's own address; known after ``start``."""
        self.stable_direct = ""
        """The same where it is next to the public port, so that a later start has it again; else empty. Clients that
        keep any other one would not find the server after that start."""
        faults = (RpcFaults(),) if failpoints.ARMED else ()
        timed = () if timings is None else (timings,)
        through = (OnlyThroughPort(self.acceptor),) if tls is not None and tls.only else ()
        gate = () if guard is None else (AccessGate(guard, self.acceptor.true_peer),)
        self.guard = guard
        self.grpc = grpc.aio.server(interceptors=(*through, *timed, Refusals(), *gate, *faults), options=SERVER_OPTIONS)
        add_AccessServicer_to_server(AccessService(guard), self.grpc)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)
        reflection.enable_server_reflection(
            (*services, ACCESS, health.SERVICE_NAME, reflection.SERVICE_NAME), self.grpc
        )

    async def start(self, listen: str, *, beside: bool = False) -> str:
        """Bind ``host:port`` (port 0: any) and accept calls. Returns the bound address. Raises ConfigError.

        ``beside``: gRPC's own port is on the same host, for clients that dial it without the public port's detour.
        Otherwise it is one of the loopback. It is so always where the public port takes TLS, which gRPC's own does not.
        """
        await self._set(("", READINESS, *self._services), False)
        host = listen.rpartition(":")[0]
        bare = host.strip("[]")
        try:
            port = await self.acceptor.bind(bare, int(listen.rpartition(":")[2]))
        except OSError:
            raise _cannot(listen) from None
        near_it = beside and self._tls is None
        direct_host, near = (host, max(port - GRPC_BELOW, ANY_PORT)) if near_it else (LOOPBACK, ANY_PORT)
        self.direct = f"{direct_host}:{self._bind_grpc(direct_host, near)}"
        self.stable_direct = self.direct if _port(self.direct) == near else ""
        await self.grpc.start()
        self.acceptor.pass_to_grpc(HERE.get(direct_host.strip("[]"), direct_host.strip("[]")), _port(self.direct))
        try:
            await self.acceptor.listen()
        except OSError:  # two may bind a port while neither listens: the second learns it here
            self.acceptor.close()
            raise _cannot(listen) from None
        self._beside.append(asyncio.create_task(Heap().run(), name="heap"))
        if self._tls is not None:
            self._beside.append(asyncio.create_task(self._tls.watch(), name="certificates"))
        await self._set((LIVENESS,), True)
        return f"{host}:{port}"

    def _bind_grpc(self, host: str, near: int) -> int:
        """The port that is wished for, or any."""
        for candidate in (near, ANY_PORT):
            address = f"{host}:{candidate}"
            try:
                _probe(address)
                if port := self.grpc.add_insecure_port(address):
                    return port
            except (OSError, RuntimeError):
                pass
        self.acceptor.close()
        raise _cannot(f"{host}:{ANY_PORT}")

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

    def stop_listening(self) -> None:
        """The public port takes no connection any more; those that are there go on. May be called twice."""
        self.acceptor.stop_listening()

    async def stop(self, grace_ms: float) -> None:
        """Refuse new calls, let running ones end within the grace. May be called twice."""
        self.stop_listening()
        for task in self._beside:
            task.cancel()
        if self._beside:
            await asyncio.wait(self._beside)
        await self._health.enter_graceful_shutdown()
        await self.grpc.stop(grace_ms / 1000)
        self.acceptor.close()


def _cannot(listen: str) -> ConfigError:
    return ConfigError(f"{CANNOT_LISTEN} {listen}: the port is in use or the address is not of this machine")


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


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
