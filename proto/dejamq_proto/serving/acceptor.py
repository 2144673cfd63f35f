"""One public port for several protocols: the first bytes of a connection tell which door it wants.

============== ========================================================================
first bytes    what it is
============== ========================================================================
``PRI ``       gRPC (HTTP/2): passed on to the gRPC server of this process, which listens beside
``0x00``       four bytes of length: a remoting frame when the fifth byte is 0 or 1, else a fast frame
``0x16 0x03``  TLS: it ends here, and the first bytes inside tell which of the others it is
============== ========================================================================

gRPC cannot be given a connection that somebody else accepted. So its bytes are passed on over loopback, and the process
remembers whose connection stands behind which local port.
"""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from struct import Struct
from termios import TIOCOUTQ
from typing import NamedTuple, cast

from dejamq_proto.serving.listening import bound, end_listening, listen
from dejamq_proto.serving.tls import TlsDoor

log = logging.getLogger(__name__)

GRPC_PREFACE = b"PRI "
TLS_HELLO = b"\x16\x03"
REMOTING_FORMS = (0, 1)
TOLD_BY_BYTES = 5
SILENT_S = 120.0
"""RocketMQ closes a connection that is idle for so long; one that says nothing at all is idle from its start."""
STUCK_S = 60.0
"""A connection that is passed on ends when one of its ends took no byte of those that wait for it for so long."""
OUTQ = Struct("i")

Open = Callable[[], asyncio.BaseProtocol]
"""Makes the protocol of one connection."""


class Door(NamedTuple):
    """What a connection asks for; ``open`` is None where it is refused."""

    name: str
    open: Open | None
    last_word: bytes = b""
    """For who is refused."""
    level: int = logging.INFO
    """Of the line in the log about that."""


TLS_ONLY = "TLS only; set tls_ca (DEJAMQ_TLS_CA) in clients of dejamq, tls.enable=true or useTLS in RocketMQ's"


GONE_S = 60.0
"""How long the client behind an ended connection is remembered."""
UPGRADE_REQUIRED = b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.2\r\nConnection: close, Upgrade\r\n\r\n"
"""For a gRPC client without TLS, which tells its caller the status. GOAWAY would have it dial again without end."""


def peer_of(transport: asyncio.BaseTransport) -> tuple[str, int]:
    """Host and port of the other end. An IPv4 client of a listener for both families is known by its IPv4 address."""
    host, port = transport.get_extra_info("peername")[:2]
    return _unmapped(host), port


def peer_name(address: tuple[str, int]) -> str:
    """A socket's address in gRPC's words."""
    host, port = _unmapped(address[0]), address[1]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _unmapped(host: str) -> str:
    mapped = ipaddress.IPv6Address(host).ipv4_mapped if ":" in host else None
    return str(mapped) if mapped else host


