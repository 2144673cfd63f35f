"""Committed offsets of a group, kept by the brokers; the offset to commit is always the process queue's low-water mark.

Commits of the timer leave *oneway* every 5 s, changed or not, so that a broker that lost them gets them again. Commits
of a drop or a shutdown are awaited. Source: RocketMQ ``RemoteBrokerOffsetStore`` (its -1 and -2 are None and an
exception here).
"""

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from dejamq_proto.codes import DejamqError
from msgspec.structs import replace

from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.values.message import MessageQueue

log = logging.getLogger("dejamq.clients.consumer")
NOT_OBSERVED: AbstractContextManager[None] = nullcontext()


class OffsetStore(Protocol):
    """How far a group is in each queue: kept by the brokers, or in a file of a broadcasting member."""

    source: str
    """``broker`` or ``local``, for the journal."""

    async def load(self, queue: MessageQueue) -> int | None: ...

    def piggyback(self, owned: OwnedQueue, seq: int) -> int | None: ...

    def commit_oneway(self, owned_queues: Iterable[OwnedQueue], reason: str = "timer") -> None: ...

    async def commit(self, owned: OwnedQueue, reason: str, *, offset: int | None = None) -> None: ...


class RemoteOffsetStore:
    """Owned by the event loop. Every commit is in the journal before it leaves."""

    source = "broker"

    def __init__(self, context: ConsumerContext, deliveries: Deliveries) -> None:
        self._context, self._deliveries = context, deliveries

    async def load(self, queue: MessageQueue) -> int | None:
        """The committed offset, None when the broker has none. Raises DejamqError when it could not be read.

        Absent and unreadable are kept apart: taking the second for the first would begin at the wrong place,
        silently.
        """
        link = self._context.link(queue.broker_name)
        return await link.query_offset(self._context.group, queue.topic, queue.queue_id)

    def piggyback(self, owned: OwnedQueue, seq: int) -> int | None:
        """The offset that the pull with this number shall carry along, None for nothing worth it.

        An offset of 0 is not worth carrying: a group without any commit begins there as well (RocketMQ sends
        only > 0).
        """
        offset = owned.process_queue.commit_offset
        if not offset:
            return None
        with self._observed(owned, offset, "piggyback"):
            owned.committed_offset = offset
            self._journal(owned, offset, "piggyback", seq)
        return offset

    def commit_oneway(self, owned_queues: Iterable[OwnedQueue], reason: str = "timer") -> None:
        """The timer's commit: sent and not awaited, failures are only logged."""
        for owned in owned_queues:
            offset, queue = owned.process_queue.commit_offset, owned.queue
            if offset is None or owned.dropped:
                continue
            try:
                link = self._context.link(queue.broker_name)
            except DejamqError as error:
                log.warning("offset_not_sent queue=%s:%d reason=%s", queue.broker_name, queue.queue_id, error)
                continue
            with self._observed(owned, offset, reason):
                seq, owned.committed_offset = self._context.next_seq(), offset
                self._journal(owned, offset, reason, seq)
                link.update_offset_oneway(self._context.group, queue.topic, queue.queue_id, offset, seq=seq)

    async def commit(self, owned: OwnedQueue, reason: str, *, offset: int | None = None) -> None:
        """Commit and wait for the broker's word, as well as possible: a failure is logged and journalled.

        Raises nothing but cancellation: whoever gives a queue up can do no more about it, and the next owner
        begins earlier.
        """
        offset, queue = owned.process_queue.commit_offset if offset is None else offset, owned.queue
        if offset is None:
            return
        try:
            await self.send(owned, offset, reason)
        except DejamqError as error:
            text = "offset_not_committed queue=%s:%s:%d offset=%d: the next owner begins earlier: %s"
            log.warning(text, queue.topic, queue.broker_name, queue.queue_id, offset, error)

    async def send(self, owned: OwnedQueue, offset: int, reason: str) -> None:
        """Commit this offset and wait for the broker's word. Raises DejamqError, after journalling it."""
        seq, queue = self._context.next_seq(), owned.queue
        self._journal(owned, offset, reason, seq)
        try:
            with self._observed(owned, offset, reason):
                link = self._context.link(queue.broker_name)
                await link.update_offset(self._context.group, queue.topic, queue.queue_id, offset, seq=seq)
        except DejamqError as error:
            self._journal(owned, offset, reason, seq, outcome="failed" if error.definite else "indefinite")
            raise
        owned.committed_offset = offset

    def _observed(self, owned: OwnedQueue, offset: int, reason: str) -> AbstractContextManager[None]:
        """A commit that says nothing new is none."""
        observer = self._context.observer
        if observer is None or offset == owned.committed_offset:
            return NOT_OBSERVED
        return observer.committing(owned.queue, offset, reason, asked=reason == "lite")

    def _journal(self, owned: OwnedQueue, value: int, reason: str, seq: int, outcome: str = "sent") -> None:
        if not self._context.journal.on:
            return
        self._deliveries.flush(owned)
        persist = self._deliveries.lines(owned).persist
        self._context.journal.write(replace(persist, value=value, reason=reason, request_seq=seq, outcome=outcome))
