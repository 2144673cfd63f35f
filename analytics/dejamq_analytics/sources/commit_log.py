"""The files of a commit log, ours or a real RocketMQ's, record by record.

Reading a file stops at the first bytes that are no record (the blank, the unwritten rest, or damage): an audit reads
what is there and repairs nothing.
Where it stopped at damage, a row without a topic says so.
"""

import mmap
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from dejamq_proto.names import (
    OP_TOPIC,
    PROPERTY_CHECK_TIMES,
    PROPERTY_KEYS,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_REPLAY_OF,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
)
from dejamq_proto.records.record import I32, MAGIC_BLANK, PAIR, BadRecord, Record, decode

from dejamq_analytics.sources.paths import BadInput, local_path

RECORD_SCHEMA = (
    "store string, topic string, queue_id bigint, queue_offset bigint, log_offset bigint, store_size bigint, "
    "unique_key string, keys string, tags string, business_key string, reconsume_times bigint, "
    "origin_message_id string, retry_topic string, real_topic string, store_timestamp_ms bigint, sys_flag bigint, "
    "store_host string, prepared_offset bigint, check_times bigint, replay_of string, marked string, "
    "body_crc bigint, stopped_at bigint, file string"
)
"""``marked``: of an op message, the queue offsets of the half messages that have ended. ``stopped_at``: the
log offset of damage; such a row has only ``store`` and ``file`` besides."""
BATCH = 4096


class LogFile(NamedTuple):
    """One file of a store's commit log, named after the log offset it begins at."""

    store: str
    path: str


def log_files(store: str) -> list[Path]:
    """The commit log's files in their order. Raises BadInput for a directory that is no store."""
    folder = local_path(store)
    if folder is None:
        raise BadInput(
            f"a store must be a local directory, {store} is not; audit it where it is, or copy its commitlog/"
        )
    log = folder / "commitlog"
    if not log.is_dir():
        raise BadInput(f"no store in {store}: a store directory has a folder commitlog/")
    return sorted(file.resolve() for file in log.iterdir() if file.name.isdigit() and file.stat().st_size)


def log_bytes(stores: Sequence[str]) -> int:
    """The size of these logs on disk: a file is made in its full size and written bit by bit."""
    return sum(file.stat().st_blocks * 512 for store in stores for file in log_files(str(store)))


def decode_file(file: LogFile, business_key: str | None = None) -> Iterator[pa.RecordBatch]:
    """Arrow batches of the rows of one commit log file."""
    schema, rows = arrow_schema(), rows_of(file, business_key)
    while some := [*islice(rows, BATCH)]:
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def rows_of(file: LogFile, business_key: str | None = None) -> Iterator[dict[str, Any]]:
    """The records of one commit log file, and the damage behind them if there is any."""
    end = 0
    for record, size in scan(Path(file.path)):
        yield _row(record, size, file, business_key)
        end += size
    if is_damaged(Path(file.path), end):
        yield {"store": file.store, "file": file.path, "stopped_at": int(Path(file.path).name) + end}


def scan(path: Path) -> Iterator[tuple[Record, int]]:
    """Records and their sizes up to the first bytes that are no record."""
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


def is_damaged(path: Path, end: int) -> bool:
    """Whether what stands at ``end``, behind the last record, is neither the file's end, a blank, nor unwritten."""
    with path.open("rb") as file:
        file.seek(end)
        following = file.read(PAIR.size)
    if len(following) < PAIR.size:
        return any(following)
    return PAIR.unpack(following)[1] != MAGIC_BLANK and any(following)


def blank_at(path: Path, end: int) -> int:
    """The size of the blank that stands at ``end`` and fills the rest of the file; 0 where there is none."""
    with path.open("rb") as file:
        file.seek(end)
        following = file.read(PAIR.size)
    if len(following) < PAIR.size:
        return 0
    size, magic = PAIR.unpack(following)
    return int(size) if magic == MAGIC_BLANK else 0


def _row(record: Record, size: int, file: LogFile, business_key: str | None) -> dict[str, Any]:
    properties = record.properties
    return {
        "store": file.store,
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
        "prepared_offset": record.prepared_transaction_offset,
        "check_times": _number(properties.get(PROPERTY_CHECK_TIMES)),
        "replay_of": properties.get(PROPERTY_REPLAY_OF),
        "marked": record.body.decode("ascii", "replace") if record.topic == OP_TOPIC else None,
        "body_crc": record.body_crc,
        "stopped_at": None,
        "file": file.path,
    }


def _number(text: str | None) -> int:
    """A property's number, as RocketMQ writes it; 0 for anything else: a log may hold what strangers wrote."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else 0


def arrow_schema() -> pa.Schema:
    kinds: dict[str, pa.DataType] = {"string": pa.string(), "bigint": pa.int64()}
    fields = [field.split(" ") for field in RECORD_SCHEMA.split(", ")]
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in fields])
