"""The questions in an address, as values. Whatever cannot be read raises ConfigError, which the page shows."""

import time
from datetime import UTC, datetime

from dejamq_proto.codes import ConfigError
from starlette.requests import Request

from dejamq_cli.console.tables import Wanted
from dejamq_cli.terminal.times import time_ms

MOST = 500
LATEST_US = 253_402_300_799_999_999


def text_of(request: Request, name: str) -> str | None:
    """None where it is not given or empty."""
    return request.query_params.get(name, "").strip() or None


def whole_of(request: Request, name: str, default: int, most: int = MOST) -> int:
    text = text_of(request, name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ConfigError(f"{name} takes a number, not {text!r}")
    return min(int(text), most)


def time_of(request: Request, name: str) -> int | None:
    """In microseconds. A time without a zone is UTC, as the pages write it; the command's other forms are taken too."""
    text = text_of(request, name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        whole = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return min(max(round(whole.timestamp() * 1e6), 0), LATEST_US)
    except (ValueError, OverflowError):
        return time_ms(text, time.time_ns() // 1_000_000, option=name) * 1000


def wanted(request: Request) -> Wanted:
    return Wanted(
        cause=text_of(request, "cause"), group=text_of(request, "group"), topic=text_of(request, "topic"),
        message=text_of(request, "message"), begin_us=time_of(request, "from"), end_us=time_of(request, "to"),
        asked_for=text_of(request, "asked_for") is not None,
    )  # fmt: skip
