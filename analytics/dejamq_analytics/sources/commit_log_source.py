"""Commit logs as a Spark Python data source: each file is a partition, since records never cross files."""

from collections.abc import Iterator, MutableMapping, Sequence

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dejamq_analytics.sources.commit_log import RECORD_SCHEMA, LogFile, decode_file


class CommitLogSource(DataSource):
    """Spark's format ``dejamq_commit_log``. Options: ``files``, JSON of ``LogFile`` pairs, and ``business_key``."""

    @classmethod
    def name(cls) -> str:
        return "dejamq_commit_log"

    def schema(self) -> str:
        return RECORD_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return CommitLogReader(self.options)


class CommitLogReader(DataSourceReader):
    """Each file is a partition, read where Spark runs the task: executors see the stores at the same paths."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._files = msgspec.json.decode(options["files"], type=list[LogFile])
        self._business_key = options.get("business_key")

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(tuple(file)) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return decode_file(LogFile(*partition.value), self._business_key)


def load(spark: SparkSession, files: Sequence[LogFile], business_key: str | None) -> DataFrame:
    """All records of these files, and a row for each that is damaged."""
    _register(spark)
    reader = spark.read.format(CommitLogSource.name()).option("files", msgspec.json.encode(files).decode())
    return (reader.option("business_key", business_key) if business_key else reader).load()


def _register(spark: SparkSession) -> None:
    """Once a session: Spark refuses a second time."""
    try:
        spark.dataSource.register(CommitLogSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
