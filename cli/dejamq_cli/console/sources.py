"""What a console audits: journals, and the evidence of processes that keep none."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

Extent = frozenset[tuple[str, int, int]]


@dataclass(frozen=True)
class Sources:
    """The evidence options of ``dejamq audit``: each names files or folders. ``reading`` are further arguments of it,
    which say how logs and stores are read.
    """

    journals: Sequence[Path] = ()
    stores: Sequence[Path] = ()
    logs: Sequence[Path] = ()
    traces: Sequence[Path] = ()
    evidence: Sequence[Path] = ()
    reading: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.journals or self._foreign)

    @property
    def _foreign(self) -> list[Path]:
        return [*self.stores, *self.logs, *self.traces, *self.evidence]

    @property
    def arguments(self) -> list[str]:
        """As the audit takes them."""
        named = {"--store": self.stores, "--logs": self.logs, "--trace": self.traces, "--evidence": self.evidence}
        options = [f"{name}={path}" for name, paths in named.items() for path in paths]
        return [*map(str, self.journals), *options, *self.reading]

    def extent(self) -> Extent:
        """It changes when there is more to audit. A store's files have their size from the start: their time counts."""
        found = set()
        for path in self._files():
            with suppress(OSError):  # one that is deleted meanwhile
                told = path.stat()
                changed = 0 if path.suffix == ".jsonl" else told.st_mtime_ns
                found.add((str(path), told.st_size, changed))
        return frozenset(found)

    def _files(self) -> Iterator[Path]:
        for journal in self.journals:
            yield from journal.glob("*.jsonl")
        for place in self._foreign:
            yield from (path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