class Acceptor:
    """Listens, and gives each connection to the door that its first bytes ask for. Owned by the event loop.

    A door that is None is closed: its connections are ended with a line in the log.
    """

    def __init__(self) -> None:
        self.grpc: Open | None = None
        self.remoting: Open | None = None
        self.fast: Open | None = None
        self.tls: TlsDoor | None = None
        self._held: list[socket.socket] = []
        self.closed = False
        self.connections: set[asyncio.Transport] = set()
        """Those that nobody has taken yet, and those that are passed on to gRPC."""
        self.relayed: dict[str, str] = {}
        """gRPC's name of the local end of a connection that is passed on -> gRPC's name of the client behind it."""
        self._gone: dict[str, str] = {}
        """The same of connections that ended a moment ago: gRPC may begin calls of them still."""

    def true_peer(self, peer: str) -> str:
        """gRPC's name of the client: the one behind the acceptor's own connection if the call came through it."""
        return self.relayed.get(peer) or self._gone.get(peer, peer)

    def relay_began(self, name: str, client: str) -> None:
        """The connection with this local end stands for the client."""
        self._gone.pop(name, None)
        self.relayed[name] = client

    def relay_ended(self, name: str) -> None:
        """It has ended. Nobody who calls by it afterwards is taken for this machine itself."""
        client = self.relayed.pop(name, None)
        if client is not None:
            self._gone[name] = client
            asyncio.get_running_loop().call_later(GONE_S, self._forget, name, client)

    def _forget(self, name: str, client: str) -> None:
        if self._gone.get(name) is client:
            del self._gone[name]

    def was_relayed(self, peer: str) -> bool:
        """Whether a call from this peer, by gRPC's name, came through the public port."""
        return peer in self.relayed

    async def bind(self, host: str, port: int) -> int:
        """Take the port, without listening yet; port 0 takes a free one. The bound port. Raises OSError.

        ``::`` means both families. Of a name that has several addresses, all that this machine has are taken.
        """
        self._held = await bound(host, port)
        return int(self._held[0].getsockname()[1])

    async def listen(self) -> None:
        """Accept connections at the ports that are bound."""
        await listen(self._held, self.arriving)

    def pass_to_grpc(self, host: str, port: int) -> None:
        """gRPC's own listener is there."""
        self.grpc = lambda: _Client(self, host, port)

    def arriving(self) -> asyncio.BaseProtocol:
        """For who listens himself: the protocol of a connection that has said nothing yet."""
        return _Arriving(self)

    def stop_listening(self) -> None:
        """Connections that are there go on."""
        end_listening(self._held)

    def close(self) -> None:
        """Also end the connections that are still here, and those whose accept is under way. May be called twice."""
        self.closed = True
        self.stop_listening()
        if self.tls is not None:
            self.tls.close()
        for transport in list(self.connections):
            transport.abort()

    def door_of(self, first: bytes, *, inside: bool = False) -> Door | None:
        """The door that these bytes ask for; None: more bytes are needed to tell. ``inside``: they came by TLS."""
        if TLS_HELLO.startswith(first[: len(TLS_HELLO)]):
            return self._tls_door(inside) if len(first) >= len(TLS_HELLO) else None
        found = self._plain_door(first)
        if found is None or inside or self.tls is None or not self.tls.only:
            return found
        last_word = UPGRADE_REQUIRED if found.name == "grpc" else b""
        return Door(
            f"{found.name} without TLS: tls_server_mode=enforcing takes {TLS_ONLY}", None, last_word, logging.WARNING
        )

    def _plain_door(self, first: bytes) -> Door | None:
        if GRPC_PREFACE.startswith(first[: len(GRPC_PREFACE)]):
            return Door("grpc", self.grpc) if len(first) >= len(GRPC_PREFACE) else None
        if first[0]:
            return Door(f"unknown bytes {first[:TOLD_BY_BYTES]!r}", None)
        if len(first) < TOLD_BY_BYTES:
            return None
        if first[TOLD_BY_BYTES - 1] in REMOTING_FORMS:
            return Door("remoting", self.remoting)
        return Door("fast frames", self.fast)

    def _tls_door(self, inside: bool) -> Door:
        tls = self.tls
        if tls is None:
            return Door("TLS: set tls_server_cert_path, and tls_server_mode other than disabled", None)
        return Door("TLS within TLS", None) if inside else Door("TLS", lambda: tls.open(lambda: _Arriving(self, True)))


class _Arriving(asyncio.Protocol):
    """A connection that has not said yet what it wants."""

    def __init__(self, acceptor: Acceptor, inside: bool = False) -> None:
        """``inside``: of a connection with TLS, whose handshake is done."""
        self._acceptor, self._first, self._inside = acceptor, b"", inside

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._acceptor.connections.add(self._transport)
        wait_s = 0 if self._acceptor.closed else SILENT_S
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._first += data
        found = self._acceptor.door_of(self._first, inside=self._inside)
        if found is None:
            return
        self._leave()
        if found.open is None:
            self._refuse(found)
            return
        hand_over(self._transport, found.open(), self._first)

    def _refuse(self, door: Door) -> None:
        log.log(door.level, "connection_refused peer=%s door=%s", self._transport.get_extra_info("peername"), door.name)
        if door.last_word:
            self._transport.write(door.last_word)
            self._transport.close()
        else:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def _leave(self) -> None:
        self._timer.cancel()
        self._acceptor.connections.discard(self._transport)


