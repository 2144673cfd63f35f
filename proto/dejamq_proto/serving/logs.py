"""Log lines of servers: one line an event, ``event=… key=value``, the same for all of them, or one JSON object a line.

Code logs ``"event key=value …"``; the text without a key becomes ``message``. The first lines of a process are its
settings, so that a log tells how its process was started. Chosen settings come before untouched ones.
"""

import json
import logging
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from logging.handlers import MemoryHandler
from typing import Any

from dejamq_proto.codes import ConfigError
from dejamq_proto.config.settings import setting, shown
from dejamq_proto.serving.otlp_target import OtlpTarget
from dejamq_proto.texts import number_of

# Settings of how a server is watched, the same for all servers: its log lines and its metrics.

METRICS_PORT = 5557  # RocketMQ's metricsPromExporterPort
EXPORTERS = ("DISABLE", "PROM", "OTLP_GRPC")
ADDRESS = re.compile(r"[^\s/:]+:\d+|\[[0-9a-fA-F:.]+\]:\d+")
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


@dataclass(frozen=True, kw_only=True)
class WatchingConfig:
    """A part of each server's settings."""

    log_level: str = setting("info", help="lines below this are not written: debug, info, warning or error")
    log_format: str = setting("text", help="text: one line of key=value; json: one object a line")
    metrics_exporter_type: str = setting(
        "DISABLE", rocketmq="metricsExporterType",
        help="DISABLE; PROM: serve /metrics, on port 5557 unless told; OTLP_GRPC: export to metrics_otlp_target",
    )  # fmt: skip
    metrics_listen: str = setting("", help="host:port that serves /metrics over HTTP; port 0: a free one")
    metrics_otlp_target: str = setting(
        "", rocketmq="metricsGrpcExporterTarget",
        help="where metrics are exported by OTLP over gRPC: http://host:port; https:// or no scheme: with TLS",
    )  # fmt: skip
    metrics_otlp_secret_header: str = setting(
        "", rocketmq="metricsGrpcExporterHeader", help="sent with each export: name:value, several separated by commas"
    )
    metrics_otlp_interval_ms: int = setting(
        60_000, rocketmq="metricGrpcExporterIntervalInMills", unit="ms", scale="interval", help="between two exports"
    )
    metrics_otlp_timeout_ms: int = setting(
        3_000, rocketmq="metricGrpcExporterTimeOutInMills", unit="ms", scale="timeout", help="of one export"
    )

    @property
    def metrics_address(self) -> str:
        """Where ``/metrics`` is served; '' for nowhere."""
        if self.metrics_listen or self.metrics_exporter_type != "PROM":
            return self.metrics_listen
        return f"127.0.0.1:{METRICS_PORT}"

    @property
    def otlp_target(self) -> OtlpTarget | None:
        """Where metrics are exported to. Raises ConfigError for headers that cannot be read."""
        if not self.metrics_otlp_target:
            return None
        headers = tuple(map(_header, filter(None, self.metrics_otlp_secret_header.split(","))))
        return OtlpTarget(
            self.metrics_otlp_target, headers, self.metrics_otlp_interval_ms, self.metrics_otlp_timeout_ms
        )

    @property
    def metrics_on(self) -> bool:
        """Somebody wants metrics."""
        return bool(self.metrics_address or self.metrics_otlp_target)

    @property
    def log_level_number(self) -> int:
        """As the logging module counts."""
        return int(logging.getLevelNamesMapping()[self.log_level.upper()])

    def validate_watching(self) -> None:
        """Raise ConfigError for values that no server can use."""
        if self.log_level not in LEVELS:
            raise ConfigError(f"log_level is one of {', '.join(LEVELS)}, not {self.log_level!r}")
        if self.log_format not in FORMATS:
            raise ConfigError(f"log_format is text or json, not {self.log_format!r}")
        if self.metrics_exporter_type not in EXPORTERS:
            text = f"metrics_exporter_type is DISABLE, PROM or OTLP_GRPC, not {self.metrics_exporter_type!r}"
            raise ConfigError(text)
        if self.metrics_exporter_type == "OTLP_GRPC" and not self.metrics_otlp_target:
            raise ConfigError("metrics_exporter_type=OTLP_GRPC needs metrics_otlp_target, for example http://host:4317")
        self._validate_otlp()
        host, _, port = self.metrics_listen.rpartition(":")
        if self.metrics_listen and not (host and number_of(port, 65_535) is not None):
            raise ConfigError(f"metrics_listen is HOST:PORT, not {self.metrics_listen!r}")

    def _validate_otlp(self) -> None:
        scheme, _, rest = self.metrics_otlp_target.rpartition("//")
        if self.metrics_otlp_target and not (scheme in ("", "http:", "https:") and ADDRESS.fullmatch(rest)):
            raise ConfigError(f"metrics_otlp_target is http://HOST:PORT or https://…, not {self.metrics_otlp_target!r}")
        for name in ("metrics_otlp_interval_ms", "metrics_otlp_timeout_ms"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be more than 0")
        _ = self.otlp_target


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (colon and name.strip() and value.strip()):
        raise ConfigError("metrics_otlp_secret_header is name:value, several separated by commas")
    return name.strip().lower(), value.strip()


log = logging.getLogger(__name__)
EVENT = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*(?= |$)")
KEY = re.compile(r"(?:^| )([a-z_][a-z0-9_]*)=")
EQUAL = "\ufdd0"
"""Stands for an equal sign of a value: Unicode keeps this code point for such use inside of a program."""
PLAIN = re.compile(r'[^\s"=]+')
OURS = ("dejamq",)
HELD_LINES, HOLD_S = 10_000, 1.0


def configure(config: WatchingConfig) -> Callable[[], None]:
    """Write the lines of this process to standard error, in the format and from the level of its settings.

    They are held until the first warning, or until the returned function is called, soon after the start. So a server
    that cannot run writes one line with the reason first, and not the settings.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if config.log_format == "json" else TextLines())
    held = _HeldLines(HELD_LINES, logging.WARNING, handler)
    logging.basicConfig(level=config.log_level_number, handlers=[held], force=True)

    def release() -> None:
        if held in logging.root.handlers:
            logging.root.addHandler(handler)
            logging.root.removeHandler(held)
            held.released = True
            held.flush()

    return release


def tell_start(config: WatchingConfig, *, server: str, unused: Sequence[str] = ()) -> None:
    """The first lines: the process's identity, each setting that is not its default, then all others in one line.

    ``unused``: keys of RocketMQ that were given and have no effect here.
    """
    values, defaults = shown(config), shown(type(config)())
    chosen = {name: value for name, value in values.items() if value != defaults.get(name)}
    others = {name: value for name, value in values.items() if name not in chosen}
    log.info(
        "starting server=%s version=%s pid=%d python=%s", server, version(), os.getpid(), platform.python_version()
    )
    for name, value in chosen.items():
        log.info("setting name=%s value=%s default=%s", name, _quoted(value), _quoted(defaults.get(name, "none")))
    log.info("settings_default %s", _Pairs(" ".join(f"{name}={_quoted(value)}" for name, value in others.items())))
    if unused:
        log.warning("settings_without_effect keys=%s", _quoted(",".join(dict.fromkeys(unused))))
    where, level = values.get("journal_dir", "none"), values.get("journal_level", "off")
    log.info("journal directory=%s level=%s", _quoted(where), level if "journal_dir" in values else "off")


def version() -> str:
    """Of this package; '' when it is not installed."""
    try:
        return metadata.version("dejamq")
    except metadata.PackageNotFoundError:
        return ""


class _Pairs(str):
    """Fields that were put together before: its equal signs are those of keys."""


class TextLines(logging.Formatter):
    """``time=… level=… logger=… event=… key=value``; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        line = " ".join(f"{name}={_quoted(value)}" for name, value in fields(record))
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        return f"{line}\n{trace}" if trace else line


class JsonLines(logging.Formatter):
    """One object a line, every value a text; a traceback is one of them."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, str] = {}
        for name, value in fields(record):
            told.setdefault(name, value)
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return _json(told)


class _HeldLines(MemoryHandler):
    """Lines that it still holds when the process ends are not written."""

    released = False

    def flush(self) -> None:
        if self.released or (self.buffer and self.shouldFlush(self.buffer[-1])):
            super().flush()


def fields(record: logging.LogRecord) -> Iterator[tuple[str, str]]:
    """The parts of a line in order. Lines of libraries are one message: their words are not ours."""
    yield "time", datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    yield "level", record.levelname.lower()
    yield "logger", record.name
    ours = record.name.startswith(OURS)
    text = _marked(record) if ours else record.getMessage()
    event = EVENT.match(text) if ours else None
    yield "event", event.group() if event else "message"
    for name, value in _parts(text[event.end() :].strip() if event else text, split=event is not None):
        yield name, value.replace(EQUAL, "=")


def _parts(text: str, *, split: bool) -> Iterator[tuple[str, str]]:
    """``key=value`` pairs, and the text before the first of them. A value ends where the next key begins."""
    keys = list(KEY.finditer(text)) if split else []
    said = text[: keys[0].start()] if keys else text
    if said:
        yield "message", said
    for key, after in zip(keys, [*keys[1:], None], strict=False):
        yield key.group(1), _unquoted(text[key.end() : after.start() if after else len(text)].strip())


def _marked(record: logging.LogRecord) -> str:
    """The message, with the equal signs of its values marked: what a stranger has chosen makes no key of its own."""
    if not isinstance(record.args, tuple) or not record.args:
        return record.getMessage()
    return str(record.msg) % tuple(map(_mark, record.args))


def _mark(value: object) -> object:
    told = str(value) if isinstance(value, BaseException) else value
    return told.replace("=", EQUAL) if isinstance(told, str) and not isinstance(told, _Pairs) else told


def _quoted(value: Any) -> str:
    """As it is when it is one word, else as JSON writes a text. Letters that do not print are told by their numbers."""
    text = str(value)
    return text if PLAIN.fullmatch(text) and text.isprintable() else _json(text)


def _json(value: Any) -> str:
    """In letters that print, so that no value drives the terminal of who reads the log, or ends its line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            pass
    return text
