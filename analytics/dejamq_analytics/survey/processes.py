"""The two readings by processes of this machine, without Java. A task is a part of a journal, and what it tells waits
in files for the next step: so memory does not grow with the journals.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from pickle import dumps, loads
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dejamq_analytics.frames import DataFrame, SparkSession
from dejamq_analytics.sources.paths import to_spark
from dejamq_analytics.sources.pool import each, pool_for
from dejamq_analytics.survey import index, keys, look, pick
from dejamq_analytics.survey.chunks import Chunk
from dejamq_analytics.survey.keys import Candidates
from dejamq_analytics.survey.note import Note
from dejamq_analytics.survey.pick import Reasons, WantedLines

KEPT = "kept"


@contextmanager
def in_processes(folder: Path, parts: Sequence[Chunk], group: str | None) -> Iterator["InProcesses"]:
    """Readings of these parts. ``folder`` is empty, and keeps the texts that they gave when the block has ended.

    Raises ChildProcessError when a process is killed.
    """
    with pool_for(len(parts)) as pool:
        yield InProcesses(pool, folder, parts, group)


class StoredTexts(NamedTuple):
    """Lines in Parquet files."""

    files: list[Path]

    def size(self) -> int:
        known = [pq.read_metadata(file) for file in self.files]
        groups = [one.row_group(number) for one in known for number in range(one.num_row_groups)]
        return sum(group.column(0).total_uncompressed_size for group in groups)

    def each(self) -> Iterator[tuple[str, str]]:
        for file in self.files:
            text, name = pq.read_table(file).columns
            yield from zip(text.to_pylist(), name.to_pylist(), strict=True)

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.read.schema(pick.COLUMNS).parquet(*map(to_spark, self.files))


class InProcesses:
    """Readings of local journals by the processes of a pool, with a folder for what they tell one another."""

    def __init__(self, pool: Executor, folder: Path, parts: Sequence[Chunk], group: str | None) -> None:
        self._pool, self._folder, self._parts, self._group = pool, folder, parts, group
        self._picks = 0

    def first(self) -> list[Note]:
        told = each(self._pool, partial(look_at, self._folder, self._group), [*enumerate(self._parts)])
        return [msgspec.msgpack.decode(note, type=Note) for note in told]

    def judged(self, brokers_known: bool) -> Iterable[Candidates]:
        buckets = defaultdict[str, list[Path]](list)
        for file in self._folder.glob("*.entries"):
            buckets[file.name.rpartition("-")[0]].append(file)
        return each(self._pool, partial(judge, brokers_known), [*buckets.values()])

    def second(self, wanted: WantedLines, *, with_kept: bool) -> StoredTexts:
        self._picks += 1
        asked = self._folder / f"wanted-{self._picks}"
        asked.write_bytes(dumps(wanted))
        each(self._pool, partial(pick_from, asked), [*self._folder.glob("*.index")])
        names = [asked.name, KEPT] if with_kept else [asked.name]
        return StoredTexts([file for name in names for file in sorted(self._folder.glob(f"{name}-*.parquet"))])


def look_at(folder: Path, group: str | None, numbered: tuple[int, Chunk]) -> bytes:
    """A task of the first reading: its note. Everything else it leaves in the folder."""
    number, part = numbered
    told = pa.Table.from_batches(look.of_chunk(part, group))
    _store(told.filter(pc.field("kind") == look.LINE).select(pick.SCHEMA.names), folder / f"{KEPT}-{number}.parquet")
    note = b""
    for kind, bucket, data in zip(*(told[name].to_pylist() for name in ("kind", "bucket", "data")), strict=True):
        if kind in (look.KEYS, look.BUSINESS):
            with (folder / f"{kind}-{bucket}-{os.getpid()}.entries").open("ab") as entries:
                entries.write(data)
        elif kind == look.INDEX:
            (folder / f"{number}.index").write_bytes(data)
        elif kind == look.NOTE:
            note = data
    return note


def judge(brokers_known: bool, files: Sequence[Path]) -> Candidates:
    """Of a bucket, whose entries these files have. They are no longer needed."""
    data = b"".join(file.read_bytes() for file in files)
    for file in files:
        file.unlink()
    return keys.judged(data, business=files[0].name.startswith(look.BUSINESS), brokers_known=brokers_known)


def pick_from(asked: Path, stored: Path) -> None:
    """A task of the second reading, by the index that the first one left."""
    texts = index.picked(msgspec.msgpack.decode(stored.read_bytes(), type=index.StoredIndex), _reasons(asked))
    _store(pa.Table.from_batches([pick.as_batch(texts)]), asked.with_name(f"{asked.name}-{stored.stem}.parquet"))


@lru_cache(1)
def _reasons(asked: Path) -> Reasons:
    wanted: WantedLines = loads(asked.read_bytes())
    return Reasons(wanted)


def _store(texts: pa.Table, file: Path) -> None:
    if texts.num_rows:
        pq.write_table(texts, file, use_dictionary=["file"])
