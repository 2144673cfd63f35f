"""Transactions that have not ended, for ``transaction_finish_once``; and what a start reads of them."""

import logging

from dejamq_proto.record import SYS_TRANSACTION_COMMIT, Record

from dejamq_broker.transaction_ops import OpMarks
from dejamq_broker.transaction_queues import HALVES, OPS, TransactionQueues
from dejamq_broker.transaction_records import ended_by, own_place, unique_key

log = logging.getLogger(__name__)


class OpenTransactions:
    """The newest half message of each transaction that has not ended. Pure.

    A check stores a half message anew, and all of one transaction share their key: whichever of them is ended, the
    transaction is, and what names another one later is refused. Only what has not ended is kept, so the size is that of
    what is under way.
    """

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._newest

    def __len__(self) -> int:
        return len(self._newest)

    def begin(self, key: str, half_offset: int) -> None:
        """A half message was stored, the first one or anew."""
        self._newest[key] = half_offset

    def is_newest(self, key: str, half_offset: int) -> bool:
        """Whether the transaction is to be asked about by this half message."""
        return self._newest.get(key) == half_offset

    def end(self, key: str) -> int | None:
        """The transaction has ended; the queue offset of its newest half message."""
        return self._newest.pop(key, None)


def unended(queues: TransactionQueues) -> dict[str, Record]:
    """The newest half message of each transaction without a mark, as the queues tell after a start.

    All of them stand behind the rounds' position: a round passes a half message when it has ended or was put back.
    """
    marked: set[int] = set()
    at = queues.position(OPS)
    while at < queues.end(OPS):
        ops, at = queues.page(OPS, at)
        marked.update(offset for op in ops for offset in ended_by(op))
    newest: dict[str, Record] = {}
    ended: set[str] = set()
    at = queues.position(HALVES)
    while at < queues.end(HALVES):
        halves, at = queues.page(HALVES, at)
        for half in halves:
            newest[unique_key(half)] = half
            if half.queue_offset in marked:
                ended.add(unique_key(half))
    return {key: half for key, half in newest.items() if key not in ended}


def add_lost_mark(half: Record, queues: TransactionQueues, ops: OpMarks) -> None:
    """Mark the transaction as ended where the last message of its own queue is this one, committed.

    With ``transaction_op_with_commit`` the mark is the next record of the log, so a crash can only have kept the very
    last message from having one.
    """
    place = own_place(half)
    last = queues.last_of(place.topic, place.queue_id)
    if last is None or last.transaction_type != SYS_TRANSACTION_COMMIT or unique_key(last) != unique_key(half):
        return
    named = queues.half_at(last.prepared_transaction_offset)
    log.info("transaction_mark_added topic=%s queue_offset=%d", last.topic, last.queue_offset)
    ops.add(*{half.queue_offset, *([] if named is None else [named.queue_offset])})
