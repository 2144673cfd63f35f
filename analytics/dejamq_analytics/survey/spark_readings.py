"""The two readings as Spark jobs: of local files by their parts, of files elsewhere as lines that Spark reads."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.broadcast import Broadcast
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from dejamq_analytics.sources import journals as read
from dejamq_analytics.sources.facts import settled
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.survey import chunks, index, keys, look, pick
from dejamq_analytics.survey.chunks import Chunk
from dejamq_analytics.survey.keys import Candidates
from dejamq_analytics.survey.note import Note
from dejamq_analytics.survey.pick import WantedLines

TASKS_A_CORE = 2
TASK_BYTES = 32 << 20
"""Parts are looked at several in a task, and so are small files."""
JUDGED = "keys binary, places binary, messages bigint"
TOGETHER, FEWEST_TASKS = 1_000_000, 4


def readings(spark: SparkSession, journals: Sequence[str], group: str | None) -> "SparkReadings":
    """The best way of reading these journals. Raises BadInput where there are no journals."""
    read.check_journals(journals)
    parts = chunks.cut(journals)
    return OfTexts(read.read_texts(spark, journals), group) if parts is None else OfChunks(spark, parts, group)


@contextmanager
def bad_input_of_tasks() -> Iterator[None]:
    """Raise the BadInput that a task raised: Spark makes an error of its own of it."""
    try:
        yield
    except PythonException as error:
        if told := re.search(rf"\b{BadInput.__name__}: (.+)", str(error)):
            raise BadInput(told[1]) from None
        raise


class FramedTexts(NamedTuple):
    """Lines in a frame of Spark's."""

    lines: DataFrame

    def size(self) -> int:
        row = self.lines.agg(sf.coalesce(sf.sum(sf.octet_length("text")), sf.lit(0)).alias("bytes")).first()
        return int(row.bytes) if row else 0

    def each(self) -> Iterator[tuple[str, str]]:
        return ((row.text, row.file) for row in self.lines.toLocalIterator())

    def frame(self, spark: SparkSession) -> DataFrame:
        return self.lines


class SparkReadings:
    """Both ways to read: how lines are looked at and picked, each tells for itself."""

    _looked: DataFrame
    """What the first reading told, in ``look.COLUMNS``; computed once."""
    _deliveries = 0

    def _look(self) -> DataFrame:
        raise NotImplementedError

    def _pick(self, wanted: WantedLines) -> DataFrame:
        """In ``pick.COLUMNS``."""
        raise NotImplementedError

    @bad_input_of_tasks()
    def first(self) -> list[Note]:
        decode = msgspec.msgpack.Decoder(Note).decode
        self._looked = settled(self._look())
        rows = self._looked.where(sf.col("kind") == look.NOTE).select("data").collect()
        notes = [decode(bytes(row.data)) for row in rows]
        self._deliveries = sum(sum(note.counts.values()) for note in notes)
        return notes

    @bad_input_of_tasks()
    def judged(self, brokers_known: bool) -> list[Candidates]:
        """All entries of a bucket come into one task, with those of about a million deliveries."""
        tasks = min(max(self._deliveries // TOGETHER, FEWEST_TASKS), keys.BUCKETS)
        entries = self._looked.where(sf.col("kind").isin(look.KEYS, look.BUSINESS)).select("kind", "bucket", "data")
        apart = entries.repartition(tasks, "kind", "bucket")
        judged = apart.mapInArrow(_judge(brokers_known), JUDGED).collect()
        return [
            Candidates(np.frombuffer(row["keys"], np.uint64), np.frombuffer(row["places"], np.uint32), row["messages"])
            for row in judged
        ]

    @bad_input_of_tasks()
    def second(self, wanted: WantedLines, *, with_kept: bool) -> FramedTexts:
        found = self._pick(wanted)
        if with_kept:
            kept = self._looked.where(sf.col("kind") == look.LINE).select("text", "file")
            found = kept.unionByName(found)
        return FramedTexts(settled(found))


class OfChunks(SparkReadings):
    """Tasks read the files; the second time only the lines that the index names."""

    def __init__(self, spark: SparkSession, parts: Sequence[Chunk], group: str | None) -> None:
        self._spark, self._parts, self._group = spark, parts, group
        self._bytes = sum(part.end - part.begin for part in parts)

    def _look(self) -> DataFrame:
        cores = self._spark.sparkContext.defaultParallelism
        tasks = min(len(self._parts), max(TASKS_A_CORE * cores, self._bytes // TASK_BYTES))
        numbers = self._spark.range(tasks, numPartitions=tasks)
        return numbers.mapInArrow(look.look_at_chunks(self._parts, tasks, self._group), look.COLUMNS)

    def _pick(self, wanted: WantedLines) -> DataFrame:
        indexes = self._looked.where(sf.col("kind") == look.INDEX).select("data")
        shared = self._spark.sparkContext.broadcast(wanted)
        return indexes.mapInArrow(pick_indexed(partial(_value, shared)), pick.COLUMNS)


class OfTexts(SparkReadings):
    """Spark reads all lines, twice."""

    def __init__(self, texts: DataFrame, group: str | None) -> None:
        self._texts, self._group = texts, group

    def _look(self) -> DataFrame:
        return self._texts.mapInArrow(look.look_at_texts(self._group), look.COLUMNS)

    def _pick(self, wanted: WantedLines) -> DataFrame:
        shared = self._texts.sparkSession.sparkContext.broadcast(wanted)
        return self._texts.mapInArrow(pick.pick_texts(partial(_value, shared)), pick.COLUMNS)


def _judge(brokers_known: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow`` over kind, bucket and entries."""

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        buckets = defaultdict[tuple[str, int], list[bytes]](list)
        for batch in batches:
            for kind, bucket, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                buckets[kind, bucket].append(data)
        for (kind, _), several in buckets.items():
            found = keys.judged(b"".join(several), business=kind == look.BUSINESS, brokers_known=brokers_known)
            row = {"keys": found.keys.tobytes(), "places": found.places.tobytes(), "messages": found.messages}
            yield pa.RecordBatch.from_pydict({name: [value] for name, value in row.items()})

    return judge


def pick_indexed(wanted: Callable[[], WantedLines]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow`` over a column of ``StoredIndex``; ``wanted`` is called where the task runs."""

    def pick_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reasons = pick.Reasons(wanted())
        for batch in batches:
            for data in batch.column(0).to_pylist():
                yield pick.as_batch(index.picked(msgspec.msgpack.decode(data, type=index.StoredIndex), reasons))

    return pick_of


def _value(shared: Broadcast[WantedLines]) -> WantedLines:
    wanted: WantedLines = shared.value
    return wanted
