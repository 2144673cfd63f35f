"""Rounds over the half messages: a half message without a mark is stored anew, and a producer of its group is asked how
it ended.

Source: RocketMQ ``TransactionalMessageServiceImpl.check``, ``AbstractTransactionalMessageCheckListener``.
"""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import DejamqError
from dejamq_proto.journal.events import CheckTransaction
from dejamq_proto.journal.writer import Journal
from dejamq_proto.records.record import Record, encode

from dejamq_broker.deferred.transactions.queues import HALVES, OPS
from dejamq_broker.deferred.transactions.records import (
    check_times,
    ended_by,
    given_up,
    has_place,
    own_place,
    prepared_offset,
    put_back,
    transaction_of,
    unique_key,
)
from dejamq_broker.deferred.transactions.rules import CheckLimits, EndMarks, HalfStep, next_step
from dejamq_broker.deferred.transactions.service import Transactions
from dejamq_broker.members.clients import Clients
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

log = logging.getLogger(__name__)
MOST_ASKED = 3
"""Channels of one user that are tried for one question, as some may have just ended. With access control others may be
in the group who may not see the message, and they shall not be all who are tried.
"""


class CheckProducer(msgspec.Struct, frozen=True):
    """A command for a producer: say how this transaction ended. ``record`` is as it would be committed."""

    group: str
    record: bytes
    half_queue_offset: int
    half_log_offset: int
    check_times: int
    broker_name: str


class CheckRounds:
    """Owned by the event loop; ``step`` is called by a Periodic, and lets others run between pages."""

    def __init__(
        self, transactions: Transactions, writer: RecordWriter, topics: TopicTable, clients: Clients,
        journal: Journal, limits: CheckLimits, round_max_ms: int, clock_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._transactions, self._writer, self._topics = transactions, writer, topics
        self._clients, self._journal, self._clock_ms = clients, journal, clock_ms
        self._limits, self._round_max_ms = limits, round_max_ms
        self._marks: EndMarks | None = None
        self._turns = itertools.count(1)
        self._closed = False

    async def close(self) -> None:
        """Let a round under way end soon."""
        self._closed = True

    async def step(self) -> None:
        """One round: read the marks that are new, pass what has ended, ask about the rest, remember how far it came."""
        if not self._writer.site.master:
            return
        queues, began_ms = self._transactions.queues, self._clock_ms()
        if self._marks is None:
            self._marks = EndMarks(queues.position(OPS))
        await self._read_marks(self._marks)
        passed = await self._walk(self._marks, queues.position(HALVES), began_ms)
        queues.move(HALVES, passed)
        queues.move(OPS, self._marks.settle(passed))

    async def _read_marks(self, marks: EndMarks) -> None:
        queues = self._transactions.queues
        while marks.read_until < queues.end(OPS) and not self._closed:
            ops, following = queues.page(OPS, marks.read_until)
            half_end = queues.end(HALVES)
            for op in ops:
                marks.add(op.queue_offset, ended_by(op), half_end)
            marks.read_until = max(following, marks.read_until)
            await asyncio.sleep(0)

    async def _walk(self, marks: EndMarks, position: int, began_ms: int) -> int:
        """Half messages in the order of their queue; gives the first one that was not passed.

        One that cannot be stored anew ends the round: the next one comes to it again.
        """
        queues = self._transactions.queues
        while not self._closed:
            halves, following = queues.page(HALVES, position)
            if following == position:
                break
            for half in halves:
                try:
                    passed = self._pass(half, marks, began_ms)
                except DejamqError as error:
                    log.warning("transaction_round_ended queue_offset=%d reason=%s", half.queue_offset, error)
                    return half.queue_offset
                if not passed:
                    return half.queue_offset
            position = following
            await asyncio.sleep(0)
        return position

    def _pass(self, half: Record, marks: EndMarks, began_ms: int) -> bool:
        """Do what this half message needs; False when the round ends before it."""
        now_ms = self._clock_ms()
        if now_ms - began_ms > self._round_max_ms:
            return False
        if self._has_ended(half, marks):
            return True
        step = next_step(half, self._limits, now_ms, began_ms)
        if step is HalfStep.ASK and not has_place(half):
            step = HalfStep.GIVE_UP
        if step is HalfStep.SPARE:
            first = prepared_offset(half.properties)
            offset = half.queue_offset if first is None else first
            self._put_back(half, {names.PROPERTY_PREPARED_QUEUE_OFFSET: str(offset)})
        elif step is HalfStep.GIVE_UP:
            self._give_up(half)
        elif step is HalfStep.ASK:
            times = check_times(half.properties) + 1
            self._ask(self._put_back(half, {names.PROPERTY_CHECK_TIMES: str(times)}), times)
        return step is not HalfStep.STOP

    def _has_ended(self, half: Record, marks: EndMarks) -> bool:
        """By its own mark, or by the mark of the place where it was stored first."""
        open_ones = self._transactions.open
        if marks.take(half.queue_offset) or marks.take(prepared_offset(half.properties)):
            return True
        return open_ones is not None and not open_ones.is_newest(transaction_of(half), half.queue_offset)

    def _put_back(self, half: Record, changes: dict[str, str]) -> Record:
        """Store it anew, before anybody is asked: the answer names the new places. Raises what the store raises."""
        again = put_back(half, **changes)
        appended = self._writer.put(again, RecordOrigin("tx_check", f"{half.queue_offset}:{half.log_offset}"))
        again = msgspec.structs.replace(
            again, queue_offset=int(appended.queue_offsets[0]), log_offset=int(appended.log_offsets[0]),
            store_timestamp_ms=appended.store_timestamp_ms,
        )  # fmt: skip
        self._transactions.stored(again)
        return again

    def _give_up(self, half: Record) -> None:
        self._topics.ensure(names.GIVEN_UP_TOPIC, 1)
        self._writer.put(given_up(half), RecordOrigin("tx_given_up", f"{half.queue_offset}:{half.log_offset}"))
        self._transactions.places.end(transaction_of(half))
        if self._transactions.open is not None:
            self._transactions.open.end(transaction_of(half))
        log.error("transaction_given_up message=%s queue_offset=%d", unique_key(half), half.queue_offset)

    def _ask(self, half: Record, times: int) -> None:
        """Oneway. Without a producer of the group online the next round tries again; that counts as a check, too."""
        properties = half.properties
        group = properties.get(names.PROPERTY_PRODUCER_GROUP, "")
        command = CheckProducer(
            group, encode(own_place(half)), half.queue_offset, half.log_offset, times, self._writer.site.broker_name
        )
        client_id = self._send(group, command)
        if not client_id:
            log.warning("transaction_without_producer group=%s message=%s", group, unique_key(half))
        if self._journal.on:
            self._journal.write(CheckTransaction(
                broker_name=command.broker_name, group=group, unique_key=unique_key(half),
                half_queue_offset=half.queue_offset, half_log_offset=half.log_offset, check_times=times,
                client_id=client_id,
            ))  # fmt: skip

    def _send(self, group: str, command: CheckProducer) -> str:
        """To one producer of the group, taking turns; its client id, '' when none is online.

        Source: RocketMQ ``ProducerManager.getAvailableChannel``.
        """
        known, tried = dict(self._clients.producers), Counter[str]()
        channels = self._clients.producers.channels_of(group)
        turn = next(self._turns)
        for number in range(len(channels)):
            channel = channels[(turn + number) % len(channels)]
            user = self._clients.peer(channel).user
            if tried[user] < MOST_ASKED and self._clients.command(channel, command):
                return known[channel].client_id
            tried[user] += 1
        return ""
