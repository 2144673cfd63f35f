"""The pull path: what a read of the store means for a consumer, and when its request is held instead of answered."""

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from dejamq_proto.codes import Code, DejamqError, PermissionDenied
from dejamq_proto.events import Pull as PullEvent
from dejamq_proto.journal import Journal
from dejamq_proto.record import java_hash
from dejamq_proto.wire import PullAnswer

from dejamq_broker.offsets import Asker, OffsetTable, Position
from dejamq_broker.site import Site
from dejamq_broker.store import ReadResult, ReadStatus
from dejamq_broker.subscription_groups import SubscriptionGroupTable
from dejamq_broker.topics import TopicTable, check_readable

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

DEFAULT_MESSAGES, DEFAULT_BYTES = 32, 256 << 10
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


class Pull(msgspec.Struct, kw_only=True):
    """One request. ``read_offset`` runs ahead of ``queue_offset`` while only filtered messages arrive.

    Offsets are queue offsets. ``suspend_ms`` 0 means that the request is never held; ``commit_offset`` is the
    consumer's own progress that travels with the pull (RocketMQ: flag bit commitOffset of PullSysFlag).
    ``tags`` and ``deadline_ms`` are filled in by ``Puller.begin``.
    """

    asker: Asker
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int = 0
    max_bytes: int = 0
    suspend_ms: int = 0
    commit_offset: int | None = None
    expression: str = ""
    tags: frozenset[int] | None = None
    read_offset: int = 0
    deadline_ms: float = 0


def tags_of(expression: str) -> frozenset[int] | None:
    """The hash codes that ``a || b`` selects, None for everything. Only hashes are compared: clients check the text."""
    if expression.strip() in ("", "*"):
        return None
    tags = [tag.strip() for tag in expression.split("||")]
    if not any(tags):
        raise DejamqError(f"tag expression {expression!r} names no tag", code=Code.SUBSCRIPTION_PARSE_FAILED)
    return frozenset(java_hash(tag) for tag in tags if tag)


def code_of(status: ReadStatus, queue_offset: int) -> Code:
    """RocketMQ: PullMessageProcessor. Only offset 0 is right for an empty queue."""
    if status in EMPTY and queue_offset == 0:
        return Code.PULL_NOT_FOUND
    return CODES[status]


class Puller:
    """Decides what a pull gets; owned by the event loop, it never waits."""

    def __init__(
        self, store: "MessageStore", topics: TopicTable, groups: SubscriptionGroupTable, offsets: OffsetTable,
        journal: Journal, site: Site,
    ) -> None:  # fmt: skip
        self._store, self._topics, self._groups, self._offsets = store, topics, groups, offsets
        self._journal, self._site = journal, site

    def begin(self, pull: Pull, now_ms: float, max_suspend_ms: int | None) -> None:
        """Check the request, take its commit, set its deadline. Raises the error that the consumer is to see.

        Checked in RocketMQ's order (PullMessageProcessor): the group, which is made if the broker makes groups,
        then the topic and its read permission, the queue, the expression. A refused request commits nothing.
        """
        group = self._groups.require(pull.group)
        if not group.consume_enable:
            raise PermissionDenied(f"group {pull.group!r} may not consume on this broker")
        check_readable(self._topics.require(pull.topic), pull.queue_id)
        pull.tags, pull.read_offset = tags_of(pull.expression), pull.queue_offset
        if pull.commit_offset is not None:
            at = Position(pull.group, pull.topic, pull.queue_id)
            self._offsets.commit(at, pull.commit_offset, by="piggyback", asker=pull.asker)
        suspend_ms = pull.suspend_ms if max_suspend_ms is None else min(pull.suspend_ms, max_suspend_ms)
        pull.deadline_ms = now_ms + suspend_ms

    def look(self, pull: Pull, *, first: bool, last: bool) -> PullAnswer | None:
        """The answer, or None: nothing for this consumer yet. The ``last`` look always answers.

        A held request that meets only filtered messages stays held; at its end it answers where to go on.
        """
        found = self._store.read(
            pull.topic, pull.queue_id, pull.read_offset, tags=pull.tags,
            max_messages=pull.max_messages or DEFAULT_MESSAGES, max_bytes=pull.max_bytes or DEFAULT_BYTES,
        )  # fmt: skip
        code = code_of(found.status, pull.read_offset)
        waits = bool(pull.suspend_ms) and not last
        if code is Code.PULL_NOT_FOUND and waits:
            return None
        if found.status is ReadStatus.NO_MATCHED_MESSAGE and waits and not first:
            pull.read_offset = found.next_offset
            return None
        if code is Code.PULL_NOT_FOUND and pull.read_offset != pull.queue_offset:
            code = Code.PULL_RETRY_IMMEDIATELY
        return self._answer(pull, found, code)

    def _answer(self, pull: Pull, found: ReadResult, code: Code) -> PullAnswer:
        """Journalled only where consumers get messages or are sent elsewhere: an empty answer is no event for the
        audit.
        """
        if self._journal.on and code in (Code.SUCCESS, Code.PULL_OFFSET_MOVED):
            self._journal.write(PullEvent(
                broker_name=self._site.broker_name, group=pull.group, topic=pull.topic, queue_id=pull.queue_id,
                client_id=pull.asker.client_id, client_boot_id=pull.asker.boot_id, request_seq=pull.asker.seq,
                request_offset=pull.queue_offset, next_offset=found.next_offset, count=len(found.sizes),
                code=int(code),
            ))  # fmt: skip
        answer = PullAnswer(
            seq=pull.asker.seq, code=int(code), remark="" if code is Code.SUCCESS else found.status.name,
            next_offset=found.next_offset, min_offset=found.min_offset, max_offset=found.max_offset,
        )  # fmt: skip
        if found.records:
            answer.sizes, answer.records = np.array(found.sizes, "<u4"), (found.records,)
        return answer
