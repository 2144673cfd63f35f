"""Entries for a queue that is made again from the whole log, which may say strange things of queue offsets.

A record's header has no checksum, topics are deleted and made again, and damage leaves gaps.
"""

import numpy as np
import numpy.typing as npt
from dejamq_proto.record import OVERHEAD

from dejamq_broker.store.batch import Ints
from dejamq_broker.store.consume_queue import MAX_GAP, ConsumeQueue
from dejamq_broker.store.entry_files import Entries
from dejamq_broker.store.log_scan import Damage

SPARE = 4096
"""Queue offsets that a gap may have beyond those of records that fit into the log between its ends."""


def append_again(queue: ConsumeQueue, queue_offsets: Ints, entries: Entries, ends: Ints) -> list[Damage]:
    """Append in log order. Answers the records that get no entry, for their queue offset cannot be.

    A gap becomes fillers. Where queue offsets begin again at 0 the topic was deleted and made again: what the queue had
    is of the earlier life. An offset that goes back otherwise is passed over, as RocketMQ does.
    """
    strange = out_of_place(queue_offsets, queue.max_offset)
    # so many records cannot have been between, not even with some that were never stored
    known, begin = queue.max_log_offset > 0, int(queue_offsets[0])
    gaps = queue_offsets - (queue.max_offset if known else begin)
    room = entries["log_offset"] - (queue.max_log_offset if known else int(entries["log_offset"][0]))
    strange |= gaps > room // OVERHEAD + SPARE
    damages = [
        Damage(int(entry["log_offset"]), int(end), f"it says entry {queue_offset}, and its neighbours do not agree")
        for entry, end, queue_offset in zip(entries[strange], ends[strange], queue_offsets[strange], strict=True)
    ]
    queue_offsets, entries, ends = queue_offsets[~strange], entries[~strange], ends[~strange]
    begun = np.flatnonzero(queue_offsets == 0)
    if len(begun) and (queue.max_offset or begun[-1]):
        queue.discard()
        queue_offsets, entries, ends = queue_offsets[begun[-1] :], entries[begun[-1] :], ends[begun[-1] :]
    if len(queue_offsets):
        queue.append(queue_offsets, entries, ends)
    return damages


def out_of_place(queue_offsets: Ints, expected: int) -> npt.NDArray[np.bool_]:
    """Which say a queue offset that their two neighbours do not agree with, or one further off than a gap can be.

    ``expected`` is what the first should say; 0 when nothing is known, for a queue may begin late.
    """
    drift = queue_offsets - np.arange(len(queue_offsets))
    before = np.concatenate(([expected], drift[:-1]))
    after = np.concatenate((drift[1:], drift[-1:]))
    begin = expected or int(queue_offsets[0])
    strange: npt.NDArray[np.bool_] = (drift != before) & (drift != after) & (before == after)
    return strange | (queue_offsets - begin > MAX_GAP)
