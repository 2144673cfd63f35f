"""The messages of the log that count for windows: what a start builds them from, and what a first message must be."""

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
from dejamq_proto import names
from dejamq_proto.records.record import SYS_TRANSACTION_MASK, Record, decode
from dejamq_proto.texts import MOST_32, number_of

from dejamq_broker.dedup.ids import Hashes, hashes_of, id_of
from dejamq_broker.store.log.record_texts import topics_of
from dejamq_broker.store.log.scan import FoundRecords

WAITING_TOPICS = (names.SCHEDULE_TOPIC, names.TIMER_TOPIC)
"""A message waits there for its time. It counts for the topic that it is for; its delivery is no other message."""
ANY_ID = b"DEDUP_"
COPIES = (names.PROPERTY_REAL_TOPIC.encode(), names.PROPERTY_REPLAY_OF.encode())
"""Where one of these is named, records may be copies that the broker made of others."""


class StoredIds(msgspec.Struct, frozen=True):
    """Messages of one topic that were stored in one millisecond, and have ids."""

    topic: str
    hashes: Hashes
    log_offsets: npt.NDArray[np.int64]
    stored_ms: int


def counts(topic: str) -> bool:
    """Whether ids of its messages are kept; retries, dead letters and the broker's own records come on purpose."""
    return not (names.is_internal(topic) or names.is_system(topic))


def topic_of(record: Record) -> str:
    """The topic whose window has the record's id; nothing for a record that counts for none."""
    properties = record.properties
    if record.transaction_type or properties.get(names.PROPERTY_REPLAY_OF):
        return ""
    real_topic = properties.get(names.PROPERTY_REAL_TOPIC, "")
    if record.topic in WAITING_TOPICS:
        return real_topic if counts(real_topic) else ""
    return record.topic if counts(record.topic) and not real_topic else ""


def queue_of(record: Record) -> int:
    """The queue that it was sent to."""
    queue = record.properties.get(names.PROPERTY_REAL_QUEUE, "") if record.topic in WAITING_TOPICS else ""
    number = number_of(queue, MOST_32)
    return record.queue_id if number is None else number


def stored_in(found: FoundRecords) -> Iterator[StoredIds]:
    """The messages with ids among these records, in their order within each topic."""
    data = bytes(found.data)
    if ANY_ID not in data:
        return
    run = found.run
    hashes = None if run is None else hashes_of(data, run.sizes)
    if run is None or hashes is None or any(name in data for name in COPIES) or _of_transactions(found):
        yield from _one_by_one(found, data)
        return
    log_offsets, stored_ms = found.log_offset + run.positions, run.headers["store_timestamp_ms"].astype(np.int64)
    topics, which = topics_of(run)
    for number, topic in enumerate(topics):
        mine = ((which == number) & (hashes != 0)).nonzero()[0]
        name = topic.decode("utf-8", "replace")
        if not len(mine) or not counts(name):
            continue
        edges = [0, *((np.diff(stored_ms[mine]) != 0).nonzero()[0] + 1).tolist(), len(mine)]
        for begin, end in pairwise(edges):
            at = mine[begin:end]
            yield StoredIds(name, hashes[at], log_offsets[at], int(stored_ms[at[0]]))


def _of_transactions(found: FoundRecords) -> bool:
    return found.run is not None and bool((found.run.headers["sys_flag"] & SYS_TRANSACTION_MASK).any())


def _one_by_one(found: FoundRecords, data: bytes) -> Iterator[StoredIds]:
    at = 0
    for size in found.sizes:
        piece = data[at : at + size]
        if ANY_ID in piece:
            record = decode(piece, check_crc=False)
            topic, hashes = topic_of(record), _hash_of(record, piece)
            if topic and hashes is not None and hashes[0]:
                yield StoredIds(topic, hashes, np.array([found.log_offset + at], np.int64), record.store_timestamp_ms)
        at += size


def _hash_of(record: Record, data: bytes) -> Hashes | None:
    """Records with IPv6 hosts are not made by clients that give ids."""
    return hashes_of(data, np.array([len(data)])) if id_of(record.properties) else None
