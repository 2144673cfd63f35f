"""Keeps this client's assignment what the allocation says, in rounds. Source: RocketMQ ``RebalanceService``/``Impl``.

A round learns what of all topics is to be this client's (``plan.py``), lets go of what is not, and opens what is new.
All topics that one broker was asked for move together: hundreds of queues are a few calls.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from dejamq_proto import failpoints
from dejamq_proto.codes import DejamqError
from dejamq_proto.names import is_internal

from dejamq.handling.subscriptions import Subscriptions
from dejamq.net.waits import aligned_delay, set_within
from dejamq.rebalance.consume_from import StartRule
from dejamq.rebalance.handover import Handover
from dejamq.rebalance.locks import QueueLocks
from dejamq.rebalance.plan import Planner, Share, SharedQueues
from dejamq.receiving.assignment import Assignment, OwnedQueue, by_broker
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.fetcher import Fetcher
from dejamq.receiving.offset_store import OffsetStore
from dejamq.receiving.process_queue import ProcessQueue
from dejamq.values.allocation import Strategy
from dejamq.values.message import MessageQueue

log = logging.getLogger("dejamq.clients.consumer")


@dataclass(frozen=True)
class RebalancerParts:
    """What a rebalancer moves."""

    subscriptions: Subscriptions
    deliveries: Deliveries
    offsets: OffsetStore
    start: StartRule
    fetcher: Fetcher
    route: Callable[[str], Awaitable[SharedQueues]]
    """A topic's queues. Raises DejamqError while there are none."""
    spawn: Callable[..., asyncio.Task[None]]
    locks: QueueLocks | None = None
    """For consumption in order: a queue is opened only with its lock, and unlocked when it is let go."""
    broadcasting: bool = False
    """Each member has all queues: nobody is asked who else there is."""
    holding: Callable[[MessageQueue, int], ProcessQueue] = lambda queue, start_offset: ProcessQueue(start_offset)
    """What holds an owned queue's messages, from this offset on."""
    handover: Handover | None = None
    """For graceful hand-over: a queue is opened only with its claim, and given back when its handlers have ended."""


