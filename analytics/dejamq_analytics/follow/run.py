"""The following audit as a process: a chunker, a streaming query, and the loop between them."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from dejamq_analytics.follow.chunks import Chunker
from dejamq_analytics.follow.follower import Follower, Pace
from dejamq_analytics.follow.state import State
from dejamq_analytics.read import BadInput, check_journals, local_path
from dejamq_analytics.schema import UNREADABLE, journal_schema

LOOK_MS = 500
Tell = Callable[[Path], None]


class Following(NamedTuple):
    """``out`` gets ``findings/`` and ``anomalies/`` of one run, and ``checkpoint/``, where a later start goes on."""

    journals: Sequence[Path]
    out: Path
    pace: Pace


def folders(journals: Sequence[str]) -> list[Path]:
    """Local directories only: what grows is read by its bytes. Raises BadInput."""
    check_journals(journals)
    paths = [local_path(journal) for journal in journals]
    for path, name in zip(paths, journals, strict=True):
        if path is None or not path.is_dir():
            raise BadInput(f"--follow reads directories of this machine, not {name}")
    return [path for path in paths if path is not None]


class Follow:
    """A running one. ``with Follow(…) as running``; ``step`` again and again, or ``forever``."""

    def __init__(self, spark: SparkSession, what: Following, tell: Tell) -> None:
        checkpoint = what.out / "checkpoint"
        self._spark, self._spool, self._spark_files = spark, checkpoint / "chunks", checkpoint / "spark"
        self._state = State(checkpoint / "state")
        self._chunker = Chunker(
            what.journals, self._spool, self._state.meta.step, quiet_ms=what.pace.delay_us // 1000
        )  # fmt: skip
        self._follower = Follower(self._state, what.out, what.pace, tell)
        self._query: StreamingQuery | None = None

    @property
    def run_id(self) -> str:
        """One run for as long as the checkpoint lives."""
        return self._state.meta.run_id

    def __enter__(self) -> "Follow":
        self._follower.publish()
        reader = self._spark.readStream.schema(journal_schema()).option("columnNameOfCorruptRecord", UNREADABLE)
        chunks = reader.option("encoding", "UTF-8").option("lineSep", "\n").option("maxFilesPerTrigger", 1)
        lines = chunks.json(self._spool.resolve().as_uri()).withColumn("file", sf.col("_metadata.file_name"))
        writer = lines.writeStream.foreachBatch(self._follower.take).trigger(processingTime=f"{LOOK_MS} milliseconds")
        self._query = writer.option("checkpointLocation", self._spark_files.resolve().as_uri()).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._query is not None:
            self._query.stop()

    def step(self, now_ms: int) -> bool:
        """Make the next chunk if it is time to; whether there was something new."""
        return self._chunker.advance(self._state.meta.step.number, now_ms)

    def settle(self) -> None:
        """Wait until every chunk is taken. Raises what the query failed with."""
        assert self._query is not None
        self._query.processAllAvailable()

    def forever(self) -> None:
        """Until Ctrl-C, or until the query fails: then raises why."""
        assert self._query is not None
        while self._query.isActive:
            self.step(time.monotonic_ns() // 1_000_000)
            time.sleep(LOOK_MS / 1000)
        if self._follower.failed is not None:
            raise self._follower.failed
        self._query.awaitTermination()
