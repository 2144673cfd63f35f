"""The dialling end of TLS: whom it trusts, who it says it is, for gRPC and for plain connections alike."""

import re
import ssl
from functools import cached_property
from pathlib import Path
from typing import Any

import grpc

from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import load
from dejamq_proto.config.tls import TlsClientSettings


class ClientTls:
    """Read once, when a client is made. The server's certificate and its host name are always checked."""

    def __init__(self, settings: TlsClientSettings) -> None:
        """Reads the files. Raises ConfigError for one that cannot be used."""
        self._name = settings.tls_name
        self._ca = _read("tls_ca", settings.tls_ca)
        self._chain = _read("tls_cert", settings.tls_cert)
        self._key = _read("tls_key", settings.tls_key) or self._chain
        self.context = client_context(settings)
        """For connections of asyncio."""

    @classmethod
    def of(cls, settings: TlsClientSettings) -> "ClientTls | None":
        """None where connections are plain. Raises ConfigError."""
        return cls(settings) if settings.dials_tls else None

    @classmethod
    def from_environment(cls) -> "ClientTls | None":
        """By ``DEJAMQ_TLS_CA`` and its like, for programs without other settings. Raises ConfigError."""
        settings = load(TlsClientSettings)
        settings.validate_tls_client()
        return cls.of(settings)

    @cached_property
    def credentials(self) -> Any:
        """For gRPC. Without CAs of the program's it is given those of the system."""
        ca = self._ca or "".join(map(ssl.DER_cert_to_PEM_cert, self.context.get_ca_certs(binary_form=True))).encode()
        return grpc.ssl_channel_credentials(ca or None, self._key, self._chain)

    @property
    def channel_options(self) -> list[tuple[str, str]]:
        """For a channel of gRPC."""
        return [("grpc.ssl_target_name_override", self._name)] if self._name else []

    def of_asyncio(self, host: str) -> dict[str, Any]:
        """Arguments of ``create_connection`` and ``open_connection``."""
        return {"ssl": self.context, "server_hostname": self._name or host}


def asyncio_tls(tls: ClientTls | None, host: str) -> dict[str, Any]:
    """As ``of_asyncio``; nothing for plain connections."""
    return {} if tls is None else tls.of_asyncio(host)


def client_context(settings: TlsClientSettings) -> ssl.SSLContext:
    """Raises ConfigError for files that are no certificates, or no key of them."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.tls_ca:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_verify_locations(settings.tls_ca)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"tls_ca: {settings.tls_ca} has no certificate in PEM ({why(error)})") from None
    if settings.tls_cert:
        load_own(context, settings.tls_cert, settings.tls_key, "", names=("tls_cert", "tls_key"))
    return context


def load_own(context: ssl.SSLContext, cert: str, key: str, password: str, *, names: tuple[str, str]) -> None:
    """Give the context its own certificate. Raises ConfigError, which names the settings."""

    def asked() -> str:
        if not password:
            raise ConfigError(
                f"{names[1]}: the key in {key or cert} is encrypted, and there is no password for it here"
            )
        return password

    try:
        context.load_cert_chain(cert, key or None, asked)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"{names[0]}, {names[1]}: {cert} and {key or cert} are not a certificate and its key in PEM ({why(error)})"
        ) from None


def why(error: Exception) -> str:
    """OpenSSL's or the system's reason in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


TROUBLES = (
    (r"CERTIFICATE_VERIFY_FAILED(?:: )?([^:\]]*)", "its certificate is not accepted, {}; see tls_ca (DEJAMQ_TLS_CA)"),
    (r"Hostname Verification Check failed", "its certificate has another host name; see tls_name (DEJAMQ_TLS_NAME)"),
    (r"Unwrap failed", "it wants a certificate of this client that it trusts; see tls_cert (DEJAMQ_TLS_CERT)"),
    (r"(?:Tls|Ssl|SSL) handshake failed.*?([A-Z_]{8,}\b|$)", "the TLS handshake failed, {}; is TLS on there?"),
)
"""What gRPC says of connections with TLS that fail, and what it means."""


def trouble(details: str) -> str | None:
    """Why a connection of gRPC's with TLS did not come up, in a few words; None for other reasons."""
    for pattern, text in TROUBLES:
        if found := re.search(pattern, details):
            return text.format(*(each.strip().replace("_", " ").lower() for each in found.groups()))
    return None


def _read(name: str, path: str) -> bytes | None:
    try:
        return Path(path).read_bytes() if path else None
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read: {error.strerror}") from None
