"""Numbers as they fit into requests: a larger one is bad use, and said before anybody is asked."""

import re

import typer
from dejamq_proto.codes import ConfigError
from dejamq_proto.texts import MOST_32, MOST_64

_SIZE = re.compile(r"([0-9]{1,15})\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)

MOST_QUEUES = 100_000
"""In a plan; brokers here give a topic 1,024 at most, RocketMQ's set no limit."""


def fits_32(value: int | None) -> int | None:
    """For options and arguments that are numbers of queues, or how many. Raises BadParameter."""
    return _fits(value, MOST_32)


def fits_64(value: int | None) -> int | None:
    """For options and arguments that are places in queues. Raises BadParameter."""
    return _fits(value, MOST_64)


def bytes_of(text: str, *, option: str) -> int:
    """A size such as 500MB or 2G, in steps of 1024. Raises ConfigError, which names the option."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{option} takes a size such as 500MB or 2GB, not {text!r}")
    return int(found[1]) << 10 * " KMGT".index(found[2].upper() or " ")


def _fits(value: int | None, most: int) -> int | None:
    if value is not None and value > most:
        raise typer.BadParameter(f"{value} is larger than {most}, the largest that there can be")
    return value
