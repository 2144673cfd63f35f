"""Transactions: half messages that consumers do not see, and how they end (RocketMQ: EndTransactionProcessor).

A commit stores the message where it belongs and then marks its half message as ended; a rollback only marks it.
RocketMQ does not look whether the transaction had ended before. A second commit stores a second message (cause P7), and
so does a check after a crash that lost the mark (P8). ``transaction_finish_once`` and ``transaction_op_with_commit``
end that.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.events import EndTransaction
from dejamq_proto.journal.writer import Journal
from dejamq_proto.records.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK, BadRecord, Record

from dejamq_broker.base.config import TransactionSettings
from dejamq_broker.deferred.transactions.ops import OpMarks
from dejamq_broker.deferred.transactions.queues import TransactionQueues
from dejamq_broker.deferred.transactions.records import committed, half_again, has_place, transaction_of, unique_key
from dejamq_broker.deferred.transactions.rules import too_late
from dejamq_broker.deferred.transactions.unended import HalfPlaces, OpenTransactions, add_lost_mark, unended
from dejamq_broker.tables.offsets import Asker, OffsetTable
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
UNKNOWN = 0
STATES = {UNKNOWN: "unknown", SYS_TRANSACTION_COMMIT: "commit", SYS_TRANSACTION_ROLLBACK: "rollback"}


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """A producer's decision on a half message, which it names by both of its places.

    ``state`` is RocketMQ's commitOrRollback: 8, 12, or 0 for not known yet.
    """

    group: str
    half_queue_offset: int
    half_log_offset: int
    state: int
    from_check: bool
    asker: Asker = Asker()


class Transactions:
    """Owned by the event loop; it never waits. ``open`` knows what has not ended, with ``transaction_finish_once``."""

    def __init__(
        self, store: "MessageStore", writer: RecordWriter, topics: TopicTable, offsets: OffsetTable, journal: Journal,
        settings: TransactionSettings, clock_ms: Callable[[], int], timed: Callable[[Record], Record],
    ) -> None:  # fmt: skip
        """``timed``: a committed message as it waits for its time, if it asks for one. Raises BadRecord."""
        self._writer, self._topics, self._journal = writer, topics, journal
        self._settings, self._clock_ms, self._timed = settings, clock_ms, timed
        self.queues = TransactionQueues(store, offsets)
        self.ops = OpMarks(writer, topics, journal, settings, clock_ms)
        self.open = OpenTransactions() if settings.transaction_finish_once else None
        self.places = HalfPlaces(self.queues)
        self._closed = False

    def close(self) -> None:
        """Refuse from now on: a refused transaction has not ended, and the next start of the broker asks for it."""
        self._closed = True

    def recover(self) -> None:
        """At a start, before anything is served: add the mark that a crash may have lost, learn what has not ended."""
        if not self._writer.site.master:
            return
        if self._settings.transaction_op_with_commit:
            for half in unended(self.queues).values():
                add_lost_mark(half, self.queues, self.ops)
        if self.open is not None:
            for key, half in unended(self.queues).items():
                self.open.begin(key, half.queue_offset)

    def stored(self, half: Record) -> None:
        """A half message entered the log; ``half`` has its places."""
        self.places.begin(half)
        if self.open is not None:
            self.open.begin(transaction_of(half), half.queue_offset)

    def end_by_key(
        self, group: str, topic: str, key: str, state: int, asker: Asker, *, from_check: bool
    ) -> None:  # fmt: skip
        """As ``end``, for a producer that knows its transaction by its topic and its id."""
        place = self.places.find((topic, key))
        if place is None:
            text = f"no transaction {key!r:.60} waits for its end: it has ended, or never began here"
            raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)
        self.end(Ending(
            group=group, half_queue_offset=place.queue_offset, half_log_offset=place.log_offset, state=state,
            from_check=from_check, asker=asker,
        ))  # fmt: skip

    def end(self, ending: Ending) -> None:
        """Commit, roll back, or leave it to a check.

        Nothing has changed when it raises: SLAVE_NOT_AVAILABLE at a slave, ILLEGAL_OPERATION when it is too late,
        TOPIC_NOT_EXIST where the topic was deleted, and the store's errors. It raises SYSTEM_ERROR for a half message
        that is not there or is another producer's.

        SYSTEM_ERROR of ``confirm`` comes after the work: the next master may not have it, and asks again.
        """
        key = ""
        try:
            self._check_serving()
            if ending.state not in STATES:
                text = f"{ending.state} is no state of a transaction: 8, 12 or 0"
                raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)
            if ending.state == UNKNOWN:
                self._tell(ending, key, "unknown")
                return
            half = self._half(ending)
            key = unique_key(half)
            self._check_open(half, ending)
            if ending.state == SYS_TRANSACTION_COMMIT:
                self._commit(half, ending)
        except DejamqError as error:
            log.warning("transaction_not_ended group=%s client=%s reason=%s", ending.group, ending.asker[0], error)
            self._tell(ending, key, "refused", str(error))
            raise
        self._ended(half)
        self._writer.counts.ended(
            half.properties.get(names.PROPERTY_REAL_TOPIC, ""), commit=ending.state == SYS_TRANSACTION_COMMIT
        )
        self._tell(ending, key, "committed" if ending.state == SYS_TRANSACTION_COMMIT else "rolled_back")
        self._writer.confirm()

    def resume(self, record: Record) -> None:
        """Ask again about a transaction that was given up: its half message is put back as one never asked about.

        Raises INVALID_PARAMETER for a message that was not given up, and as ``end``.
        Source: RocketMQ ``AdminBrokerProcessor.resumeCheckHalfMessage``; there any message becomes a half message.
        """
        self._check_serving()
        if record.topic != names.GIVEN_UP_TOPIC or not has_place(record):
            text = f"the message is one of {record.topic!r}; those that were given up lie in {names.GIVEN_UP_TOPIC}"
            raise DejamqError(text, code=Code.INVALID_PARAMETER, definite=True)
        half = half_again(record)
        appended = self._writer.put(half, RecordOrigin("tx_check", f"{record.queue_offset}:{record.log_offset}"))
        self.stored(msgspec.structs.replace(half, queue_offset=int(appended.queue_offsets[0])))
        log.info("transaction_resumed message=%s queue_offset=%d", unique_key(half), int(appended.queue_offsets[0]))
        self._writer.confirm()

    def _commit(self, half: Record, ending: Ending) -> None:
        """RocketMQ stores it also for a topic that is no more; here the checks go on until it is given up."""
        final = committed(half, self._writer.site.store_host)
        self._topics.require(final.topic)
        try:
            final = self._timed(final)
        except BadRecord as error:
            raise DejamqError(str(error), code=Code.MESSAGE_ILLEGAL, definite=True) from None
        if final.topic == names.TIMER_TOPIC:
            self._topics.ensure(names.TIMER_TOPIC, 1)
        origin = RecordOrigin("tx_final", f"{half.queue_offset}:{half.log_offset}", ending.asker, ending.group)
        self._writer.put(final, origin)

    def _check_serving(self) -> None:
        if not self._writer.site.master:
            text = "transactions end at the master, this broker is a slave"
            raise DejamqError(text, code=Code.SLAVE_NOT_AVAILABLE, definite=True)
        if self._closed:
            text = "the broker is shutting down; it asks for this transaction when it is back"
            raise DejamqError(text, code=Code.SERVICE_NOT_AVAILABLE, definite=True)

    def _half(self, ending: Ending) -> Record:
        """The half message, if it is the one that is meant. Source: RocketMQ ``checkPrepareMessage``."""
        half = self.queues.half_at(ending.half_log_offset)
        if half is None:
            trouble = f"no half message begins at log offset {ending.half_log_offset} any more"
        elif half.properties.get(names.PROPERTY_PRODUCER_GROUP) != ending.group:
            trouble = f"the half message at log offset {half.log_offset} is of another group than {ending.group!r}"
        elif half.queue_offset != ending.half_queue_offset:
            trouble = f"the half message at log offset {half.log_offset} has not the queue offset that was named"
        else:
            return half
        raise DejamqError(trouble, code=Code.SYSTEM_ERROR, definite=True)

    def _check_open(self, half: Record, ending: Ending) -> None:
        late = not ending.from_check and too_late(half, self._settings.transaction_timeout_ms, self._clock_ms())
        if late:
            text = f"later than {names.PROPERTY_CHECK_IMMUNITY} allows; the answer to a check ends it"
            raise DejamqError(text, code=Code.ILLEGAL_OPERATION, definite=True)
        if self.open is not None and transaction_of(half) not in self.open:
            text = "the transaction has ended before (transaction_finish_once)"
            raise DejamqError(text, code=Code.ILLEGAL_OPERATION, definite=True)

    def _ended(self, half: Record) -> None:
        """Mark the half message that was named, and with ``transaction_finish_once`` also the newest one."""
        self.places.end(transaction_of(half))
        newest = None if self.open is None else self.open.end(transaction_of(half))
        others = () if newest in (None, half.queue_offset) else (newest,)
        self.ops.add(half.queue_offset, *others)

    def _tell(self, ending: Ending, key: str, outcome: str, reason: str = "") -> None:
        if not self._journal.on:
            return
        asker = ending.asker
        self._journal.write(EndTransaction(
            broker_name=self._writer.site.broker_name, group=ending.group, unique_key=key,
            half_queue_offset=ending.half_queue_offset, half_log_offset=ending.half_log_offset,
            state=STATES.get(ending.state, str(ending.state)), from_check=ending.from_check, outcome=outcome,
            reason=reason, client_id=asker.client_id, client_boot_id=asker.boot_id, request_seq=asker.seq,
        ))  # fmt: skip
