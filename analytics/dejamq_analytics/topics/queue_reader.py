"""The rows of a part of a queue. Each message once, in order; what is not there any more is an error or is passed over.

A queue's offsets have no holes, so a hole is a loss: messages whose retention was over, or that a broker lost.
"""

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from dejamq_proto.codes import DejamqError
from dejamq_proto.names import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQUE_KEY
from dejamq_proto.records.compression import BadCompression, decompress
from dejamq_proto.records.hosts import host_text
from dejamq_proto.records.record import BadRecord, Record, decode_each

from dejamq_analytics.topics.cluster import ServerConnections
from dejamq_analytics.topics.options import ReadOptions
from dejamq_analytics.topics.places import Piece, TopicQueue

COLUMNS = {
    "topic": "string", "broker_name": "string", "queue_id": "int", "queue_offset": "bigint", "message_id": "string",
    "keys": "string", "tags": "string", "body": "binary", "properties": "map<string,string>", "reconsume_times": "int",
    "born_timestamp": "timestamp", "born_host": "string", "store_timestamp": "timestamp", "offset_message_id": "string",
}  # fmt: skip
Row = tuple[Any, ...]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
POLL_S = 0.1
log = logging.getLogger("dejamq.topics")


class DataLost(DejamqError):
    """Messages that were to be read are not there, and ``failOnDataLoss`` is true."""


class LossPolicy:
    """What is done about messages that are not there: an error, or a line in the log."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail

    def tell(self, queue: TopicQueue, what: str) -> None:
        """Raises DataLost."""
        if self._fail:
            raise DataLost(f"{queue}: {what}. failOnDataLoss=false goes on without them")
        log.warning("data lost: %s: %s", queue, what)


def rows(cluster: ServerConnections, piece: Piece, options: ReadOptions) -> Iterator[Row]:
    """Raises DataLost, and DejamqError for a broker that refuses or stays silent."""
    loss = LossPolicy(fail=options.fail_on_data_loss)
    first, end = _inside(cluster, piece, loss)
    reading = _Reading(cluster, Piece(piece.queue, first, end), loss, options.patience_s)
    while reading.place < end:
        yield from reading.next_rows()


def _inside(cluster: ServerConnections, piece: Piece, loss: LossPolicy) -> tuple[int, int]:
    """The part that the queue still has."""
    queue, start, end = piece
    low, high, of_master = cluster.ends([queue])[queue]
    if low > start:
        loss.tell(queue, f"messages {start} to {min(low, end) - 1} are gone, as it begins at {low} now")
    if high < end and of_master:
        loss.tell(queue, f"it ends at {high}, before {end}: its broker lost messages, or the topic was made again")
        end = high
    return max(low, start), end


class _Reading:
    """Pulls one after the other. ``place`` is the next offset that a row is wanted of."""

    def __init__(self, cluster: ServerConnections, piece: Piece, loss: LossPolicy, patience_s: float) -> None:
        self._cluster, self._queue, self._end, self._loss = cluster, piece.queue, piece.end, loss
        self._patience_s = patience_s
        self._progress_s = time.monotonic()
        self.place = piece.start

    def next_rows(self) -> Iterator[Row]:
        """Those of one pull. Without any, ``place`` may go on all the same, or it is waited for a moment."""
        before = self.place
        pulled = self._cluster.pull(self._queue, before, self._end - before)
        if pulled.found:
            yield from self._of(pulled.records)
        self._skip_to(pulled.next, "the broker passes over them")
        if self.place > before:
            self._progress_s = time.monotonic()
        elif time.monotonic() - self._progress_s > self._patience_s:
            raise DejamqError(f"{self._queue}: nothing came of {before} to {self._end - 1} for {self._patience_s:g} s")
        else:
            self._cluster.wait(POLL_S)

    def _of(self, records: bytes) -> Iterator[Row]:
        try:
            for record in decode_each(records):
                if record.queue_offset < self.place:
                    continue
                self._skip_to(record.queue_offset, "they are missing")
                if self.place == self._end:
                    return
                row = self._readable(record)
                self.place += 1
                if row is not None:
                    yield row
        except BadRecord as error:
            self._loss.tell(self._queue, f"what comes from {self.place} is no message: {error}")

    def _skip_to(self, offset: int, why: str) -> None:
        if offset > self.place and self.place < self._end:
            to = min(offset, self._end)
            self._loss.tell(self._queue, f"messages {self.place} to {to - 1} are gone: {why}")
            self.place = to

    def _readable(self, record: Record) -> Row | None:
        try:
            return row_of(record, self._queue.broker_name)
        except BadCompression as error:
            self._loss.tell(self._queue, f"the body of message {record.queue_offset} cannot be read: {error}")
            return None


def row_of(record: Record, broker_name: str) -> Row:
    """In the order of ``COLUMNS``. Raises BadCompression."""
    properties = record.properties
    message_id = properties.get(PROPERTY_UNIQUE_KEY) or record.offset_message_id
    return (
        record.topic, broker_name, record.queue_id, record.queue_offset, message_id, properties.get(PROPERTY_KEYS),
        properties.get(PROPERTY_TAGS), decompress(record.body, record.sys_flag), properties, record.reconsume_times,
        moment(record.born_timestamp_ms), host_text(record.born_host), moment(record.store_timestamp_ms),
        record.offset_message_id,
    )  # fmt: skip


def moment(unix_ms: int) -> datetime | None:
    """None for a time that no calendar has: producers say when a message was born, and may say anything."""
    try:
        return EPOCH + timedelta(milliseconds=unix_ms)
    except OverflowError:
        return None
