"""Settings of how a server is watched, the same for all servers: its log lines and its metrics."""

import logging
from dataclasses import dataclass

from dejamq_proto.codes import ConfigError
from dejamq_proto.settings import setting

METRICS_PORT = 5557  # RocketMQ's metricsPromExporterPort
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


@dataclass(frozen=True, kw_only=True)
class WatchingConfig:
    """A part of each server's settings."""

    log_level: str = setting("info", help="lines below this are not written: debug, info, warning or error")
    log_format: str = setting("text", help="text: one line of key=value; json: one object a line")
    metrics_exporter_type: str = setting(
        "DISABLE", rocketmq="metricsExporterType", help="DISABLE, or PROM: serve /metrics, on port 5557 unless told"
    )
    metrics_listen: str = setting("", help="host:port that serves /metrics over HTTP; port 0: a free one")

    @property
    def metrics_address(self) -> str:
        """Where ``/metrics`` is served; '' for nowhere."""
        if self.metrics_listen or self.metrics_exporter_type == "DISABLE":
            return self.metrics_listen
        return f"127.0.0.1:{METRICS_PORT}"

    @property
    def log_level_number(self) -> int:
        """As the logging module counts."""
        return int(logging.getLevelNamesMapping()[self.log_level.upper()])

    def validate_watching(self) -> None:
        """Raise ConfigError for what no server can do."""
        if self.log_level not in LEVELS:
            raise ConfigError(f"log_level is one of {', '.join(LEVELS)}, not {self.log_level!r}")
        if self.log_format not in FORMATS:
            raise ConfigError(f"log_format is text or json, not {self.log_format!r}")
        if self.metrics_exporter_type not in ("DISABLE", "PROM"):
            raise ConfigError(f"metrics_exporter_type is DISABLE or PROM, not {self.metrics_exporter_type!r}")
        host, _, port = self.metrics_listen.rpartition(":")
        if self.metrics_listen and not (host and port.isdigit() and int(port) < 65_536):
            raise ConfigError(f"metrics_listen is HOST:PORT, not {self.metrics_listen!r}")
