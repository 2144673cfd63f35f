"""The pull path: the meaning of a read of the store for a consumer, and the choice to hold its request instead of
answering.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.events import Pull as PullEvent
from dejamq_proto.journal.writer import Journal
from dejamq_proto.names import MASTER_ID
from dejamq_proto.records.record import stored_at
from dejamq_proto.wire.messages import OFFSET_RESET, PullAnswer

from dejamq_broker.base.counts import Counts
from dejamq_broker.base.identity import Site
from dejamq_broker.paths.filtered import Most, read_wanted
from dejamq_broker.paths.rules import PullQuery, PullRules
from dejamq_broker.store import ReadResult, ReadStatus
from dejamq_broker.tables.offsets import OffsetTable, Position

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore


# Which replica answers: a consumer's next pull goes where its last answer said. Source: RocketMQ
# PullMessageProcessor, DefaultPullMessageResultHandler.


class ReplicaRules:
    """Owned by the event loop; it never waits."""

    def __init__(self, rules: PullRules, store: "MessageStore", site: Site, master_there: Callable[[], bool]) -> None:
        """``master_there``: whether this slave's master is there, as far as the slave knows."""
        self._rules, self._store, self._slave, self._master_there = rules, store, not site.master, master_there

    def admit(self) -> None:
        """Raise SYSTEM_BUSY at a slave that may not be read (RocketMQ: ``rejectRequest``)."""
        if self._slave and not self._rules.config.slave_read_enable:
            text = f"this is a slave of {self._rules.config.broker_name} that may not be read (slave_read_enable)"
            raise DejamqError(text, code=Code.SYSTEM_BUSY)

    def suggest(self, group: str, log_offset: int) -> int:
        """Where to pull next, after an answer that ended with the record at this log offset.

        A consumer that is further behind than the part that is likely in memory reads from a slave. So the master reads
        no old files.
        """
        found = self._rules.groups.get(group) if self._rules.config.slave_read_enable else None
        if found is None:
            return MASTER_ID
        return found.broker_id if self._store.in_memory(log_offset) else found.which_broker_when_consume_slowly

    def code(self, code: Code) -> Code:
        """The answer of a slave that found nothing.

        With its master there, that one is to be asked, at once. Without its master, the request waits here. So does one
        for an offset outside this slave's queues, which may have less at either end than the master had. A correction
        would skip messages, or deliver them again. (RocketMQ's slave then has itself asked again and again.)
        """
        moved = code is Code.PULL_OFFSET_MOVED
        if not self._slave or not (moved or code is Code.PULL_NOT_FOUND):
            return code
        if moved and self._rules.config.offset_check_in_slave:
            return code
        return Code.PULL_RETRY_IMMEDIATELY if self._master_there() else Code.PULL_NOT_FOUND


DEFAULT_MESSAGES, DEFAULT_BYTES = 32, 256 << 10
STRETCH_BYTES = 1 << 20
"""Of messages that are read at a time to be looked into."""
CODES = {
    ReadStatus.FOUND: Code.SUCCESS,
    ReadStatus.NO_MATCHED_LOGIC_QUEUE: Code.PULL_OFFSET_MOVED,
    ReadStatus.NO_MESSAGE_IN_QUEUE: Code.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: Code.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_OVERFLOW_ONE: Code.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: Code.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_FOUND_NULL: Code.PULL_NOT_FOUND,
    ReadStatus.NO_MATCHED_MESSAGE: Code.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: Code.PULL_RETRY_IMMEDIATELY,
}
EMPTY = (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE)


def code_of(status: ReadStatus, queue_offset: int) -> Code:
    """RocketMQ: PullMessageProcessor. Only offset 0 is right for an empty queue."""
    if status in EMPTY and queue_offset == 0:
        return Code.PULL_NOT_FOUND
    return CODES[status]


