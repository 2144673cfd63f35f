"""Runs that hold messages which are stored already: the part that is new, and the answer for all of them."""

from collections.abc import Sequence
from itertools import accumulate

import msgspec
import numpy as np
from dejamq_proto import names
from dejamq_proto.records.run import Ints, parse, properties_of
from dejamq_proto.wire.messages import SendRun, SendRunResult, Words

from dejamq_broker.dedup.deduplication import First


def log_offsets(sizes: Words, result: SendRunResult) -> Ints:
    """Where each record lies: those of one span follow one another."""
    own: Ints = sizes.astype(np.int64)
    positions: Ints = own.cumsum() - own
    starts, places = result.span_starts, result.span_log_offsets.astype(np.int64)
    if len(starts) == 1:
        return positions + int(places[0])
    counts = np.diff(np.append(starts, len(sizes)))
    return positions + (places - positions[starts]).repeat(counts)


def part_of(run: SendRun, numbers: Sequence[int]) -> SendRun:
    """A run of these records alone."""
    data, ends = run.records[0], list(accumulate(run.sizes.tolist(), initial=0))
    return msgspec.structs.replace(
        run, sizes=run.sizes[numbers], records=(b"".join(data[ends[number] : ends[number + 1]] for number in numbers),),
        queue_index=run.queue_index[numbers] if len(run.queue_index) else run.queue_index,
        tags_codes=run.tags_codes[numbers] if len(run.tags_codes) else run.tags_codes,
    )  # fmt: skip


def answer(
    run: SendRun, firsts: Sequence[First | None], new: Sequence[int], stored: SendRunResult, offsets: Ints
) -> SendRunResult:
    """The answer to the whole run: places of the new records, stored at these log offsets, and of first messages.

    ``stored`` is the answer for the new ones, as far as there are any.
    """
    count, among_new = len(firsts), {number: at for at, number in enumerate(new)}
    queue_index = run.queue_index.tolist() or [0] * count
    result = msgspec.structs.replace(
        stored, queue_offsets=np.zeros(count, "<u8"), span_starts=np.arange(count, dtype="<u4"),
        span_log_offsets=np.zeros(count, "<u8"), queue_ids=np.zeros(count, "<u4"),
        timer_out_ms=np.zeros(count, "<u8"),
        duplicates=np.array([number for number, first in enumerate(firsts) if first is not None], "<u4"),
    )  # fmt: skip
    for number, first in enumerate(firsts):
        at = among_new.get(number if first is None else first.number)
        if at is not None:
            result.queue_ids[number] = run.queues[queue_index[number if first is None else first.number]][1]
            result.queue_offsets[number] = stored.queue_offsets[at]
            result.span_log_offsets[number] = offsets[at]
            if len(stored.timer_out_ms):
                result.timer_out_ms[number] = stored.timer_out_ms[at]
        elif first is not None:
            result.queue_ids[number], result.queue_offsets[number] = first.queue_id, first.queue_offset
            result.span_log_offsets[number] = first.log_offset
            result.store_timestamp_ms = result.store_timestamp_ms or first.stored_ms
            if first.timer_out_ms and first.unique_key == unique_key_of(run, number):
                result.timer_out_ms[number] = first.timer_out_ms
    return result


def unique_key_of(run: SendRun, number: int) -> str:
    """Of one record: a recall names the message by it."""
    return properties_of(parse(run.records[0], run.sizes), number).get(names.PROPERTY_UNIQUE_KEY, "")
