"""Lines that a following audit keeps, in parts: what one step read is written once, and later steps only read it.

A part is a directory of one Parquet file. The state's ``meta`` names the parts that count; others are of a crash, and
go at the next start. Parts of one level are joined when there are many, so that there are few of them whatever
the pace. Under DuckDB their lines stay in memory too.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from dejamq_analytics.follow import entries
from dejamq_analytics.frames import DataFrame, SparkSession, in_duckdb
from dejamq_analytics.report.write import write_parquet
from dejamq_analytics.rules.joins import united
from dejamq_analytics.sources.facts import settled
from dejamq_analytics.sources.journals import no_lines
from dejamq_analytics.sources.paths import reader, to_spark

TOGETHER = 8
"""So many parts of one level become one of the next."""
HIGHEST_LEVEL = 2


class PartRange(msgspec.Struct, frozen=True):
    """A part by its number, and the times of its lines."""

    number: int
    first_us: int
    last_us: int
    level: int = 0


class Part(NamedTuple):
    """All ``lines`` of one part, those of them that are about no message, and what each message is about."""

    number: int
    lines: DataFrame
    context: DataFrame
    entries: DataFrame


class Parts:
    """Owns the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[int, Part] = {}

    def of(self, spark: SparkSession, ranges: Sequence[PartRange]) -> list[Part]:
        """These parts, the oldest first."""
        return [self._known.get(one.number) or self._read(spark, one.number) for one in ranges]

    def write(self, number: int, lines: DataFrame) -> Part:
        """A new part; ``lines`` are kept already. It counts when ``meta`` names it."""
        write_parquet(lines, self._path(number))
        return self._remembered(number, lines)

    def grouped(self, spark: SparkSession, ranges: list[PartRange], number: int) -> list[PartRange]:
        """The same lines in fewer parts where many of one level are there; ``number`` is that of a new part."""
        for level in range(HIGHEST_LEVEL):
            same = [one for one in ranges if one.level == level]
            if len(same) < TOGETHER:
                continue
            self.write(number, settled(united([part.lines for part in self.of(spark, same)])))
            whole = PartRange(
                number, min(one.first_us for one in same), max(one.last_us for one in same), level + 1
            )  # fmt: skip
            return [*(one for one in ranges if one.level > level), whole, *(one for one in ranges if one.level < level)]
        return ranges

    def keep_only(self, ranges: Sequence[PartRange]) -> None:
        """Remove all others."""
        kept = {one.number for one in ranges}
        self._known = {number: part for number, part in self._known.items() if number in kept}
        for path in self._directory.glob("*"):
            if not path.name.isdecimal() or int(path.name) not in kept:
                shutil.rmtree(path)

    def adopt(self, number: int, folder: Path) -> None:
        """Lines that an older version of this program kept in one table."""
        shutil.copytree(folder, self._path(number))

    def _read(self, spark: SparkSession, number: int) -> Part:
        """It may be of a version whose events had fewer fields: these are then as where a line has none."""
        folder = self._path(number)
        if in_duckdb():
            lines: DataFrame = cast(Any, spark).read_parquet(folder)
        else:
            lines = reader(spark, [folder]).parquet(to_spark(folder))
        return self._remembered(number, united([no_lines(spark), lines]))

    def _remembered(self, number: int, lines: DataFrame) -> Part:
        if not in_duckdb():
            return _part(number, lines)
        part = _part(number, lines)
        self._known[number] = Part(number, settled(lines), settled(part.context), settled(part.entries))
        return self._known[number]

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:012d}"


def _part(number: int, lines: DataFrame) -> Part:
    return Part(number, lines, entries.about_no_message(lines), entries.entries(lines))
