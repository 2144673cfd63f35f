"""One connection with TLS, seen from inside as a plain one: protocol of the socket, transport of the protocol inside.

OpenSSL works in memory here. Doors get a transport that does what one of a socket does, so that none of them knows TLS.
asyncio's own has no end of one direction, keeps 256 KiB for each connection and ends a refused handshake without the
alert that tells the client why.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from dejamq_proto.wire.tls import why

log = logging.getLogger(__name__)

AT_ONCE_BYTES = 256 << 10
"""Encrypted before they are sent: more would be in memory twice."""
Bytes = bytes | bytearray | memoryview


class TlsLink(asyncio.Protocol, asyncio.Transport):
    """The server's side. Owned by the event loop."""

    def __init__(
        self, context: ssl.SSLContext, inner: asyncio.BaseProtocol,
        greeted: "Callable[[TlsLink, Exception | None], None]",
    ) -> None:  # fmt: skip
        """``inner`` gets the connection after the handshake. ``greeted`` is told how that ended, once."""
        super().__init__()
        self._come, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._come, self._leaving, server_side=True)
        self._inner, self._greeted = inner, greeted
        self._ready = self._told = self._closing = self._paused = self._ended = False

    # by asyncio, of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._come.write(data)
        if not self._ready:
            self._shake_hands()
        self._deliver()

    def eof_received(self) -> bool:
        """Whether the client said in TLS that it ends or not: what follows is told by lengths in all protocols here."""
        if not self._ready:
            self._tell(ConnectionResetError("the client ended the handshake; it may not trust the certificate"))
            return False
        return self._end_reading()

    def pause_writing(self) -> None:
        if self._ready:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._ready:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if self._ready:
            self._inner.connection_lost(exc)
        else:
            self._tell(exc or ConnectionResetError("the connection was closed"))
        self._inner = asyncio.BaseProtocol()  # it knows this transport: a circle

    # by the protocol inside

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls if name == "ssl_object" else self._socket.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._inner = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._inner

    def is_closing(self) -> bool:
        return self._closing or self._socket.is_closing()

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        self._paused = True
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Bytes that are here already come in a later round."""
        self._paused = False
        self._socket.resume_reading()
        asyncio.get_running_loop().call_soon(self._deliver)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._socket.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def write(self, data: Bytes) -> None:
        if self.is_closing():
            return
        rest = memoryview(data).cast("B")
        try:
            while rest:
                taken = self._tls.write(rest[:AT_ONCE_BYTES])
                rest = rest[taken:]
                self._flush()
        except ssl.SSLError as error:
            self._fail(error)

    def writelines(self, list_of_data: Iterable[Bytes]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._say_end()
        with suppress(OSError):  # the client is gone, as the end of the connection will tell
            self._socket.write_eof()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._say_end()
            self._socket.close()

    def abort(self) -> None:
        self._closing = True
        self._socket.abort()

    # its own

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._flush()  # the alert that tells the client why
            self._tell(error)
            self._closing = True
            self._socket.close()
            return
        self._flush()
        self._ready = True
        self._tell(None)
        self._inner.connection_made(self)

    def _tell(self, error: Exception | None) -> None:
        if not self._told:
            self._told = True
            self._greeted(self, error)

    def _deliver(self) -> None:
        """Give what has come to the protocol inside, which may be another one after each piece."""
        try:
            while self._ready and not (self._paused or self._ended or self.is_closing()):
                if not self._one_piece() and not self._end_reading():
                    self.close()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._flush()

    def _one_piece(self) -> bool:
        """False at the end. Raises SSLError, SSLWantReadError while there is no more."""
        inner = self._inner
        try:
            if isinstance(inner, asyncio.BufferedProtocol):
                space = memoryview(inner.get_buffer(-1)).cast("B")
                count = self._tls.read(len(space), space)
                if count:
                    inner.buffer_updated(cast(int, count))
                return bool(count)
            piece = self._tls.read(AT_ONCE_BYTES)
        except ssl.SSLZeroReturnError:
            return False
        if piece:
            cast(asyncio.Protocol, inner).data_received(piece)
        return bool(piece)

    def _end_reading(self) -> bool:
        """Nothing more comes. Whether the protocol inside still writes."""
        if self._ended:
            return True
        self._ended = True
        return bool(cast(asyncio.Protocol, self._inner).eof_received())

    def _say_end(self) -> None:
        with suppress(ssl.SSLError):  # the other side has not said it yet, which nobody waits for
            self._tls.unwrap()
        self._flush()

    def _fail(self, error: ssl.SSLError) -> None:
        """Bytes came that are not the other side's."""
        log.info("tls_broken peer=%s reason=%s", self.get_extra_info("peername"), why(error))
        self._flush()
        self.abort()

    def _flush(self) -> None:
        if self._leaving.pending and not self._socket.is_closing():
            self._socket.write(self._leaving.read())
