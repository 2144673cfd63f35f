"""The records of a run, encoded together: what one costs is a fifth of a send when they are made one by one."""

from array import array
from collections.abc import Sequence

import numpy as np
from dejamq_proto.native import join
from dejamq_proto.records.record import HEADER, HEADER_SIZE
from dejamq_proto.wire.messages import Words
from isal import isal_zlib

from dejamq.sending.encoding import UNIQUE_NAME
from dejamq.sending.sends import Sends
from dejamq.values.message import MessageQueue

FEW = 12
"""Up to this many records are made faster one by one; ``small_runs.FEW`` is the same border where runs are taken."""
PIECES = 5
_HEADER_BYTES = np.dtype(f"V{HEADER_SIZE}")


def encode_records(
    sends: Sends, stretches: Sequence[tuple[MessageQueue, int]], born_ms: int
) -> tuple[Words, list[bytes]]:
    """The sizes of the sends' records, and the pieces that are the records when they are joined, in this order.

    ``stretches`` belong to the sends: each is a number of neighbouring sends with common parts.

    The result is as with ``Outgoing.encode`` of each, but made at once. The compiled part makes one piece. Without
    it, headers are filled column by column and nothing is copied.
    """
    count, alike, (bodies, message_ids) = len(sends), sends.alike, sends.columns
    if count <= FEW:
        each = zip(sends.commons, sends.queues, bodies, message_ids, _parts(alike)[2], strict=True)
        records = [
            common.record.encode(queue.queue_id, born_ms, body, UNIQUE_NAME + message_id.encode() + rest)
            for common, queue, body, message_id, rest in each
        ]
        return np.array(list(map(len, records)), "<u4"), records
    sizes = np.array(array("I", sends.sizes), "<u4")
    queue_ids = np.array([queue.queue_id for queue, _ in stretches], np.int32).repeat([many for _, many in stretches])
    joined = join(alike, bodies, message_ids, isal_zlib.crc32, queue_ids, born_ms)
    if joined is not None:
        return sizes, [joined]
    headers, before_ids, rests = _parts(alike)
    columns = np.frombuffer(bytearray(b"".join(headers)), HEADER)
    columns["total_size"], columns["body_size"] = sizes, list(map(len, bodies))
    crcs = np.fromiter(map(isal_zlib.crc32, bodies), np.uint32, count)
    columns["body_crc"], columns["queue_id"] = crcs & 0x7FFFFFFF, queue_ids
    columns["born_timestamp_ms"] = born_ms
    pieces = [b""] * (PIECES * count)
    pieces[0::PIECES], pieces[1::PIECES] = columns.view(_HEADER_BYTES).tolist(), bodies
    pieces[2::PIECES], pieces[3::PIECES], pieces[4::PIECES] = before_ids, map(str.encode, message_ids), rests
    return sizes, pieces


def _parts(alike: Sequence[tuple[bytes, bytes, bytes, int]]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The first three of it, one element a record."""
    headers, before_ids, rests = list[bytes](), list[bytes](), list[bytes]()
    for header, before_id, rest, count in alike:
        headers += [header] * count
        before_ids += [before_id] * count
        rests += [rest] * count
    return headers, before_ids, rests
