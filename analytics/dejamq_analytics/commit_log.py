"""Reads the commit logs of store directories, ours or a real RocketMQ's, as a DataFrame.

Each file of a commit log is one Spark partition, since records never cross files. Reading a file stops at the first
bytes that are no record (the blank, the unwritten rest, or damage): an audit reads what is there and repairs nothing.
"""

import mmap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from dejamq_proto.names import (
    PROPERTY_KEYS,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
)
from dejamq_proto.record import I32, BadRecord, Record, decode
from pyspark.sql import DataFrame, SparkSession

from dejamq_analytics.read import BadInput, local_path

RECORD_SCHEMA = (
    "store string, topic string, queue_id bigint, queue_offset bigint, log_offset bigint, store_size bigint, "
    "unique_key string, keys string, tags string, business_key string, reconsume_times bigint, "
    "origin_message_id string, retry_topic string, real_topic string, store_timestamp_ms bigint, sys_flag bigint, "
    "store_host string"
)
BATCH = 4096


def read_records(spark: SparkSession, stores: Sequence[str], business_key: str | None = None) -> DataFrame:
    """All records of these stores, in ``RECORD_SCHEMA``. Raises BadInput for a directory that is no store."""
    files = [(str(store), str(file)) for store in stores for file in _log_files(str(store))]
    if not files:
        return spark.createDataFrame([], RECORD_SCHEMA)
    named = spark.createDataFrame(files, "store string, file string").repartition(min(len(files), 64))

    def decoded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from decode_file(Path(row["file"]), row["store"], business_key)

    return named.mapInArrow(decoded, RECORD_SCHEMA)


def _log_files(store: str) -> list[Path]:
    folder = local_path(store)
    if folder is None:
        raise BadInput(
            f"a store must be a local directory, {store} is not; audit it where it is, or copy its commitlog/"
        )
    log = folder / "commitlog"
    if not log.is_dir():
        raise BadInput(f"no store in {store}: a store directory has a folder commitlog/")
    return sorted(file.resolve() for file in log.iterdir() if file.name.isdigit() and file.stat().st_size)


def decode_file(path: Path, store: str, business_key: str | None = None) -> Iterator[pa.RecordBatch]:
    """Arrow batches of the records of one commit log file."""
    schema = arrow_schema()
    rows: list[dict[str, object]] = []
    for record, size in scan(path):
        rows.append(_row(record, size, store, business_key))
        if len(rows) == BATCH:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            rows = []
    yield pa.RecordBatch.from_pylist(rows, schema=schema)


def scan(path: Path) -> Iterator[tuple[Record, int]]:
    """Records and their sizes up to the first bytes that are none."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        at = 0
        while at + I32.size <= len(mapped):
            size = I32.unpack_from(mapped, at)[0]
            try:
                record = decode(mapped[at : at + max(size, 0)])
            except BadRecord:  # a blank, zeros or damage: nothing after it can be trusted to be a record's start
                return
            yield record, size
            at += size


def _row(record: Record, size: int, store: str, business_key: str | None) -> dict[str, object]:
    properties = record.properties
    return {
        "store": store,
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "log_offset": record.log_offset,
        "store_size": size,
        "unique_key": properties.get(PROPERTY_UNIQUE_KEY),
        "keys": properties.get(PROPERTY_KEYS),
        "tags": properties.get(PROPERTY_TAGS),
        "business_key": properties.get(business_key) if business_key else None,
        "reconsume_times": record.reconsume_times,
        "origin_message_id": properties.get(PROPERTY_ORIGIN_MESSAGE_ID),
        "retry_topic": properties.get(PROPERTY_RETRY_TOPIC),
        "real_topic": properties.get(PROPERTY_REAL_TOPIC),
        "store_timestamp_ms": record.store_timestamp_ms,
        "sys_flag": record.sys_flag,
        "store_host": f"{record.store_host[0]}:{record.store_host[1]}",
    }


def arrow_schema() -> pa.Schema:
    kinds: dict[str, pa.DataType] = {"string": pa.string(), "bigint": pa.int64()}
    fields = [field.split(" ") for field in RECORD_SCHEMA.split(", ")]
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in fields])
