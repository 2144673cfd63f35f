"""Numbers as they fit into requests: a larger one is bad use, and said before anybody is asked."""

import typer

MOST_32, MOST_64 = (1 << 31) - 1, (1 << 63) - 1
MOST_QUEUES = 100_000
"""In a plan; brokers here give a topic 1,024 at most, RocketMQ's set no limit."""


def number_of(text: str, most: int = MOST_32) -> int | None:
    """A number from 0 to ``most`` in plain digits; None for any other text, endless digits too."""
    fits = text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most
    return int(text) if fits else None


def fits_32(value: int | None) -> int | None:
    """For options and arguments that are numbers of queues, or how many. Raises BadParameter."""
    return _fits(value, MOST_32)


def fits_64(value: int | None) -> int | None:
    """For options and arguments that are places in queues. Raises BadParameter."""
    return _fits(value, MOST_64)


def _fits(value: int | None, most: int) -> int | None:
    if value is not None and value > most:
        raise typer.BadParameter(f"{value} is larger than {most}, the largest that there can be")
    return value
