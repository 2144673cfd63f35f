"""Moments as people write them."""

import datetime
import re

from dejamq_proto.codes import ConfigError

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
LATEST_MS = 253_402_300_799_999  # the end of the year 9999
LEAST_EPOCH_MS = 100_000_000_000  # 1973; a smaller number was meant as seconds
FORMS = "a time such as 2026-01-31T12:00, '10m ago', now, or milliseconds since 1970"

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s+ago")


def time_ms(text: str, now_ms: int, *, option: str) -> int:
    """ISO 8601 (local time without a zone), ``10m ago`` (ms s m h d w), ``now``, milliseconds since 1970, or RocketMQ's
    ``2026-01-31#12:00:00:000``. Raises ConfigError, which names the option.

    A time before 1970 is its first millisecond: brokers take a time below 0 for the end, as RocketMQ's do.
    """
    found = _moment_ms(text.strip(), now_ms, option)
    if found > LATEST_MS:
        raise ConfigError(f"{option} takes {FORMS}, not {text!r}")
    return max(1, found)


def _moment_ms(text: str, now_ms: int, option: str) -> int:
    if text == "now":
        return now_ms
    if ago := _AGO.fullmatch(text):
        return now_ms - round(min(float(ago[1]) * UNITS_MS[ago[2]], LATEST_MS))
    if text.isascii() and text.isdigit() and len(text) <= len(str(LATEST_MS)):
        if int(text) < LEAST_EPOCH_MS:
            raise ConfigError(f"{option} {text} would be {int(text) / 1000:g} s after 1970; it takes milliseconds")
        return int(text)
    try:
        if "#" in text:
            return round(datetime.datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f").timestamp() * 1000)
        return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigError(f"{option} takes {FORMS}, not {text!r}") from None
