"""Settings of TLS, for servers and for whoever dials them: RocketMQ's names, and what is checked before any file is."""

from dataclasses import dataclass

from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import setting

DISABLED, PERMISSIVE, ENFORCING = "disabled", "permissive", "enforcing"
MODES = (DISABLED, PERMISSIVE, ENFORCING)
NONE, OPTIONAL, REQUIRE = "none", "optional", "require"
CLIENT_AUTH = (NONE, OPTIONAL, REQUIRE)


@dataclass(frozen=True, kw_only=True)
class TlsClientSettings:
    """A part of each client's settings, and of a server's that dials others. Source: RocketMQ ``TlsSystemConfig``."""

    tls_enable: bool = setting(
        False, rocketmq="tls.enable", help="dial with TLS; so does tls_ca. Without tls_ca the system's CAs are trusted"
    )
    tls_ca: str = setting(
        "", rocketmq="tls.client.trustCertPath", help="PEM file of the CAs that servers are trusted by; sets tls_enable"
    )
    tls_cert: str = setting("", rocketmq="tls.client.certPath", help="PEM file of the client's own certificate chain")
    tls_key: str = setting(
        "", rocketmq="tls.client.keyPath", help="PEM file of its key, not encrypted; '': it is in tls_cert"
    )
    tls_name: str = setting(
        "", help="host name that certificates of servers must have; '': the host that is dialled. It is always checked"
    )

    @property
    def dials_tls(self) -> bool:
        """Whether connections are made with TLS."""
        return self.tls_enable or bool(self.tls_ca)

    def validate_tls_client(self) -> None:
        """Raise ConfigError for settings that miss each other. No file is read."""
        if self.tls_key and not self.tls_cert:
            raise ConfigError("tls_key needs tls_cert, the file of its certificate")
        if (self.tls_cert or self.tls_name) and not self.dials_tls:
            raise ConfigError("tls_cert and tls_name do nothing without TLS; set tls_ca, or tls_enable=true")


@dataclass(frozen=True, kw_only=True)
class TlsServerSettings:
    """A part of each server's settings. Source: RocketMQ ``TlsSystemConfig``, ``TlsMode``."""

    tls_server_mode: str = setting(
        PERMISSIVE, rocketmq="tls.server.mode",
        help="disabled: no TLS; permissive: both, TLS only with a certificate; enforcing: TLS only",
    )  # fmt: skip
    tls_server_cert_path: str = setting(
        "", rocketmq="tls.server.certPath", help="PEM file of the certificate and those of its issuers; '': no TLS"
    )
    tls_server_key_path: str = setting(
        "", rocketmq="tls.server.keyPath", help="PEM file of its key; '': it is in tls_server_cert_path"
    )
    tls_server_key_password: str = setting("", rocketmq="tls.server.keyPassword", help="of an encrypted key")
    tls_server_need_client_auth: str = setting(
        NONE, rocketmq="tls.server.need.client.auth",
        help="certificates of clients: none: not asked for; optional: checked where there is one; require: refused "
        "without one",
    )  # fmt: skip
    tls_server_trust_cert_path: str = setting(
        "", rocketmq="tls.server.trustCertPath", help="PEM file of the CAs that clients are trusted by"
    )
    tls_reload_interval_ms: int = setting(
        5_000, unit="ms", scale="interval", help="between looks for changed files; new connections get what is new"
    )

    @property
    def serves_tls(self) -> bool:
        """Whether connections with TLS are taken."""
        return self.tls_server_mode != DISABLED and bool(self.tls_server_cert_path)

    @property
    def only_tls(self) -> bool:
        """Whether plain connections are refused."""
        return self.tls_server_mode == ENFORCING

    def validate_tls_server(self) -> None:
        """Raise ConfigError for settings that cannot work together. No file is read."""
        if self.tls_server_mode not in MODES:
            raise ConfigError(f"tls_server_mode is {', '.join(MODES)}, not {self.tls_server_mode!r}")
        if self.tls_server_need_client_auth not in CLIENT_AUTH:
            given = self.tls_server_need_client_auth
            raise ConfigError(f"tls_server_need_client_auth is {', '.join(CLIENT_AUTH)}, not {given!r}")
        if self.only_tls and not self.tls_server_cert_path:
            raise ConfigError("tls_server_mode=enforcing needs tls_server_cert_path, the file of a certificate")
        if self.tls_server_key_path and not self.tls_server_cert_path:
            raise ConfigError("tls_server_key_path needs tls_server_cert_path, the file of its certificate")
        if self.tls_server_need_client_auth != NONE and not self.tls_server_trust_cert_path:
            raise ConfigError(
                f"tls_server_need_client_auth={self.tls_server_need_client_auth} needs tls_server_trust_cert_path, the "
                "CAs that clients are trusted by"
            )
        if self.tls_server_need_client_auth == REQUIRE and not self.only_tls:
            raise ConfigError(
                "tls_server_need_client_auth=require needs tls_server_mode=enforcing: plain connections show none"
            )
        if self.tls_reload_interval_ms <= 0:
            raise ConfigError(f"tls_reload_interval_ms must be more than 0, not {self.tls_reload_interval_ms}")
