"""The two readings as Spark jobs: of local files by their parts, of files elsewhere as lines that Spark reads."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import msgspec
import pyarrow as pa
from pyspark.broadcast import Broadcast
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from dejamq_analytics.sources import journals as read
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.survey import chunks, index, look, pick
from dejamq_analytics.survey.chunks import Chunk
from dejamq_analytics.survey.pick import WantedLines

TASKS_A_CORE = 2
TASK_BYTES = 32 << 20
"""Parts are looked at several in a task, and so are small files."""


class Readings(Protocol):
    """Readings of journals that ``survey`` needs."""

    def first(self) -> DataFrame:
        """The results of ``look``, in its ``COLUMNS``; not computed yet."""

    def second(self, looked: DataFrame, wanted: WantedLines) -> DataFrame:
        """Lines that are wanted, in ``pick.COLUMNS``; ``looked`` is what the first reading told."""


def readings(spark: SparkSession, journals: Sequence[str], group: str | None) -> Readings:
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


class OfChunks:
    """Tasks read the files; the second time only the lines that the index names."""

    def __init__(self, spark: SparkSession, parts: Sequence[Chunk], group: str | None) -> None:
        self._spark, self._parts, self._group = spark, parts, group
        self._bytes = sum(part.end - part.begin for part in parts)

    def first(self) -> DataFrame:
        cores = self._spark.sparkContext.defaultParallelism
        tasks = min(len(self._parts), max(TASKS_A_CORE * cores, self._bytes // TASK_BYTES))
        numbers = self._spark.range(tasks, numPartitions=tasks)
        return numbers.mapInArrow(look.look_at_chunks(self._parts, tasks, self._group), look.COLUMNS)

    def second(self, looked: DataFrame, wanted: WantedLines) -> DataFrame:
        indexes = looked.where(sf.col("kind") == look.INDEX).select("data")
        shared = self._spark.sparkContext.broadcast(wanted)
        return indexes.mapInArrow(pick_indexed(partial(_value, shared)), pick.COLUMNS)


class OfTexts:
    """Spark reads all lines, twice."""

    def __init__(self, texts: DataFrame, group: str | None) -> None:
        self._texts, self._group = texts, group

    def first(self) -> DataFrame:
        return self._texts.mapInArrow(look.look_at_texts(self._group), look.COLUMNS)

    def second(self, looked: DataFrame, wanted: WantedLines) -> DataFrame:
        shared = self._texts.sparkSession.sparkContext.broadcast(wanted)
        return self._texts.mapInArrow(pick.pick_texts(partial(_value, shared)), pick.COLUMNS)


def pick_indexed(wanted: Callable[[], WantedLines]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow`` over a column of ``index.Stored``; ``wanted`` is called where the task runs."""

    def pick_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reasons = pick.Reasons(wanted())
        for batch in batches:
            for data in batch.column(0).to_pylist():
                yield pick.as_batch(taken(msgspec.msgpack.decode(data, type=index.StoredIndex), reasons))

    return pick_of


def taken(stored: index.StoredIndex, reasons: pick.Reasons) -> Iterator[tuple[str, str]]:
    """Of one part of a journal, the texts to take with their file."""
    lines = chunks.read_some(stored.chunk, index.chosen(stored, reasons))
    file = stored.chunk.file
    return pick.Pick(reasons).taken((text, line, file) for text, line in lines)


def _value(shared: Broadcast[WantedLines]) -> WantedLines:
    wanted: WantedLines = shared.value
    return wanted
