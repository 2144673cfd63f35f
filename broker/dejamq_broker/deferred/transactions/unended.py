"""Transactions that have not ended, for ``transaction_finish_once``; and the reading of them at a start."""

import logging
from typing import NamedTuple

from dejamq_proto.records.record import SYS_TRANSACTION_COMMIT, Record

from dejamq_broker.deferred.transactions.ops import OpMarks
from dejamq_broker.deferred.transactions.queues import HALVES, OPS, TransactionQueues
from dejamq_broker.deferred.transactions.records import (
    TransactionKey,
    check_times,
    ended_by,
    own_place,
    prepared_offset,
    transaction_of,
    unique_key,
)

log = logging.getLogger(__name__)


class OpenTransactions:
    """The newest half message of each transaction that has not ended. Pure.

    A check stores a half message anew, and all copies of one transaction share their key. The end of any copy ends the
    transaction, and later requests that name another copy are refused. Only transactions that have not ended are kept,
    so the size is the number of those under way.
    """

    def __init__(self) -> None:
        self._newest: dict[TransactionKey, int] = {}

    def __contains__(self, key: TransactionKey) -> bool:
        return key in self._newest

    def __len__(self) -> int:
        return len(self._newest)

    def begin(self, key: TransactionKey, half_offset: int) -> None:
        """A half message was stored, the first one or anew."""
        self._newest[key] = half_offset

    def is_newest(self, key: TransactionKey, half_offset: int) -> bool:
        """Whether the transaction is to be asked about by this half message."""
        return self._newest.get(key) == half_offset

    def end(self, key: TransactionKey) -> int | None:
        """The transaction has ended; the queue offset of its newest half message."""
        return self._newest.pop(key, None)


class HalfPlace(NamedTuple):
    """Where the newest half message of a transaction lies. ``here``: it began in this start of the broker."""

    queue_offset: int
    log_offset: int
    here: bool


class HalfPlaces:
    """Half messages by the ids of their transactions, for producers that name no place.

    What earlier starts of the broker stored is read once, when the first unknown id comes. Until then the few of those
    that end are remembered, as their marks may not be stored yet.
    """

    def __init__(self, queues: TransactionQueues) -> None:
        self._queues, self._before = queues, queues.end(HALVES)
        self._places: dict[TransactionKey, HalfPlace] = {}
        self._ended: set[TransactionKey] = set()
        self._read = not self._before

    def begin(self, half: Record) -> None:
        """A half message was stored, the first one or anew."""
        properties = half.properties
        here = not check_times(properties) and prepared_offset(properties) is None
        self._places[transaction_of(half)] = HalfPlace(half.queue_offset, half.log_offset, here)

    def end(self, key: TransactionKey) -> None:
        """The transaction has ended, or was given up."""
        place = self._places.pop(key, None)
        if not (self._read or (place and place.here)):
            self._ended.add(key)

    def find(self, key: TransactionKey) -> HalfPlace | None:
        """None: there is no such transaction that has not ended."""
        if key not in self._places and not self._read:
            for other, half in unended(self._queues).items():
                if half.queue_offset < self._before and other not in self._ended:
                    self._places.setdefault(other, HalfPlace(half.queue_offset, half.log_offset, here=False))
            self._read, self._ended = True, set()
        return self._places.get(key)


def unended(queues: TransactionQueues) -> dict[TransactionKey, Record]:
    """The newest half message of each transaction without a mark, as the queues tell after a start.

    All of them stand behind the rounds' position: a round passes a half message when it has ended or was put back.
    """
    marked: set[int] = set()
    at = queues.position(OPS)
    while at < queues.end(OPS):
        ops, at = queues.page(OPS, at)
        marked.update(offset for op in ops for offset in ended_by(op))
    newest: dict[TransactionKey, Record] = {}
    ended: set[TransactionKey] = set()
    at = queues.position(HALVES)
    while at < queues.end(HALVES):
        halves, at = queues.page(HALVES, at)
        for half in halves:
            newest[transaction_of(half)] = half
            if half.queue_offset in marked:
                ended.add(transaction_of(half))
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
