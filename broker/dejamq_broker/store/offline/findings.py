"""Findings of verify: one line for each damage, with its place and the repair."""

import os
import sys
from collections.abc import Iterator
from enum import StrEnum

import msgspec

# How the store's commands end: exit statuses, and the last word to a reader that went away.

WHOLE, DAMAGED, BAD_USE, CANNOT_TELL, INTERRUPTED = 0, 1, 2, 3, 130


def close_stdout() -> None:
    """After a broken pipe: bytes that are still buffered go nowhere, and the interpreter's last flush is quiet."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class Severity(StrEnum):
    """DAMAGE: something is lost or wrong. RECOVERS: a kill left it, the next start repairs it. NOTE: worth knowing."""

    DAMAGE = "damage"
    RECOVERS = "recovers"
    NOTE = "note"


class StoreFinding(msgspec.Struct, frozen=True):
    """``kind`` is a short fixed word for programs, ``where`` the file or queue with the place in it."""

    kind: str
    where: str
    what: str
    do: str = ""
    count: int = 1
    severity: Severity = Severity.DAMAGE

    @property
    def text(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        head = {Severity.DAMAGE: "DAMAGED", Severity.RECOVERS: "unfinished", Severity.NOTE: "note"}[self.severity]
        return f"{head}: {self.where}: {self.what}{times}" + (f"; {self.do}" if self.do else "")


class DamageTally:
    """Many damages of one kind in one place become one finding: the first is reported, all are counted."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], StoreFinding] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, finding: StoreFinding, group: str) -> None:
        """``group`` is what the damage is counted with, besides its kind."""
        key = (finding.kind, group)
        self._first.setdefault(key, finding)
        self._counts[key] = self._counts.get(key, 0) + finding.count

    def forget(self, kind: str, group: str) -> None:
        self._first.pop((kind, group), None)
        self._counts.pop((kind, group), None)

    def __iter__(self) -> Iterator[StoreFinding]:
        for key, finding in self._first.items():
            yield msgspec.structs.replace(finding, count=self._counts[key])
