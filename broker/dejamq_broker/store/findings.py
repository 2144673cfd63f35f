"""What verify has to say about a store: one line for each damage, with its place and what to do."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """DAMAGE: something is lost or wrong. RECOVERS: a kill left it, the next start repairs it. NOTE: worth knowing."""

    DAMAGE = "damage"
    RECOVERS = "recovers"
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True):
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


class Tally:
    """Many damages of one kind in one place become one finding: the first is told, all are counted."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], Finding] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, finding: Finding, group: str) -> None:
        """``group`` is what the damage is counted with, besides its kind."""
        key = (finding.kind, group)
        self._first.setdefault(key, finding)
        self._counts[key] = self._counts.get(key, 0) + finding.count

    def forget(self, kind: str, group: str) -> None:
        self._first.pop((kind, group), None)
        self._counts.pop((kind, group), None)

    def __iter__(self) -> Iterator[Finding]:
        for key, finding in self._first.items():
            yield msgspec.structs.replace(finding, count=self._counts[key])
