"""What a queue needs to know of records that were read back from the log. Source: RocketMQ ``DispatchRequest``."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from dejamq_proto.names import PROPERTY_DELAY, PROPERTY_TAGS, SCHEDULE_TOPIC
from dejamq_proto.record import (
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    Record,
    decode,
    decode_properties,
    tags_code,
)
from dejamq_proto.run import Run

from dejamq_broker.store.batch import NOT_QUEUED, Batch, Groups, Ints, QueueKey, grouped
from dejamq_broker.store.log_scan import Found

UNQUEUED_TYPES = (SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK)
NumberOf = Callable[[QueueKey], int]

_TAGS = PROPERTY_TAGS.encode() + b"\x01"


def queue_tags_code(record: Record, delay_levels_ms: tuple[int, ...]) -> int:
    """The tags code of a record's queue entry; for a delayed one the time of its delivery (ms).

    Source: RocketMQ ``CommitLog``: a delay level above the last one counts as the last one.
    """
    properties = record.properties
    if record.topic == SCHEDULE_TOPIC:
        text = properties.get(PROPERTY_DELAY, "0")
        level = min(int(text), len(delay_levels_ms)) if text.isdigit() else 0
        if level > 0:
            return record.store_timestamp_ms + delay_levels_ms[level - 1]
    return tags_code(properties.get(PROPERTY_TAGS))


def unqueued(run: Run) -> npt.NDArray[np.bool_] | None:
    """Which records of a run get no queue entry; None: all get one."""
    flags = run.headers["sys_flag"]
    if not flags.tobytes().strip(b"\0"):
        return None
    return np.isin(flags & SYS_TRANSACTION_MASK, UNQUEUED_TYPES)


def batch_of(found: Found, number_of: NumberOf, delay_levels_ms: tuple[int, ...]) -> Batch:
    """The queue entries of records read from the log."""
    if found.run is not None:
        return _of_run(found, found.run, number_of, delay_levels_ms)
    record = decode(found.data, check_crc=False)
    queued = record.transaction_type not in UNQUEUED_TYPES
    number = number_of((record.topic, record.queue_id)) if queued else NOT_QUEUED
    groups: Groups = [(number, slice(0, 1))] if number >= 0 else []
    return Batch(
        log_offsets=np.array([found.log_offset], np.int64),
        sizes=np.array(found.sizes, np.int64),
        tags_codes=np.array([queue_tags_code(record, delay_levels_ms)], np.int64),
        queue_offsets=np.array([record.queue_offset], np.int64),
        groups=groups,
        end_log_offset=found.end,
        store_timestamp_ms=record.store_timestamp_ms,
    )


def _of_run(found: Found, run: Run, number_of: NumberOf, delay_levels_ms: tuple[int, ...]) -> Batch:
    headers = run.headers
    topics = _slices(found.data, run.topic_at, run.topic_size)
    queues = list(zip(topics, headers["queue_id"].tolist(), strict=True))
    numbers = {queue: number_of((queue[0].decode("utf-8", "replace"), queue[1])) for queue in _queued(queues, run)}
    codes = [_tags_code(raw) for raw in _slices(found.data, run.properties_at, run.properties_size)]
    schedule = SCHEDULE_TOPIC.encode()
    if schedule in topics:
        for index in (index for index, topic in enumerate(topics) if topic == schedule):
            codes[index] = queue_tags_code(decode(found.data, int(run.positions[index])), delay_levels_ms)
    queue_numbers = np.array([numbers.get(queue, NOT_QUEUED) for queue in queues], np.int64)
    without = unqueued(run)
    if without is not None:
        queue_numbers[without] = NOT_QUEUED
    return Batch(
        log_offsets=found.log_offset + run.positions,
        sizes=run.sizes,
        tags_codes=np.array(codes, np.int64),
        queue_offsets=headers["queue_offset"].astype(np.int64),
        groups=grouped(queue_numbers),
        end_log_offset=found.end,
        store_timestamp_ms=int(headers["store_timestamp_ms"][-1]),
    )


def _queued(queues: list[tuple[bytes, int]], run: Run) -> set[tuple[bytes, int]]:
    """The queues that some record of the run has an entry in: others must not come into being."""
    kinds = run.headers["sys_flag"] & SYS_TRANSACTION_MASK
    if not kinds.any():
        return set(queues)
    unqueued = np.isin(kinds, UNQUEUED_TYPES).tolist()
    return {queue for queue, without in zip(queues, unqueued, strict=True) if not without}


def _slices(data: bytes, at: Ints, size: Ints) -> list[bytes]:
    return [data[start:end] for start, end in zip(at.tolist(), (at + size).tolist(), strict=True)]


def _tags_code(raw_properties: bytes) -> int:
    """The tag's code without decoding all properties, where they are as everybody writes them."""
    at = raw_properties.find(_TAGS)
    if at < 0:
        return 0
    begins = at == 0 or raw_properties[at - 1] == 2
    value_at = at + len(_TAGS)
    if not begins or raw_properties.find(_TAGS, value_at) >= 0:
        return tags_code(decode_properties(raw_properties).get(PROPERTY_TAGS))
    end = raw_properties.find(b"\x02", value_at)
    return tags_code(raw_properties[value_at : end if end >= 0 else None].decode("utf-8", "replace"))
