"""One process of a foreign cluster: what is known of it, and its journal lines, each with its source."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from dejamq_analytics.evidence.mark import Mark

LEVEL = "logs"
"""The journal level that a process made of logs says it has: below ``forensic``, and none that a journal has."""


@dataclass
class ProcessStep:
    """An event that is not yet a line: of several at one moment ``rank`` says which comes first."""

    at_us: int
    rank: int
    source: str
    within_us: int
    event: dict[str, Any]


@dataclass
class Process:
    """A client, broker or name server. ``has`` names the kinds of evidence there are of it."""

    key: str
    name: str
    role: str
    has: set[str] = field(default_factory=set)
    marks: list[Mark] = field(default_factory=list)
    steps: list[ProcessStep] = field(default_factory=list)
    skew_ms: int | None = None
    known_as: str = ""
    """The boot id by which a broker's journal knows it."""

    @property
    def boot_id(self) -> str:
        """The same in every audit of the same evidence."""
        return self.known_as or hashlib.sha256(self.key.encode()).hexdigest()[:16]

    def add(self, mark: Mark, event: str, /, rank: int = 5, **fields: Any) -> dict[str, Any]:
        """An event that this mark tells; it is given back, to be completed."""
        told = {"event": event, **fields}
        self.steps.append(ProcessStep(mark.at_us, rank, mark.source, mark.within_us, told))
        return told

    def _lines(self) -> Iterator[bytes]:
        """Its journal, numbered in the order of time."""
        for seq, step in enumerate(self.steps, 1):
            envelope = {  # the event first, as in every journal
                "event": step.event["event"], "v": 1, "role": self.role, "process": self.name, "boot_id": self.boot_id,
                "seq": seq, "wall_us": step.at_us, "mono_us": step.at_us,
            }  # fmt: skip
            known = {name: value for name, value in step.event.items() if value is not None}
            yield msgspec.json.encode(envelope | known) + b"\n"

    def _sources(self) -> Iterator[bytes]:
        """Of each line of its journal the file and line that it was made of."""
        for seq, step in enumerate(self.steps, 1):
            told = {
                "boot_id": self.boot_id, "seq": seq, "source": step.source, "within_us": step.within_us,
                "wall_us": step.at_us,
            }  # fmt: skip
            yield msgspec.json.encode(told) + b"\n"

    def write(self, folder: Path, sources: IO[bytes]) -> None:
        """As a journal file, and where its lines come from. The first line says what it was made of."""
        if not self.steps:
            return
        self.steps.sort(key=lambda one: (one.at_us, one.rank))
        first: ProcessStep | Mark = self.steps[0]
        if self.marks and self.marks[0].at_us < first.at_us:
            first = self.marks[0]
        skew = "" if self.skew_ms is None else f" skew_ms={self.skew_ms}"
        reason = f"level={LEVEL} made_of={','.join(sorted(self.has))}{skew}"
        started = {"event": "STATE", "state": "started", "reason": reason}
        self.steps.insert(0, ProcessStep(first.at_us, -1, first.source, first.within_us, started))
        with (folder / f"{self.role}-evidence-{self.boot_id}.jsonl").open("wb") as file:
            file.writelines(self._lines())
        sources.writelines(self._sources())


BROKER_CHANGES = {"registered": ("+", "register"), "unregistered": ("-", "unregister"), "silent": ("-", "expired")}


def name_server(host: str, marks: list[Mark], names: Mapping[str, str]) -> Process:
    """The name server on one machine: which brokers came and went. ``names`` of brokers by their addresses."""
    server = Process(f"namesrv:{host}", host, "namesrv")
    server.has.add("namesrv.log")
    for mark in marks:
        if mark.what in BROKER_CHANGES:
            change, reason = BROKER_CHANGES[mark.what]
            address = mark.said["address"]
            server.add(
                mark, "BROKER", broker_name=names.get(address, address), broker_id=0, address=address, change=change,
                reason=reason,
            )  # fmt: skip
    return server
