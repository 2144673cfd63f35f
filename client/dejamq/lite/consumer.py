"""LitePullConsumer: messages when the program asks for them."""

import asyncio
import logging
import time
from collections.abc import Mapping

from dejamq_proto.codes import Code, ConfigError, DejamqError

from dejamq.lite.member import LiteMember
from dejamq.lite.polling import Polling
from dejamq.lite.running import LiteRunning
from dejamq.lite.shelf import polled
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue
from dejamq.values.namespace import unwrap_queue, wrap_queue

log = logging.getLogger("dejamq.clients.consumer")


class LitePullConsumer(LiteMember):
    """Hands out messages when the program polls or iterates, at least once; retries are the program's own matter.

    The queues come from ``subscribe``, shared with the group's other members, or from ``assign``, the program's own
    choice; with ``MessageModel.BROADCASTING`` each member that subscribes has all, and keeps offsets in a file of its
    own. With ``auto_commit`` a poll counts what earlier polls returned as done, whether or not it is: a program that
    still works on it when it polls again, and dies, loses it. One task polls at a time, or ``auto_commit=False``.
    Belongs to one event loop. Further settings: ``LitePullConfig``. Source: RocketMQ ``DefaultLitePullConsumer``.
    """

    # messages

    async def poll(self, timeout_ms: float | None = None, max_messages: int | None = None) -> list[ReceivedMessage]:
        """At most ``max_messages``, each queue's in its order; ``[]`` when none came in time.

        Cancelling loses nothing: a message is handed out or stays here. Raises ClientClosed once closing began.
        """
        polling = self._ready()
        wait_ms = self.config.poll_timeout_ms if timeout_ms is None else timeout_ms
        limit = self.config.max_poll_messages if max_messages is None else max_messages
        if limit < 1:
            raise ConfigError(f"max_messages is at least 1, not {limit}")
        if self._observer is None:
            messages = await polling.messages(limit, time.monotonic() + wait_ms / 1000)
        else:
            with self._observer.receiving("poll") as receiving:
                messages = await polling.messages(limit, time.monotonic() + wait_ms / 1000)
                receiving.got(messages)
        if not messages:
            self._check()
        return messages

    def __aiter__(self) -> "LitePullConsumer":
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message, for ``async for``; the loop ends when the consumer is closed.

        Asking for the next one says that this one is done, so the automatic commit never covers the message in hand.
        """
        if self._observer is not None:
            with self._observer.receiving("poll") as receiving:
                message = await self._next()
                receiving.got([message])
            return message
        if self._polling is not None and not self.closed and (now := self._polling.next_now()) is not None:
            return now
        return await self._next()

    async def _next(self) -> ReceivedMessage:
        while not self.closed:
            messages = await self._ready().messages(1, None)
            if messages:
                return messages[0]
        self._raise_fatal()
        raise StopAsyncIteration

    # progress

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> dict[MessageQueue, int]:
        """Send how far the program is and wait for the brokers' word; what was committed, by queue.

        Without ``offsets`` everything handed out is done, the message in hand too. An offset is the next one to
        consume. Queues that are not owned (any more) are left out: they are another member's. Raises DejamqError when
        a broker cannot be told; the timer goes on trying while the queue is owned.
        """
        running, namespace = self._started(), self._namespace
        if offsets is None:
            running.shelf.settle()
            running.shelf.commit(running.rebalancer.assignment)
        else:
            offsets = {wrap_queue(namespace, queue): offset for queue, offset in offsets.items()}
            self._set(running, offsets)
        moved = [
            (owned, held.committed)
            for owned in running.rebalancer.assignment
            if (held := polled(owned)).committed is not None
            and (owned.queue in offsets if offsets is not None else held.committed != held.acknowledged)
        ]  # fmt: skip
        outcomes = await asyncio.gather(*(running.commit(*one) for one in moved), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return {unwrap_queue(namespace, owned.queue): offset for owned, offset in moved}

    async def committed(self, queue: MessageQueue) -> int | None:
        """The queue's committed offset: of this consumer, sent or not, else what the broker has; None without one.

        A broker says 0 for a group it does not know while the queue's first message is still in memory, as RocketMQ's.
        """
        running, queue = self._started(), wrap_queue(self._namespace, queue)
        owned = running.rebalancer.assignment.owned.get(queue)
        if owned is not None and (mine := polled(owned).committed) is not None:
            return mine
        return await running.load(queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from this offset; what was pulled before, or is on its way, is not handed out any more.

        An offset outside the queue is corrected by the broker. Raises INVALID_PARAMETER for a queue that is not owned.
        """
        self._check()
        (queue,) = self._inside([queue])
        _check_offset("offset", offset)
        owned = None if self._running is None else self._running.rebalancer.assignment.owned.get(queue)
        if owned is not None and self._running is not None:
            self._running.seek(owned, offset)
        elif queue in (self._chosen.queues or ()):
            self._chosen.seeks[queue] = offset
        else:
            text = f"{queue} is not owned by this consumer now; assign it, or seek after wait_assigned()"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on from the oldest message. Raises as ``seek``, and when the broker cannot be asked."""
        queue = wrap_queue(self._namespace, queue)
        link = await self._started().link(queue)
        self.seek(queue, await link.min_offset(queue.topic, queue.queue_id))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what is sent from now on. Raises as ``seek``, and when the broker cannot be asked."""
        queue = wrap_queue(self._namespace, queue)
        link = await self._started().link(queue)
        self.seek(queue, await link.max_offset(queue.topic, queue.queue_id))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at this time or later; one above the last when there is none."""
        queue = wrap_queue(self._namespace, queue)
        link = await self._started().link(queue)
        return await link.search_offset(queue.topic, queue.queue_id, timestamp_ms)

    def _set(self, running: LiteRunning, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            _check_offset(f"offset of {queue}", offset)
        for queue, offset in offsets.items():
            owned = running.rebalancer.assignment.owned.get(queue)
            if owned is None:
                log.warning("commit_ignored queue=%s offset=%d: it is not owned any more", queue, offset)
            else:
                polled(owned).committed = offset

    def _ready(self) -> Polling:
        self._started()
        if self._chosen.queues is None and not list(self._subscriptions):
            raise ConfigError("nothing to poll: subscribe topics or assign queues first")
        assert self._polling is not None
        return self._polling


def _check_offset(what: str, offset: object) -> None:
    if not isinstance(offset, int) or offset < 0:
        raise DejamqError(f"{what} is a whole number of 0 or more, not {offset!r}", code=Code.INVALID_PARAMETER)