def hand_over(transport: asyncio.Transport, protocol: asyncio.BaseProtocol, first: bytes) -> None:
    """Let this protocol go on with a connection of which these bytes have been read."""
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if transport.is_closing():
        return
    if isinstance(protocol, asyncio.Protocol):
        protocol.data_received(first)
        return
    buffered = cast(asyncio.BufferedProtocol, protocol)
    rest = memoryview(first)
    while rest and not transport.is_closing():
        space = memoryview(buffered.get_buffer(len(rest))).cast("B")
        taken = min(len(space), len(rest))
        space[:taken] = rest[:taken]
        buffered.buffer_updated(taken)
        rest = rest[taken:]


class _PassedEnd(asyncio.Protocol):
    """One end of a connection that is passed on. Who writes faster than the other end reads is not read from.

    Bytes that wait for this end have a limit of time, also when the other end is gone already.
    """

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._stuck: asyncio.TimerHandle | None = None
        self.other: _PassedEnd | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._acceptor.connections.add(self.transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()
        self._watch()

    def resume_writing(self) -> None:
        assert self.transport is not None
        if not self.transport.is_closing():
            self._unwatch()
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def _finish(self) -> None:
        """The other end has gone."""
        assert self.transport is not None
        self.other = None
        self.transport.close()
        if self._stuck is None:
            self._watch()

    def _watch(self) -> None:
        self._stuck = asyncio.get_running_loop().call_later(STUCK_S, self._look_stuck, self._waiting())

    def _waiting(self) -> int:
        """The bytes that the other side has not taken, those in the kernel among them: it takes megabytes at once."""
        assert self.transport is not None
        held = ioctl(self.transport.get_extra_info("socket").fileno(), TIOCOUTQ, bytes(OUTQ.size))
        return self.transport.get_write_buffer_size() + int(OUTQ.unpack(held)[0])

    def _unwatch(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _look_stuck(self, waited: int) -> None:
        """``waited``: the bytes that waited when this was last looked at. A slow reader goes on."""
        assert self.transport is not None
        if self._waiting() < waited:
            self._watch()
            return
        log.info("relay_stuck peer=%s bytes=%d", self.transport.get_extra_info("peername"), waited)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """What the other end has been sent still leaves."""
        self._unwatch()
        if self.transport is not None:
            self._acceptor.connections.discard(self.transport)
        if self.other is not None and self.other.transport is not None:
            self.other._finish()
        self.other = None


class _Client(_PassedEnd):
    """The client's end; nothing more is read from it before gRPC's end is there."""

    def __init__(self, acceptor: Acceptor, host: str, port: int) -> None:
        super().__init__(acceptor)
        self._host, self._port, self._first = host, port, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast(asyncio.Transport, transport).pause_reading()
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._first += data
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._dialling.cancel()
        super().connection_lost(exc)

    async def _dial(self) -> None:
        assert self.transport is not None
        server = _GrpcEnd(self._acceptor, peer_name(peer_of(self.transport)))
        try:
            async with asyncio.timeout(STUCK_S):
                await asyncio.get_running_loop().create_connection(lambda: server, self._host, self._port)
        except OSError as error:
            log.warning("grpc_unreachable address=%s:%d reason=%s", self._host, self._port, error)
            self.transport.abort()
            return
        assert server.transport is not None
        self.other, server.other = server, self
        server.transport.write(self._first)
        self._first = b""
        with suppress(RuntimeError):  # it has gone meanwhile
            self.transport.resume_reading()


class _GrpcEnd(_PassedEnd):
    """gRPC's end. Its local port stands for the client in what gRPC says of its peers."""

    def __init__(self, acceptor: Acceptor, client: str) -> None:
        super().__init__(acceptor)
        self._client, self._name = client, ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._name = peer_name(transport.get_extra_info("sockname"))
        self._acceptor.relay_began(self._name, self._client)

    def connection_lost(self, exc: Exception | None) -> None:
        self._acceptor.relay_ended(self._name)
        super().connection_lost(exc)
