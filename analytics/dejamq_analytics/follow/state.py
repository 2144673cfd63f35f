"""Memory of a following audit, on disk: one directory a version, made aside and renamed when it is whole.

So a crash leaves the version before or the new one. The new one has the lines that were read and the findings to report
of them, so nothing is reported twice and nothing is left out. Two versions are kept.
"""

import shutil
import uuid
from pathlib import Path
from typing import Any, cast

import msgspec
from dejamq_proto.loose_json import BAD_JSON

from dejamq_analytics.follow.chunks import ChunkStep
from dejamq_analytics.follow.parts import PartRange, Parts
from dejamq_analytics.frames import DataFrame, SparkSession, in_duckdb
from dejamq_analytics.report.write import write_parquet
from dejamq_analytics.sources.paths import BadInput, reader, to_spark

TABLES = ("standing", "processes", "told", "reached")
"""Lines older than all ``parts`` that still hold, processes, ids that were told, how far groups had come with what was
dropped."""
ADOPTED = 1
"""The number of a part that an older version of this program kept as one table; no other part has it."""
NEWS = ("findings", "anomalies")


class Meta(msgspec.Struct, kw_only=True):
    """``step``: the last chunk that is in. ``newest_us``: the youngest line read; everything up to ``complete_us`` is
    told, parts before ``floor_us`` are dropped. ``parts`` have the lines that are kept, the oldest first.
    ``shared``: topics with the groups of which it is told that another group had the topic's messages as well (L9).
    ``told``, the table, has what is not older than ``told_us``; older things are never told.
    """

    schema: int = 1
    run_id: str
    version: int = 0
    step: ChunkStep = ChunkStep()
    newest_us: int = 0
    complete_us: int = 0
    floor_us: int = 0
    parts: list[PartRange] = []
    shared: list[tuple[str, str]] = []
    told_us: int = 0


def _read(path: Path) -> Meta:
    """Raises BadInput: without it nobody knows what was told."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Meta)
    except (OSError, *BAD_JSON) as error:
        text = f"the state of --follow in {path} cannot be read ({error}): move {path.parent} away to go on with the"
        raise BadInput(f"{text} version before it, and {path.parent.parent} to begin anew") from None


class FollowState:
    """Owns the checkpoint directory but for the spool and Spark's own part of it. One process at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        for left in directory.glob(".version-*"):
            shutil.rmtree(left)
        versions = self._versions()
        self.meta = Meta(run_id=f"follow-{uuid.uuid4().hex[:12]}")
        if versions:
            self.meta = _read(versions[-1] / "meta.json")
        self.parts = Parts(directory / "lines")
        self.parts.keep_only(self.meta.parts)
        if versions and (versions[-1] / "lines").is_dir():
            self.parts.adopt(ADOPTED, versions[-1] / "lines")
            self.meta.parts = [PartRange(ADOPTED, self.meta.floor_us, self.meta.newest_us)]
            self.meta.told_us = self.meta.floor_us

    def table(self, spark: SparkSession, name: str) -> DataFrame | None:
        """One of TABLES as the current version has it, None where it has none."""
        folder = self._path(self.meta.version) / name
        if not folder.is_dir():
            return None
        if in_duckdb():
            frame: DataFrame = cast(Any, spark).read_parquet(folder)
            return frame
        return reader(spark, [folder]).parquet(to_spark(folder))

    def write(self, meta: Meta, tables: dict[str, DataFrame]) -> None:
        """The next version. ``meta.version`` names it."""
        aside = self._directory / f".version-{meta.version}"
        for name, table in tables.items():
            write_parquet(table, aside / name)
        (aside / "meta.json").write_bytes(msgspec.json.encode(meta))
        aside.replace(self._path(meta.version))
        self.meta = meta
        self.parts.keep_only(meta.parts)
        for old in self._versions()[:-2]:
            shutil.rmtree(old)

    def publish(self, out: Path) -> list[Path]:
        """Put the version's news into the tables of ``out``, if they are not there; those that were put now."""
        put = []
        for name in NEWS:
            folder = out / name / f"run_id={self.meta.run_id}"
            target = folder / f"part-{self.meta.version:012d}.parquet"
            parts = sorted((self._path(self.meta.version) / name).glob("part-*.parquet"))
            if target.exists() or not parts:
                continue
            folder.mkdir(parents=True, exist_ok=True)
            aside = folder / f".{target.name}.tmp"
            shutil.copyfile(parts[0], aside)
            aside.replace(target)
            put.append(target)
        return put

    def _path(self, version: int) -> Path:
        return self._directory / f"version-{version:012d}"

    def _versions(self) -> list[Path]:
        return sorted(self._directory.glob("version-*"))
