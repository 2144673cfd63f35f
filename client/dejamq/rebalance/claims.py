"""Claims of this client on queues, for graceful hand-over: asked for, renewed, and given back with the offset.

Without the claim on it no queue is opened, and a broker gives one to another member only after it was released, or was
not renewed for a minute. A process that is killed leaves its claims to their end: until then nobody has its queues.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec
from dejamq_proto.codes import DejamqError
from dejamq_proto.journal.events import Persist
from dejamq_proto.wire.messages import Key

from dejamq.net.waits import aligned_delay, set_within
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.values.message import MessageQueue

log = logging.getLogger("dejamq.clients.consumer")

RETRY_PART = 1 / 10  # of the interval, after a renewal that failed
LAST_TRIES = 3
NO_OFFSET = -1


class Claim(msgspec.Struct):
    """The claim that a broker granted; ``asked_s``: when it was last asked for with success, monotonic."""

    generation: int
    asked_s: float
    returning: bool = False


class QueueClaims:
    """Owned by the event loop. ``run`` is the task that renews."""

    def __init__(
        self, context: ConsumerContext, deliveries: Deliveries, *,
        on_lost: Callable[[MessageQueue], None], on_doubtful: Callable[[MessageQueue], None],
    ) -> None:  # fmt: skip
        """``on_lost``: a broker gave the queue to another member. ``on_doubtful``: soon another member may have it,
        as the claim could not be renewed for so long.
        """
        config = context.config
        self._on_lost, self._on_doubtful = on_lost, on_doubtful
        self._context, self._deliveries = context, deliveries
        self._interval_s, self._trust_s = config.claim_interval_ms / 1000, config.claim_trust_ms / 1000
        self._pause_s = config.rebalance_min_interval_ms / 1000
        self._due, self._ending = asyncio.Event(), asyncio.Event()
        self.held: dict[MessageQueue, Claim] = {}
        """All claims that this client believes to have, those on their way back too."""
        self._off: dict[str, str] = {}
        """By broker: why hand-over is not graceful in the group now."""

    @property
    def off(self) -> str:
        """Why queues are to be let go at once, as RocketMQ's clients do; '' as long as all members claim theirs."""
        return next(iter(self._off.values()), "")

    def wake(self) -> None:
        """Renew now: a connection is new, and its broker may have forgotten everything."""
        self._due.set()

    def end(self) -> None:
        """Queues are given back for good now: a broker that does not answer is not asked for ever."""
        self._ending.set()

    async def run(self) -> None:
        """Renew all claims at their interval, when woken, and soon after a renewal failed, until cancelled."""
        wait_s = self._interval_s
        while True:
            await set_within(self._due, aligned_delay(wait_s))
            self._due.clear()
            wait_s = self._interval_s if await self.renew() else self._interval_s * RETRY_PART

    async def claim(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Ask for queues that are not held; gives the granted ones. Queues on their way back are not asked for."""
        wanted, began_s = [queue for queue in queues if queue not in self.held], time.monotonic()
        try:
            answers = await self._ask(dict.fromkeys(wanted, 0))
        except asyncio.CancelledError:
            self._send_releases(dict.fromkeys(wanted, 0))  # the answer may be on its way
            raise
        granted = {queue: generation for queue, generation in answers.items() if generation}
        self.held |= {queue: Claim(generation, began_s) for queue, generation in granted.items()}
        return list(granted)

    async def renew(self) -> bool:
        """Ask again for held claims. A refused claim is lost; one that could not be asked for too long is in doubt.

        A process that was stopped for long doubts before it asks: its workers go on at once (cause R6). False when some
        of it could not be asked.
        """
        began_s = time.monotonic()
        mine = {queue: claim for queue, claim in self.held.items() if not claim.returning}
        self._doubt(mine)
        answers = await self._ask({queue: claim.generation for queue, claim in mine.items()})
        for queue, claim in mine.items():
            if self.held.get(queue) is not claim or claim.returning:
                continue  # given back while it was renewed; the broker does not take that for a renewal
            if answers.get(queue):
                claim.asked_s = began_s
            elif queue in answers:
                log.warning("claim_lost queue=%s: another member has it", _name(queue))
                del self.held[queue]
                self._on_lost(queue)
        self._doubt({queue: claim for queue, claim in mine.items() if queue not in answers})
        return len(answers) == len(mine)

    def _doubt(self, claims: dict[MessageQueue, Claim]) -> None:
        for queue, claim in claims.items():
            if time.monotonic() - claim.asked_s > self._trust_s and self.held.get(queue) is claim:
                self._on_doubtful(queue)

    async def release(self, owned_queues: Sequence[OwnedQueue]) -> None:
        """Give back dropped queues with their offsets, and wait until the brokers have said that they are free.

        Tried again until then, at most until the claims have surely ended; three times at the end of the client.
        """
        parts: dict[str, list[OwnedQueue]] = {}
        for owned in owned_queues:
            claim = self.held.get(owned.queue)
            if claim is not None and claim.generation == owned.generation:
                claim.returning = True
                parts.setdefault(owned.queue.broker_name, []).append(owned)
        await asyncio.gather(*(self._release_at(name, part) for name, part in parts.items()))

    def let_go(self, queues: Iterable[MessageQueue]) -> None:
        """Give back queues that were not opened after all, oneway and without an offset."""
        unused = [queue for queue in queues if (claim := self.held.get(queue)) and not claim.returning]
        self._send_releases({queue: self.held.pop(queue).generation for queue in unused})

    async def _ask(self, generations: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Generation for each queue whose broker answered, 0 for those refused."""
        parts = _by_broker(generations).items()
        answers = await asyncio.gather(*(self._ask_broker(name, part) for name, part in parts))
        return {queue: generation for answer in answers for queue, generation in answer.items()}

    async def _ask_broker(self, broker_name: str, part: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
        context = self._context
        try:
            link = context.master(broker_name)
            answer = await link.claim(context.group, [(_key(queue), number) for queue, number in part.items()])
        except DejamqError as error:
            log.warning("claim_failed broker=%s queues=%d reason=%s", broker_name, len(part), error)
            if not error.definite:  # it may have been granted all the same
                self._send_releases({queue: 0 for queue, number in part.items() if not number})
            return {}
        self._hear(broker_name, answer.off)
        return {queue: answer.granted.get(_key(queue), 0) for queue in part}

    def _hear(self, broker_name: str, off: str) -> None:
        before = self.off
        self._off.pop(broker_name, None)
        if off:
            self._off[broker_name] = off
        if self.off and not before:
            log.warning("handover_off group=%s reason=%s: queues are let go at once", self._context.group, self.off)
        elif before and not self.off:
            log.info("handover_on group=%s", self._context.group)

    async def _release_at(self, broker_name: str, part: Sequence[OwnedQueue]) -> None:
        tries, over_s = 0, max(self.held[owned.queue].asked_s for owned in part) + 2 * self._trust_s
        while not await self._try_release(broker_name, part):
            tries += 1
            if (self._ending.is_set() and tries >= LAST_TRIES) or time.monotonic() > over_s:
                text = "queues_not_released broker=%s queues=%d: their claims end by themselves"
                log.warning(text, broker_name, len(part))
                break
            await asyncio.sleep(self._pause_s)
        for owned in part:
            self.held.pop(owned.queue, None)

    async def _try_release(self, broker_name: str, part: Sequence[OwnedQueue]) -> bool:
        """Whether the broker has answered. What it refused was another's by now, and nothing was committed."""
        context, seq = self._context, self._context.next_seq()
        returned = [(_key(owned.queue), owned.generation, _offset(owned)) for owned in part]
        self._journal(part, seq, "sent")
        try:
            freed = await context.master(broker_name).release(context.group, returned, seq=seq)
        except DejamqError as error:
            self._journal(part, seq, "failed" if error.definite else "indefinite")
            log.warning("release_failed broker=%s queues=%d reason=%s", broker_name, len(part), error)
            return False
        for owned in part:
            if _key(owned.queue) not in freed:
                log.warning("claim_lost queue=%s: its progress since then counts for nothing", _name(owned.queue))
        return True

    def _send_releases(self, generations: dict[MessageQueue, int]) -> None:
        """Oneway; a failure is only logged: claims end by themselves."""
        for broker_name, part in _by_broker(generations).items():
            returned = [(_key(queue), generation, NO_OFFSET) for queue, generation in part.items()]
            try:
                self._context.master(broker_name).release_oneway(self._context.group, returned)
            except DejamqError as error:
                log.warning("release_failed broker=%s reason=%s", broker_name, error)

    def _journal(self, part: Sequence[OwnedQueue], seq: int, outcome: str) -> None:
        if not self._context.journal.on:
            return
        for owned in part:
            self._deliveries.flush(owned)
            queue = owned.queue
            self._context.journal.write(Persist(
                pq_id=owned.number, group=self._context.group, topic=queue.topic, broker_name=queue.broker_name,
                queue_id=queue.queue_id, value=_offset(owned), reason="release", request_seq=seq, outcome=outcome,
            ))  # fmt: skip


def _offset(owned: OwnedQueue) -> int:
    """Where the next owner begins, also when nothing was consumed: the group's place must not be guessed again."""
    return owned.process_queue.low_water if owned.corrected_offset is None else owned.corrected_offset


def _by_broker(generations: dict[MessageQueue, int]) -> dict[str, dict[MessageQueue, int]]:
    parts: dict[str, dict[MessageQueue, int]] = {}
    for queue, generation in generations.items():
        parts.setdefault(queue.broker_name, {})[queue] = generation
    return parts


def _key(queue: MessageQueue) -> Key:
    return queue.topic, queue.queue_id


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}:{queue.broker_name}:{queue.queue_id}"
