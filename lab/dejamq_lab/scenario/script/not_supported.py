"""The catalogue of causes, and the causes that no scenario shows, with reasons: data in ``not_supported.toml``."""

from collections.abc import Collection
from pathlib import Path

import msgspec

FILE = Path(__file__).with_suffix(".toml")
HIGHEST = {"P": 10, "B": 16, "O": 20, "R": 13, "L": 10}


class UnsupportedCause(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A cause that RocketMQ has, and why it cannot happen here. ``shown_by``: tests that it does not happen."""

    id: str
    title: str
    why: str
    shown_by: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cause: list[UnsupportedCause]


def all_causes() -> list[str]:
    """The ids of every known cause, in the order of the catalogue."""
    ids = [f"{letter}{number}" for letter, highest in HIGHEST.items() for number in range(1, highest + 1)]
    for cause in ("P1b", "B7b"):  # shapes of P1 and B7
        ids.insert(ids.index(cause.rstrip("b")) + 1, cause)
    return ids


def cause_of(scenario: str) -> str:
    """The cause that a scenario of this id shows: ``O7-stuck`` is one of O7."""
    return scenario.partition("-")[0]


def not_supported(scenarios: Collection[str]) -> list[UnsupportedCause]:
    """The causes that these scenarios do not show, in the order of the catalogue."""
    shown, order = {cause_of(scenario) for scenario in scenarios}, all_causes()
    listed = msgspec.toml.decode(FILE.read_bytes(), type=_File).cause
    return sorted((each for each in listed if each.id not in shown), key=lambda each: order.index(each.id))