class Puller:
    """Decides what a pull gets; owned by the event loop, it never waits."""

    def __init__(
        self, store: "MessageStore", rules: PullRules, offsets: OffsetTable, journal: Journal, site: Site,
        replicas: ReplicaRules, counts: Counts, clock_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._store, self._rules, self._offsets, self._replicas = store, rules, offsets, replicas
        self._journal, self._site, self._counts, self._clock_ms = journal, site, counts, clock_ms

    def begin(self, pull: PullQuery, now_ms: float, max_suspend_ms: int | None) -> None:
        """Check the request, take its commit, set its deadline. Raises the error that the consumer is to see.

        A refused request commits nothing.
        """
        self._replicas.admit()
        self._rules.admit(pull)
        pull.expression = ""  # its filter is built; the text would only take room while the request is held
        pull.read_offset = pull.queue_offset
        if pull.commit_offset is not None:
            at = Position(pull.group, pull.topic, pull.queue_id)
            self._offsets.commit(at, pull.commit_offset, by="piggyback", asker=pull.asker)
        suspend_ms = pull.suspend_ms if max_suspend_ms is None else min(pull.suspend_ms, max_suspend_ms)
        pull.deadline_ms = now_ms + suspend_ms

    def look(self, pull: PullQuery, *, first: bool, last: bool) -> PullAnswer | None:
        """The answer, or None: nothing for this consumer yet. The ``last`` look always answers.

        A held request that meets only filtered messages stays held; at its end it answers where to go on. So does one
        whose look ended before the queue did: waiting there for the next arrival would let what is there already wait
        too. A new subscription by heartbeat counts for held requests as well.
        """
        if pull.registered and not first:
            self._rules.admit(pull)
        reset = self._offsets.take_reset(Position(pull.group, pull.topic, pull.queue_id))
        if reset is not None:
            return self._sent_elsewhere(pull, reset)
        began = perf_counter_ns()
        found = self._read(pull)
        took_us = (perf_counter_ns() - began) // 1000
        code = code_of(found.status, pull.read_offset)
        if (here := self._replicas.code(code)) is not code:
            code, found = here, msgspec.structs.replace(found, next_offset=pull.read_offset)
        waits = bool(pull.suspend_ms) and not last
        if not found.sizes:
            self._counts.missed(took_us)
        if code is Code.PULL_NOT_FOUND and waits:
            return None
        at_end = found.next_offset >= found.max_offset
        if found.status is ReadStatus.NO_MATCHED_MESSAGE and waits and not first and at_end:
            pull.read_offset = found.next_offset
            return None
        if code is Code.PULL_NOT_FOUND and pull.read_offset != pull.queue_offset:
            code = Code.PULL_RETRY_IMMEDIATELY
        answer = self._answer(pull, found, code)
        if found.sizes:
            answer.suggest_broker_id = self._count(pull, found, took_us)
        return answer

    def _read(self, pull: PullQuery) -> ReadResult:
        messages, size = pull.max_messages or DEFAULT_MESSAGES, pull.max_bytes or DEFAULT_BYTES
        topic, queue_id = pull.topic, pull.queue_id
        if pull.wanted is None:
            return self._store.read(
                topic, queue_id, pull.read_offset, tags=pull.tags, max_messages=messages, max_bytes=size
            )
        return read_wanted(
            lambda at, most: self._store.read(topic, queue_id, at, max_messages=most, max_bytes=STRETCH_BYTES),
            pull.wanted, pull.read_offset, Most(messages, size, self._rules.window),
        )  # fmt: skip

    def _count(self, pull: PullQuery, found: ReadResult, took_us: int) -> int:
        """The last message that the group gets shows how far behind it is (RocketMQ: recordDiskFall…).

        That also says from which replica to pull next.
        """
        counted = self._counts.found(pull.topic, pull.group, len(found.sizes), sum(found.sizes), took_us)
        last = found.pieces[-1]
        log_offset, stored_ms = stored_at(last, len(last) - found.sizes[-1])
        counted.fall_bytes += self._store.log_max - log_offset
        counted.fall_ms += max(0, self._clock_ms() - stored_ms)
        return self._replicas.suggest(pull.group, log_offset)

    def _sent_elsewhere(self, pull: PullQuery, reset: int) -> PullAnswer:
        """An operator reset the group here (RocketMQ: GetMessageStatus.OFFSET_RESET)."""
        ends = self._store.min_offset(pull.topic, pull.queue_id), self._store.max_offset(pull.topic, pull.queue_id)
        self._tell_journal(pull, reset, 0, Code.PULL_OFFSET_MOVED)
        return PullAnswer(
            seq=pull.asker.seq, code=int(Code.PULL_OFFSET_MOVED), remark=OFFSET_RESET, next_offset=reset,
            min_offset=ends[0], max_offset=ends[1],
        )  # fmt: skip

    def _answer(self, pull: PullQuery, found: ReadResult, code: Code) -> PullAnswer:
        """Journalled only where consumers get messages or are sent elsewhere: an empty answer is no event for the
        audit.
        """
        if code in (Code.SUCCESS, Code.PULL_OFFSET_MOVED):
            self._tell_journal(pull, found.next_offset, len(found.sizes), code)
        self._offsets.note_pulled(Position(pull.group, pull.topic, pull.queue_id), found.next_offset)
        answer = PullAnswer(
            seq=pull.asker.seq, code=int(code), remark="" if code is Code.SUCCESS else found.status.name,
            next_offset=found.next_offset, min_offset=found.min_offset, max_offset=found.max_offset,
        )  # fmt: skip
        if found.sizes:
            answer.sizes = np.array(found.sizes, "<u4")
            # a slave may cut its log back and go on there while its answer waits to be sent
            answer.records = found.pieces if self._site.master else (found.records,)
        return answer

    def _tell_journal(self, pull: PullQuery, next_offset: int, count: int, code: Code) -> None:
        if self._journal.on:
            self._journal.write(PullEvent(
                broker_name=self._site.broker_name, group=pull.group, topic=pull.topic, queue_id=pull.queue_id,
                client_id=pull.asker.client_id, client_boot_id=pull.asker.boot_id, request_seq=pull.asker.seq,
                request_offset=pull.queue_offset, next_offset=next_offset, count=count, code=int(code),
            ))  # fmt: skip
