"""The half queue and the op queue: how far the rounds have come in each, and the messages behind."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dejamq_proto import names
from dejamq_proto.records.record import BadRecord, Record, decode

from dejamq_broker.tables.offsets import OffsetTable, Position

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
READ_MESSAGES = 32
HALVES, OPS = (Position(names.TRANSACTION_GROUP, topic, 0) for topic in (names.HALF_TOPIC, names.OP_TOPIC))


class TransactionQueues:
    """Positions are offsets of the group CID_RMQ_SYS_TRANS, written with the offsets of consumers. A crash sets the
    rounds back by up to 5 s, and their work of that time is done once more.

    Source: RocketMQ ``TransactionalMessageBridge``.
    """

    def __init__(self, store: "MessageStore", offsets: OffsetTable) -> None:
        self._store, self._offsets = store, offsets

    def position(self, queue: Position) -> int:
        """The queue offset at which a round begins, within what the queue holds."""
        known = self._offsets.get(queue)
        low = self._store.min_offset(queue.topic, queue.queue_id)
        return low if known is None else max(low, min(known, self.end(queue)))

    def move(self, queue: Position, queue_offset: int) -> None:
        """In memory; the table of offsets makes it last. A queue of which nothing was passed has no entry there."""
        known = self._offsets.get(queue)
        if queue_offset != (self.position(queue) if known is None else known):
            self._offsets.commit(queue, queue_offset, by="check")

    def end(self, queue: Position) -> int:
        """One behind the last record."""
        return self._store.max_offset(queue.topic, queue.queue_id)

    def page(self, queue: Position, queue_offset: int) -> tuple[list[Record], int]:
        """Some records from here on, and where the next page begins; at the end of the queue that is here.

        Entries whose records are gone from the log are passed over.
        """
        if queue_offset >= self.end(queue):
            return [], queue_offset
        found = self._store.read(queue.topic, queue.queue_id, queue_offset, max_messages=READ_MESSAGES)
        return list(_records(found.records, found.sizes)), max(queue_offset + bool(found.sizes), found.next_offset)

    def last_of(self, topic: str, queue_id: int) -> Record | None:
        """The newest record of a queue, if it has one."""
        end = self._store.max_offset(topic, queue_id)
        if not end:
            return None
        found = self._store.read(topic, queue_id, end - 1, max_messages=1)
        return next(_records(found.records, found.sizes), None)

    def half_at(self, log_offset: int) -> Record | None:
        """The half message that begins at this place of the log; None when none does.

        Bytes of somebody's body can look like one, so only what stands in the queue is one.
        """
        raw = self._store.record_at(log_offset)
        half = None if raw is None else decode(raw, check_crc=False)
        if half is None or half.topic != names.HALF_TOPIC:
            return None
        found = self._store.read(HALVES.topic, HALVES.queue_id, half.queue_offset, max_messages=1)
        standing = next(_records(found.records, found.sizes), None)
        return half if standing is not None and standing.log_offset == log_offset else None


def _records(data: bytes, sizes: list[int]) -> Iterator[Record]:
    at = 0
    for size in sizes:
        try:
            yield decode(data, at, check_crc=False)
        except BadRecord as error:  # a round goes on behind damage in the log
            log.error("transaction_record_damaged reason=%s", error)
        at += int(size)
