"""Settings of a name server."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar

from dejamq_proto.access.settings import OF_ROCKETMQ, AccessConfig
from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import listen_by_parts, setting
from dejamq_proto.config.tls import TlsClientSettings, TlsServerSettings
from dejamq_proto.journal.writer import Level
from dejamq_proto.serving.logs import WatchingConfig
from dejamq_proto.texts import number_of

KV_FILE = "kvConfig.json"


@dataclass(frozen=True)
class NamesrvConfig(WatchingConfig, AccessConfig, TlsServerSettings, TlsClientSettings):
    """All of one name server. Times are in milliseconds."""

    ROCKETMQ_CLASSES: ClassVar[tuple[str, ...]] = (
        "NamesrvConfig", "NettyServerConfig", "NettyClientConfig", "ControllerConfig",
    )  # fmt: skip
    ROCKETMQ_PARTS: ClassVar[Mapping[str, str]] = {
        "listenPort": "listen", "bindAddress": "listen", "kvConfigPath": "directory",
        **OF_ROCKETMQ,
    }  # fmt: skip

    listen: str = setting("127.0.0.1:9876", help="host:port to serve on; port 0: any")
    name: str = setting("namesrv", help="what the journal calls this process")
    directory: str | None = setting(None, help="where kvConfig.json and granted epochs are kept; none: in memory")
    scan_not_active_broker_interval_ms: int = setting(
        5_000,
        rocketmq="scanNotActiveBrokerInterval",
        unit="ms",
        scale="interval",
        help="between looks for silent ones",
    )
    broker_timeout_ms: int = setting(
        120_000,
        unit="ms",
        scale="interval",
        help="silence after which a broker leaves that names no time-out",
    )
    order_message_enable: bool = setting(
        False, rocketmq="orderMessageEnable", help="routes carry the order conf of namespace ORDER_TOPIC_CONFIG"
    )
    return_order_topic_config_to_broker: bool = setting(
        True, rocketmq="returnOrderTopicConfigToBroker", help="registering brokers are told the order topics"
    )
    delete_topic_with_broker_registration: bool = setting(
        False, rocketmq="deleteTopicWithBrokerRegistration",
        help="a topic that a broker's changed table lacks is forgotten at once, not kept until it is deleted here too",
    )  # fmt: skip
    shutdown_grace_ms: int = setting(2_000, unit="ms", scale="timeout", help="for running calls when it stops")
    journal_dir: str | None = setting(None, help="where the journal goes; none: no journal")
    journal_level: str = setting("audit", help="off, audit or forensic")
    journal_max_bytes: int = setting(1 << 30, unit="bytes", help="the oldest lines go above this")

    @classmethod
    def put_together(cls, parts: Mapping[str, str], values: dict[str, Any]) -> None:
        """RocketMQ's port and host into ours, and its file ``kvConfig.json`` into the folder."""
        cls.put_access_together(parts, values)
        if path := parts.get("kvConfigPath"):
            file = PurePath(path)
            values["directory"] = str(file.parent if file.name == KV_FILE else file)
        listen_by_parts(parts, values, cls.listen)

    def validate(self) -> None:
        """Raise ConfigError with the setting that makes no sense."""
        check_listen(self.listen)
        self.validate_watching()
        self.validate_tls_server()
        self.validate_tls_client()
        if self.journal_level not in list(Level):
            raise ConfigError(f"journal_level is off, audit or forensic, not {self.journal_level!r}")
        for field in ("scan_not_active_broker_interval_ms", "broker_timeout_ms"):
            if getattr(self, field) <= 0:
                raise ConfigError(f"{field} must be more than 0, not {getattr(self, field)}")


def check_listen(listen: str) -> None:
    """Raise ConfigError unless it is host:port. A numeric host must be a real address, so that a typo is found here."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or number_of(port, 65535) is None:
        raise ConfigError(f"listen must be host:port with a port up to 65535, not {listen!r}")
    if host.replace(".", "").isdigit():
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ConfigError(f"listen: {host!r} is not an IP address") from None
