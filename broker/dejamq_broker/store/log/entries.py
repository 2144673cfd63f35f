"""The facts that a queue needs of records that were read back from the log. Source: RocketMQ ``DispatchRequest``."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from dejamq_proto.names import PROPERTY_DELAY, PROPERTY_TAGS, SCHEDULE_TOPIC
from dejamq_proto.records.record import (
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    Record,
    decode,
    tags_code,
)
from dejamq_proto.records.run import Run

from dejamq_broker.store.log.batch import NOT_QUEUED, Batch, Ints, QueueKey, grouped
from dejamq_broker.store.log.record_texts import tags_codes, topics_of
from dejamq_broker.store.log.scan import FoundRecords

UNQUEUED_TYPES = (SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK)
NumberOf = Callable[[QueueKey], int]
FEW_SLOTS = 1 << 16
LONGEST_LEVEL = 9
"""Digits: Python refuses to read numbers of thousands of them."""


def delay_level(text: str, levels: int) -> int:
    """The level of a DELAY property. A level above the last one counts as the last one, and a text that is no number as
    0, none.
    """
    if not text.isascii() or not text.isdigit():
        return 0
    digits = text.lstrip("0")
    return min(int(digits or "0"), levels) if len(digits) <= LONGEST_LEVEL else levels


def queue_tags_code(record: Record, delay_levels_ms: tuple[int, ...]) -> int:
    """The tags code of a record's queue entry; for a delayed one the time of its delivery (ms).

    Source: RocketMQ ``CommitLog``.
    """
    properties = record.properties
    if record.topic == SCHEDULE_TOPIC:
        level = delay_level(properties.get(PROPERTY_DELAY, ""), len(delay_levels_ms))
        if level > 0:
            return record.store_timestamp_ms + delay_levels_ms[level - 1]
    return tags_code(properties.get(PROPERTY_TAGS))


def unqueued(run: Run) -> npt.NDArray[np.bool_] | None:
    """Which records of a run get no queue entry; None: all get one."""
    flags = run.headers["sys_flag"]
    if not flags.tobytes().strip(b"\0"):
        return None
    return np.isin(flags & SYS_TRANSACTION_MASK, UNQUEUED_TYPES)


def batch_of(found: FoundRecords, number_of: NumberOf, delay_levels_ms: tuple[int, ...]) -> Batch:
    """The queue entries of records read from the log."""
    if found.run is not None:
        return _of_run(found, found.run, number_of, delay_levels_ms)
    record = decode(found.data, check_crc=False)
    queued = record.transaction_type not in UNQUEUED_TYPES
    number = number_of((record.topic, record.queue_id)) if queued else NOT_QUEUED
    return Batch(
        log_offsets=np.array([found.log_offset], np.int64),
        sizes=np.array(found.sizes, np.int64),
        tags_codes=np.array([queue_tags_code(record, delay_levels_ms)], np.int64),
        queue_offsets=np.array([record.queue_offset], np.int64),
        groups=grouped(np.array([number])),
        end_log_offset=found.end,
        store_timestamp_ms=record.store_timestamp_ms,
    )


def _of_run(found: FoundRecords, run: Run, number_of: NumberOf, delay_levels_ms: tuple[int, ...]) -> Batch:
    headers = run.headers
    topics, which = topics_of(run)
    codes = tags_codes(run)
    schedule = SCHEDULE_TOPIC.encode()
    if schedule in topics:
        for index in np.flatnonzero(which == topics.index(schedule)).tolist():
            record = decode(found.data, int(run.positions[index]), check_crc=False)
            codes[index] = queue_tags_code(record, delay_levels_ms)
    return Batch(
        log_offsets=found.log_offset + run.positions,
        sizes=run.sizes,
        tags_codes=codes,
        queue_offsets=headers["queue_offset"].astype(np.int64),
        groups=grouped(_queue_numbers(run, topics, which, number_of)),
        end_log_offset=found.end,
        store_timestamp_ms=int(headers["store_timestamp_ms"][-1]),
    )


def _queue_numbers(run: Run, topics: list[bytes], which: Ints, number_of: NumberOf) -> Ints:
    """Each record's queue. Only queues that get an entry are asked for: others must not come into being."""
    without = unqueued(run)
    queue_numbers = np.full(len(run), NOT_QUEUED)
    queued = slice(None) if without is None else ~without
    queue_ids = run.headers["queue_id"].astype(np.int64)
    lowest, span = int(queue_ids.min()), int(np.ptp(queue_ids)) + 1
    # one slot for each topic and queue id that could be
    slots = (which * span + queue_ids - lowest)[queued]
    used = np.bincount(slots).nonzero()[0] if len(topics) * span <= FEW_SLOTS else np.unique(slots)
    keys = [(topics[slot // span].decode("utf-8", "replace"), slot % span + lowest) for slot in used.tolist()]
    queue_numbers[queued] = np.array([number_of(key) for key in keys], np.int64)[np.searchsorted(used, slots)]
    return queue_numbers
