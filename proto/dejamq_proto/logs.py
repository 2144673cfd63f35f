"""Log lines of servers: one line an event, ``event=… key=value``, the same for all of them, or one JSON object a line.

Code logs ``"event key=value …"``; what it says without a key becomes ``message``. The first lines of a process are its
settings, those that somebody chose before those that nobody touched, so that a log tells how its process was started.
"""

import json
import logging
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from logging.handlers import MemoryHandler
from typing import Any

from dejamq_proto.settings import shown
from dejamq_proto.watching import WatchingConfig

log = logging.getLogger(__name__)
EVENT = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*(?= |$)")
KEY = re.compile(r"(?:^| )([a-z_][a-z0-9_]*)=")
PLAIN = re.compile(r'[^\s"=]+')
OURS = ("dejamq",)
HELD_LINES, HOLD_S = 10_000, 1.0


def configure(config: WatchingConfig) -> Callable[[], None]:
    """Write the lines of this process to standard error, in the format and from the level of its settings.

    They are held until the first warning, or until what this gives is called, soon after the start: whoever starts a
    server that cannot run reads one line that says why, and not the settings first.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if config.log_format == "json" else TextLines())
    held = _Held(HELD_LINES, logging.WARNING, handler)
    logging.basicConfig(level=config.log_level_number, handlers=[held], force=True)

    def release() -> None:
        if held in logging.root.handlers:
            logging.root.addHandler(handler)
            logging.root.removeHandler(held)
            held.released = True
            held.flush()

    return release


def tell_start(config: WatchingConfig, *, server: str) -> None:
    """The first lines: who this is, each setting that is not its default, then all others in one line."""
    values, defaults = shown(config), shown(type(config)())
    chosen = {name: value for name, value in values.items() if value != defaults.get(name)}
    others = {name: value for name, value in values.items() if name not in chosen}
    log.info(
        "starting server=%s version=%s pid=%d python=%s", server, version(), os.getpid(), platform.python_version()
    )
    for name, value in chosen.items():
        log.info("setting name=%s value=%s default=%s", name, _quoted(value), _quoted(defaults.get(name, "none")))
    log.info("settings_default %s", " ".join(f"{name}={_quoted(value)}" for name, value in others.items()))
    where, level = values.get("journal_dir", "none"), values.get("journal_level", "off")
    log.info("journal directory=%s level=%s", _quoted(where), level if "journal_dir" in values else "off")


def version() -> str:
    """Of this package; '' when it is not installed."""
    try:
        return metadata.version("dejamq")
    except metadata.PackageNotFoundError:
        return ""


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
        return json.dumps(told, ensure_ascii=False)


class _Held(MemoryHandler):
    """What it still holds when the process ends is not written."""

    released = False

    def flush(self) -> None:
        if self.released or (self.buffer and self.shouldFlush(self.buffer[-1])):
            super().flush()


def fields(record: logging.LogRecord) -> Iterator[tuple[str, str]]:
    """The parts of a line in order. Lines of libraries are one message: their words are not ours."""
    yield "time", datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    yield "level", record.levelname.lower()
    yield "logger", record.name
    text = record.getMessage()
    event = EVENT.match(text) if record.name.startswith(OURS) else None
    yield "event", event.group() if event else "message"
    yield from _parts(text[event.end() :].strip() if event else text, split=event is not None)


def _parts(text: str, *, split: bool) -> Iterator[tuple[str, str]]:
    """``key=value`` pairs, and what stands before the first of them. A value ends where the next key begins."""
    keys = list(KEY.finditer(text)) if split else []
    said = text[: keys[0].start()] if keys else text
    if said:
        yield "message", said
    for key, after in zip(keys, [*keys[1:], None], strict=False):
        yield key.group(1), _unquoted(text[key.end() : after.start() if after else len(text)].strip())


def _quoted(value: Any) -> str:
    """As it is when it is one word, else as JSON writes a text."""
    text = str(value)
    return text if PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            pass
    return text
