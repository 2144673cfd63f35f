"""Chunks by a streaming query of Spark: a file source sees each new file of the spool once."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from dejamq_analytics.follow.follower import Follower
from dejamq_analytics.sources.paths import to_spark, to_stream
from dejamq_analytics.sources.schema import UNREADABLE, journal_schema


class NotTaken(Exception):
    """A batch was not taken."""


class Streamed:
    """A ``Taker``. Spark calls the follower in a thread of its own and keeps its place in ``checkpoint``."""

    def __init__(self, spark: SparkSession, spool: Path, checkpoint: Path, follower: Follower, every_ms: int) -> None:
        self._follower = follower
        self._failed: Exception | None = None
        reader = spark.readStream.schema(journal_schema()).option("columnNameOfCorruptRecord", UNREADABLE)
        chunks = reader.option("encoding", "UTF-8").option("lineSep", "\n").option("maxFilesPerTrigger", 1)
        lines = chunks.json(to_stream(spool)).withColumn("file", sf.col("_metadata.file_name"))
        writer = lines.writeStream.foreachBatch(self._take).trigger(processingTime=f"{every_ms} milliseconds")
        self._query = writer.option("checkpointLocation", to_spark(checkpoint)).start()

    def _take(self, batch: DataFrame, number: int) -> None:
        """``foreachBatch``. Raises NotTaken, and keeps its cause: Spark searches the whole text of an error by a
        pattern, and its stack overflows with a text as long as Java's.
        """
        try:
            self._follower.take(batch)
        except Exception as error:
            self._failed = error
            raise NotTaken(type(error).__name__) from None

    def look(self) -> None:
        if self._query.isActive:
            return
        if self._failed is not None:
            raise self._failed
        self._query.awaitTermination()
        raise NotTaken("the streaming query ended by itself")

    def settle(self) -> None:
        self._query.processAllAvailable()

    def stop(self) -> None:
        self._query.stop()
