"""Graceful hand-over: a queue leaves this client when its handlers have ended, and its offset goes with it.

RocketMQ drops a queue first, so that results of running handlers count for nothing (cause O9), and the new owner may
begin before the last commit has come (cause O8). Here it is drained, dropped, released with its offset at the broker,
and only then given to its next owner. A member of the group that claims nothing, as RocketMQ's clients, waits for
nobody: then queues are dropped at once here too.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from dejamq.rebalance.claims import QueueClaims
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.values.message import MessageQueue

log = logging.getLogger("dejamq.clients.consumer")

LOOK_S = 0.01  # between two looks at a queue that drains: looked at, so that the way of a message pays nothing for it
Drop = Callable[[Sequence[OwnedQueue], str], Awaitable[None]]


class Handover:
    """The queues on their way out. Owned by the event loop; each has a task of its own: none waits for another."""

    def __init__(
        self, context: ConsumerContext, deliveries: Deliveries, spawn: Callable[..., asyncio.Task[None]], *,
        owned: Callable[[], Iterable[OwnedQueue]], drop: Drop, on_lost: Callable[[], None],
    ) -> None:  # fmt: skip
        """``owned`` and ``drop`` are the rebalancer's: what this client owns, and the end of an ownership, which gives
        it back. ``on_lost`` is called when a round has to let a lost queue go.
        """
        self._spawn, self._owned, self._drop, self._on_lost = spawn, owned, drop, on_lost
        self.claims = QueueClaims(context, deliveries, on_lost=self._lost, on_doubtful=self._doubtful)
        self._wait_s = context.config.handover_wait_ms / 1000
        self.leaving: dict[int, OwnedQueue] = {}
        """By number; still owned until drained."""
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, leaving: Iterable[OwnedQueue], reason: str) -> None:
        """No further message of these queues reaches a handler; each is dropped when those that run have ended."""
        for owned in leaving:
            if owned.number not in self.leaving:
                self.leaving[owned.number] = owned
                owned.process_queue.draining = True
                if owned.fetching is not None:
                    owned.fetching.cancel()
                task = self._spawn(self._leave(owned, reason), f"handover-{owned.number}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Wait for the queues on their way out; no handler runs any more."""
        self.claims.end()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def generation_of(self, queue: MessageQueue) -> int:
        """Of the claim on it, for a queue that is opened now."""
        claim = self.claims.held.get(queue)
        return claim.generation if claim is not None else 0

    async def give_back(self, dropped: Sequence[OwnedQueue], reason: str) -> None:
        """The end of ownerships at their brokers. Of a queue whose lock was lost the progress is another's already."""
        lost = [owned.queue for owned in dropped if reason == "lock_lost"]
        self.claims.let_go(lost)
        await self.claims.release([owned for owned in dropped if not (lost or owned.claim_lost)])

    async def _leave(self, owned: OwnedQueue, reason: str) -> None:
        try:
            if not await self._drained(owned):
                queue, count = owned.queue, owned.process_queue.in_flight
                text = "handover_hurried queue=%s:%s:%d: %d messages come again, their handlers run for %.0f s"
                log.warning(text, queue.topic, queue.broker_name, queue.queue_id, count, self._wait_s)
            await self._drop([owned], reason)
        finally:
            self.leaving.pop(owned.number, None)

    async def _drained(self, owned: OwnedQueue) -> bool:
        held, over_s = owned.process_queue, time.monotonic() + self._wait_s
        while held.busy and not held.dropped and not self.claims.off:
            if time.monotonic() > over_s:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    def _lost(self, queue: MessageQueue) -> None:
        """Another member has the queue: what still runs here counts for nothing."""
        for owned in self._owned():
            if owned.queue == queue:
                owned.claim_lost = owned.process_queue.dropped = True
                self._on_lost()

    def _doubtful(self, queue: MessageQueue) -> None:
        """Nobody else has it yet: running handlers may end, and they count if the broker comes back in time."""
        leaving = [owned for owned in self._owned() if owned.queue == queue and owned.number not in self.leaving]
        if leaving:
            log.warning("claim_not_renewed topic=%s broker=%s queue=%d", queue.topic, queue.broker_name, queue.queue_id)
            self.begin(leaving, "claim_lost")