class Rebalancer:
    """Owner of the assignment. ``run`` is its task; rounds never overlap."""

    def __init__(self, context: ConsumerContext, parts: RebalancerParts, name: str, strategy: Strategy) -> None:
        self._context, self._parts = context, parts
        self.planner = Planner(context, parts.route, name, strategy, broadcasting=parts.broadcasting)
        self.assignment = Assignment()
        self.settled = asyncio.Event()
        """Set once a round found this client in the group and all queues as the allocation wants them."""
        self._due = asyncio.Event()
        self._rounds = self._opened = self._changes = 0
        self.suspended = False
        self._stopped = asyncio.Event()

    def wake(self) -> None:
        """Something changed: do not wait for the interval to end."""
        self._due.set()

    def unsettle(self) -> None:
        """The wanted queues changed. A round under way began before that, so it settles nothing."""
        self._changes += 1
        self.settled.clear()

    async def run(self) -> None:
        """Rounds at their intervals until stopped; two are never closer than the minimum."""
        config = self._context.config
        least_s = config.rebalance_min_interval_ms / 1000
        while not self._stopped.is_set():
            self._due.clear()
            began = time.monotonic()
            balanced = self.suspended or await self.round()
            wait_s = config.rebalance_wait_interval_ms / 1000 if balanced else least_s
            await set_within(self._due, aligned_delay(wait_s))
            await set_within(self._stopped, began + least_s - time.monotonic())

    def stop(self) -> None:
        """No further round; one under way moves nothing any more that it has not begun to move."""
        self._due.set()
        self._stopped.set()

    async def round(self) -> bool:
        """One round over all topics. True when everything is as the allocation wants it.

        Queues that gave themselves up (an offset outside of the queue) and those of unsubscribed topics are let
        go first. A failed query for one topic leaves the others alone.
        """
        if failpoints.ARMED:
            await failpoints.reached("consumer.rebalance")
        self._rounds += 1
        changes = self._changes
        locks, handover = self._parts.locks, self._parts.handover
        if locks is not None:
            await locks.give_up_leaving()
        await self.release([one for one in self.assignment if one.claim_lost], "claim_lost")
        await self.release([one for one in self.assignment if one.lock_lost], "lock_lost")
        for reason in ("illegal", "reset"):
            await self._let_go([one for one in self.assignment if one.dropped and one.correction == reason], reason)
        topics = self._parts.subscriptions.topics
        await self._let_go([one for one in self.assignment if one.queue.topic not in topics], "unsubscribed")
        await self.release([one for one in self.assignment if self._outdated(one)], "resubscribed")
        shares: dict[str, Share] = {}
        async with aclosing(self.planner.plan(topics, self._rounds)) as plan:
            async for of_some in plan:
                if self._stopped.is_set():
                    return False  # the stop itself lets go of all queues
                shares |= of_some
                await self._apply(of_some)
        lacking = self._lacking(topics, shares)
        if not all(map(is_internal, lacking)):
            self.settled.clear()
        elif changes == self._changes:
            self.settled.set()
        return not lacking and not (locks and locks.leaving) and not (handover and handover.leaving)

    async def release_all(self, reason: str) -> None:
        """At the end: every queue is committed as far as it goes, and let go."""
        if self._parts.handover is not None:
            self._parts.handover.claims.end()
        await self.release(list(self.assignment), reason)
        if self._parts.handover is not None:
            await self._parts.handover.end()
        if self._parts.locks is not None:
            await self._parts.locks.give_up_leaving(wait=True)

    def _lacking(self, topics: Iterable[str], shares: Mapping[str, Share]) -> list[str]:
        """Topics that are not as the allocation wants them, or of which nobody could say how that is."""
        owned = self.assignment.by_topic()
        return [
            topic
            for topic in topics
            if (share := shares.get(topic)) is None or not share.listed or owned.get(topic, set()) != set(share.queues)
        ]

    async def _apply(self, shares: Mapping[str, Share]) -> None:
        """First everything lost is dropped and committed, then what is new is opened. Other topics stay as they are."""
        wanted = dict.fromkeys(queue for share in shares.values() for queue in share.queues)
        mine = [one for one in self.assignment if one.queue.topic in shares]
        await self._let_go([one for one in mine if one.queue not in wanted], "reassigned")
        idle_since = self._context.age_s() - self._context.config.pull_max_idle_time_ms / 1000
        idle = [one for one in mine if one.last_pull_s < idle_since and not one.in_line]
        await self._let_go(idle, "pull_idle")
        new = by_broker(queue for queue in wanted if queue not in self.assignment)
        await asyncio.gather(*map(self._open_new, new.values()))

    async def _open_new(self, new: Sequence[MessageQueue]) -> None:
        """Queues of one broker: what another one takes its time for keeps nothing of this one waiting."""
        handover = self._parts.handover
        if handover is None:
            await self._open_all(new)
            return
        claimed = await handover.claims.claim(new)
        try:
            await self._open_all(claimed)
        finally:
            handover.claims.let_go([queue for queue in claimed if queue not in self.assignment])

    async def _open_all(self, new: Sequence[MessageQueue]) -> None:
        if self._parts.locks is None:
            await asyncio.gather(*map(self._open, new))
        else:
            await self._open_locked(self._parts.locks, new)

    async def _open_locked(self, locks: QueueLocks, new: Sequence[MessageQueue]) -> None:
        """Those whose locks are granted, the others in a later round. The lock comes before the offset is read.

        RocketMQ reads it once more at the first pull, 500 ms later, for the commit of the former owner that is on its
        way. Here that commit was acknowledged before the former owner unlocked.
        """
        granted = await locks.lock(new)
        try:
            await asyncio.gather(*(self._open(queue, locked_at_s) for queue, locked_at_s in granted.items()))
        finally:
            locks.unlock([queue for queue in granted if queue not in self.assignment])

    async def _open(self, queue: MessageQueue, locked_at_s: float | None = None) -> None:
        """Nothing is opened while its offset cannot be read: the queue waits for the next round (RocketMQ's result
        -2).
        """
        try:
            start_offset, source = await self._parts.start.start_of(queue)
        except DejamqError as error:
            name = f"{queue.topic}:{queue.broker_name}:{queue.queue_id}"
            log.warning("queue_not_opened queue=%s: its offset cannot be read: %s", name, error)
            return
        self._begin(queue, start_offset, source, locked_at_s)

    def _begin(self, queue: MessageQueue, start_offset: int, source: str, locked_at_s: float | None = None) -> None:
        self._opened += 1
        held = self._parts.holding(queue, start_offset)
        owned = OwnedQueue(self._opened, queue, held, start_offset, last_pull_s=self._context.age_s())
        owned.locked_at_s = locked_at_s
        if self._parts.handover is not None:
            owned.generation = self._parts.handover.generation_of(queue)
            if not owned.generation:
                return  # another member got the queue while the offset was read
        subscription = self._parts.subscriptions.get(queue.topic)
        if subscription is not None:
            owned.expression, owned.tags = subscription.expression, subscription.tags
            owned.expression_type, owned.subscription_version = subscription.expression_type, subscription.version
        elif not is_internal(queue.topic):
            return  # unsubscribed while the offset was read
        self._parts.deliveries.opened(owned, source)
        self.assignment = self.assignment.plus(owned)
        owned.fetching = self._parts.spawn(self._parts.fetcher.run(owned), f"fetch-{owned.number}")

    def reopen(self, owned: OwnedQueue, start_offset: int, reason: str) -> None:
        """End this ownership and begin another one at this offset, at once and without a commit.

        Messages held or on their way belong to the ended ownership and reach no handler. For lite pull's seek.
        """
        owned.process_queue.dropped = True
        self._parts.deliveries.dropped(owned, reason)
        if owned.fetching is not None:
            owned.fetching.cancel()
        self.assignment = self.assignment.without((owned,))
        self._begin(owned.queue, start_offset, reason)

    def _outdated(self, owned: OwnedQueue) -> bool:
        """Its topic was unsubscribed and subscribed again since: pulls under way still ask for the former tags."""
        subscription = self._parts.subscriptions.get(owned.queue.topic)
        return subscription is not None and subscription.version != owned.subscription_version

    async def _let_go(self, leaving: Sequence[OwnedQueue], reason: str) -> None:
        """Release queues at once, as RocketMQ, or with graceful hand-over when their handlers have ended."""
        if self._parts.handover is None:
            await self.release(leaving, reason)
        else:
            self._parts.handover.begin(leaving, reason)

    async def release(self, leaving: Sequence[OwnedQueue], reason: str) -> None:
        """Drop queues: from here on results of their handlers count for nothing, and their offset is committed.

        Offsets of unsubscribed topics are not committed, as in RocketMQ (cause O14), nor are those of lost locks:
        they are another member's by now. The commit comes before the unlock, so that the next owner reads it.
        """
        leaving = [one for one in leaving if self.assignment.owned.get(one.queue) is one]
        if not leaving:
            return
        self.assignment = self.assignment.without(leaving)
        for owned in leaving:
            owned.process_queue.dropped = True
            self._parts.deliveries.dropped(owned, reason)
            if owned.fetching is not None:
                owned.fetching.cancel()
        why = "drop" if reason in ("reassigned", "pull_idle", "resubscribed") else reason
        if self._parts.handover is not None:
            await self._parts.handover.give_back(leaving, reason)
        elif reason not in ("unsubscribed", "lock_lost"):
            commits = (self._parts.offsets.commit(owned, why, offset=owned.corrected_offset) for owned in leaving)
            await asyncio.gather(*commits)
        fetching = [owned.fetching for owned in leaving if owned.fetching is not None]
        if fetching:
            await asyncio.wait(fetching)
        if self._parts.locks is not None:
            await self._parts.locks.give_up(leaving, wait=reason == "shutdown")
