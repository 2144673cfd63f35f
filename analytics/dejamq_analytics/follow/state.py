"""What a following audit remembers, on disk: one directory a version, made aside and renamed when it is whole.

A crash therefore leaves the version before or the new one, and the new one has both what was read and what is to be
told of it: nothing is told twice and nothing is left out. Two versions are kept.
"""

import shutil
import uuid
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

from dejamq_analytics.follow.chunks import Step

TABLES = ("lines", "processes", "told", "reached")
"""Kept lines, processes, ids that were told, how far groups had come with what was dropped."""
NEWS = ("findings", "anomalies")


class Meta(msgspec.Struct, kw_only=True):
    """``step``: the last chunk that is in. ``newest_us``: the youngest line read; everything up to ``complete_us`` is
    told, everything before ``floor_us`` dropped."""

    schema: int = 1
    run_id: str
    version: int = 0
    step: Step = Step()
    newest_us: int = 0
    complete_us: int = 0
    floor_us: int = 0


class State:
    """Owns the checkpoint directory but for Spark's own part of it. One process at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        for left in directory.glob(".version-*"):
            shutil.rmtree(left)
        versions = self._versions()
        self.meta = Meta(run_id=f"follow-{uuid.uuid4().hex[:12]}")
        if versions:
            self.meta = msgspec.json.decode((versions[-1] / "meta.json").read_bytes(), type=Meta)

    def table(self, spark: SparkSession, name: str) -> DataFrame | None:
        """One of TABLES as the current version has it, None before there is one."""
        if not self.meta.version:
            return None
        return spark.read.parquet((self._path(self.meta.version) / name).resolve().as_uri())

    def write(self, meta: Meta, tables: dict[str, DataFrame]) -> None:
        """The next version. ``meta.version`` names it."""
        aside = self._directory / f".version-{meta.version}"
        for name, table in tables.items():
            table.coalesce(1).write.mode("overwrite").parquet((aside / name).resolve().as_uri())
        (aside / "meta.json").write_bytes(msgspec.json.encode(meta))
        aside.replace(self._path(meta.version))
        self.meta = meta
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
