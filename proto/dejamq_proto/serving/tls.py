"""TLS at a server's port: its certificate, which is read anew when its files change, and handshakes within bounds."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from dejamq_proto.codes import ConfigError
from dejamq_proto.config.tls import NONE, REQUIRE, TlsServerSettings
from dejamq_proto.serving.tls_link import TlsLink
from dejamq_proto.wire.tls import load_own, why

log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
"""A handshake has this time from the first byte to the last."""
MOST_HANDSHAKES = 1024
"""Under way at once; for one more the oldest one ends. So clients that stall make room for those that go on."""
PROTOCOLS = ("h2",)
"""Offered in ALPN: gRPC's clients insist on it. Others ask for none, and the first bytes inside tell."""
Marks = tuple[tuple[int, int, int], ...]
"""Inode, size and time of change of each file: links that are switched to other files are seen."""


class TlsDoor:
    """Makes plain connections of connections with TLS. Owned by the event loop."""

    def __init__(self, settings: TlsServerSettings) -> None:
        """Reads the certificate. Raises ConfigError."""
        self._settings = settings
        self._marks = _marks(settings)
        self._context = server_context(settings)
        self._under_way: dict[TlsLink, asyncio.TimerHandle] = {}
        """The one that began first is in front."""
        log.info(
            "tls mode=%s certificate=%s client_auth=%s", settings.tls_server_mode, settings.tls_server_cert_path,
            settings.tls_server_need_client_auth,
        )  # fmt: skip

    @classmethod
    def of(cls, settings: TlsServerSettings) -> "TlsDoor | None":
        """None where TLS is not taken. Raises ConfigError."""
        return cls(settings) if settings.serves_tls else None

    @property
    def only(self) -> bool:
        """Whether plain connections are refused."""
        return self._settings.only_tls

    @property
    def handshakes(self) -> int:
        """How many are under way."""
        return len(self._under_way)

    def open(self, inner: Callable[[], asyncio.BaseProtocol]) -> TlsLink:
        """The protocol of one connection, inside of which ``inner`` goes on."""
        link = TlsLink(self._context, inner(), self._greeted)
        if len(self._under_way) >= MOST_HANDSHAKES:
            self._give_up(next(iter(self._under_way)), f"{MOST_HANDSHAKES} handshakes are under way")
        timer = asyncio.get_running_loop().call_later(
            HANDSHAKE_S, self._give_up, link, f"the handshake took longer than {HANDSHAKE_S:g} s"
        )
        self._under_way[link] = timer
        return link

    async def watch(self) -> None:
        """Look for changed files until cancelled. New connections get what is new, those that are there go on."""
        while True:
            await asyncio.sleep(self._settings.tls_reload_interval_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """Take the files as they are now if they changed; what cannot be used is logged, and the old ones stay."""
        marks = await asyncio.to_thread(_marks, self._settings)
        if marks == self._marks:
            return
        self._marks = marks
        try:
            self._context = await asyncio.to_thread(server_context, self._settings)
        except ConfigError as error:
            log.error("tls_reload_failed certificate=the one before reason=%s", error)
        else:
            log.info("tls_reloaded certificate=%s", self._settings.tls_server_cert_path)

    def close(self) -> None:
        """End the handshakes that are under way. May be called twice."""
        for link in list(self._under_way):
            link.abort()

    def _greeted(self, link: TlsLink, error: Exception | None) -> None:
        timer = self._under_way.pop(link, None)
        if timer is None:
            return  # it was given up, with a line of its own
        timer.cancel()
        if error is not None:
            log.info("tls_refused peer=%s reason=%s", link.get_extra_info("peername"), why(error))

    def _give_up(self, link: TlsLink, reason: str) -> None:
        if self._under_way.pop(link, None) is not None:
            log.info("tls_refused peer=%s reason=%s", link.get_extra_info("peername"), reason)
            link.abort()


def server_context(settings: TlsServerSettings) -> ssl.SSLContext:
    """Raises ConfigError for files that are no certificates, or no key of them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(list(PROTOCOLS))
    load_own(
        context, settings.tls_server_cert_path, settings.tls_server_key_path, settings.tls_server_key_password,
        names=("tls_server_cert_path", "tls_server_key_path"),
    )  # fmt: skip
    if settings.tls_server_need_client_auth != NONE:
        required = settings.tls_server_need_client_auth == REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        trusted = settings.tls_server_trust_cert_path
        try:
            context.load_verify_locations(trusted)
        except (ssl.SSLError, OSError) as error:
            text = f"tls_server_trust_cert_path: {trusted} has no certificate in PEM ({why(error)})"
            raise ConfigError(text) from None
    return context


def _marks(settings: TlsServerSettings) -> Marks:
    """A file that is away for a moment has a mark of its own."""
    found = []
    for path in (
        settings.tls_server_cert_path, settings.tls_server_key_path, settings.tls_server_trust_cert_path
    ):  # fmt: skip
        try:
            stat = Path(path).stat()
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)
