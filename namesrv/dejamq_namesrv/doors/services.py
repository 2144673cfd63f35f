"""All doors of a name server, for a server to answer by: its own, or one of another kind that is a name server too."""

import time

from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.serving.server import Server
from dejamq_proto.v2 import methods
from dejamq_proto.wire.tls import ClientTls

from dejamq_namesrv.config import NamesrvConfig
from dejamq_namesrv.doors.remoting.requests import remoting_door
from dejamq_namesrv.doors.v1.routes import SERVICE, NameServerServicer, add_to
from dejamq_namesrv.doors.v2.routes import RouteService
from dejamq_namesrv.kv_config import KvConfig
from dejamq_namesrv.registry import Registry


def monotonic_ms() -> int:
    """The clock of expiry: changes of wall time make no broker silent. Replaced in tests."""
    return time.monotonic_ns() // 1_000_000


class NameServerDoors:
    """Owned by the event loop. The registry decides."""

    services: tuple[str, ...] = (SERVICE, methods.SERVICE)
    """The full names of the gRPC services."""

    def __init__(self, registry: Registry, tls: ClientTls | None = None) -> None:
        """``tls``: for what is passed on to brokers."""
        self._servicer, self._v2 = NameServerServicer(registry), RouteService(registry, tls)
        self.remoting = remoting_door(registry)

    @classmethod
    def in_memory(cls) -> "NameServerDoors":
        """Of a name server with default settings, whose key-value settings end with the process."""
        journal = Journal(None, role="namesrv", process="", boot_id="", level=Level.OFF)
        return cls(Registry(NamesrvConfig(), KvConfig(None), journal, monotonic_ms))

    def add_to(self, server: Server) -> None:
        """Open the doors at a server that has not started yet. A broker's own answers come before these."""
        add_to(server.grpc, self._servicer)
        server.grpc.add_generic_rpc_handlers((self._v2.handler(server.guard, server.acceptor.true_peer),))
        self.remoting.guard = server.guard

    def end_channels(self) -> None:
        """Let go of brokers' and clients' streams, which would otherwise hold up the stop of the server."""
        self._servicer.end_channels()
        self._v2.end_streams()
