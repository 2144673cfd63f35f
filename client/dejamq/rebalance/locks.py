"""Locks of this client's queues, for consumption in order: asked for, renewed, and given back.

A broker gives a lock for 60 s, the client renews it every 20 s and believes in it for 30 s. Source: RocketMQ
``RebalanceImpl.lock``/``lockAll``, ``RebalancePushImpl.tryRemoveOrderMessageQueue``. The ages are by the
time of day as there, unless ``age_clock`` says otherwise; other than there they count from when a lock was asked for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec
from dejamq_proto.codes import DejamqError
from dejamq_proto.journal.events import Unlock
from dejamq_proto.wire.messages import Key

from dejamq.net.waits import aligned_delay, set_within
from dejamq.receiving.assignment import OwnedQueue, by_broker
from dejamq.receiving.context import ConsumerContext
from dejamq.values.message import MessageQueue

log = logging.getLogger("dejamq.clients.consumer")

FIRST_RENEWAL = 1 / 20  # of the interval: after 1 s
Quiet = Callable[[OwnedQueue, float], Awaitable[bool]]


class QueueLocks:
    """Owned by the event loop. ``run`` is the task that renews.

    A process that is killed leaves its locks to their end: nobody consumes its queues for up to 60 s, as in RocketMQ.
    """

    def __init__(
        self,
        context: ConsumerContext,
        owned: Callable[[], Iterable[OwnedQueue]],
        quiet: Quiet,
        on_lost: Callable[[], None],
    ) -> None:
        """``owned`` gives the queues whose locks are to be kept.

        ``quiet`` waits at most so many seconds until no handler of a queue runs, and says whether none does.
        ``on_lost`` is called when a broker refused to renew a lock; the queue is dropped already.
        """
        config = context.config
        self._context, self._owned, self._quiet, self._on_lost = context, owned, quiet, on_lost
        self._interval_s, self._life_s = config.lock_interval_ms / 1000, config.lock_max_live_time_ms / 1000
        self._forced_s, self._wait_s = config.unlock_delay_time_ms / 1000, config.consume_lock_wait_ms / 1000
        self._due = asyncio.Event()
        self.leaving: dict[int, OwnedQueue] = {}
        """Given up and still locked, because a handler runs; by number."""
        self._taken: set[MessageQueue] = set()

    def held(self, owned: OwnedQueue) -> bool:
        """Whether this client may believe that the queue is its own."""
        locked_at_s = owned.locked_at_s
        return locked_at_s is not None and self._context.age_s() - locked_at_s <= self._life_s

    def wake(self) -> None:
        """Renew now: a connection is new, and its broker may have forgotten everything."""
        self._due.set()

    async def run(self) -> None:
        """Renew all locks at their interval, or when woken, until cancelled."""
        wait_s = self._interval_s * FIRST_RENEWAL
        while True:
            await set_within(self._due, aligned_delay(wait_s))
            self._due.clear()
            await self.renew([one for one in self._owned() if not one.dropped])
            wait_s = self._interval_s

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, float]:
        """Lock queues that are not owned yet: those that were granted, with the time they were asked for.

        A queue that this client is still giving up is not asked for: its handler runs.
        """
        busy = {one.queue for one in self.leaving.values()}
        began_s = self._context.age_s()
        asked = [queue for queue in queues if queue not in busy]
        try:
            answers = await self._ask(asked)
        except asyncio.CancelledError:
            self.unlock(asked)  # the answer may be on its way
            raise
        taken = {queue: began_s for queue, granted in answers.items() if granted}
        self._taken |= taken.keys()
        return taken

    async def renew(self, owned: Sequence[OwnedQueue]) -> None:
        """Ask again for owned queues. A refused lock is lost; a lock that could not be asked for stays as it is.

        RocketMQ only marks a refused queue and goes on with it once it gets the lock back. Here its messages and
        its progress are let go: another member has consumed from the committed offset meanwhile.
        """
        began_s = self._context.age_s()
        answers = await self._ask([one.queue for one in owned])
        for one in owned:
            granted = answers.get(one.queue)
            if granted and one.locked_at_s is None:
                if one.queue not in self._taken:  # given back while the renewal was under way, which took it again
                    self.unlock([one.queue])
            elif granted:
                one.locked_at_s = max(began_s, one.locked_at_s or began_s)
            elif granted is not None and not one.dropped:
                self._lose(one)

    def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back of queues that were not opened after all."""
        for name, part in by_broker(queues).items():
            self._send_unlock(name, [Return(queue) for queue in part])

    def unlock_owned(self, owned: Iterable[OwnedQueue]) -> None:
        """Give the locks of owned queues back at once; a renewal under way must not take them again."""
        parts: dict[str, list[Return]] = {}
        for one in owned:
            if one.locked_at_s is not None:
                parts.setdefault(one.queue.broker_name, []).append(Return(one.queue, one.number))
                one.locked_at_s = None
        for name, part in parts.items():
            self._send_unlock(name, part)

    async def give_up(self, leaving: Iterable[OwnedQueue], *, wait: bool = False) -> None:
        """Unlock dropped queues whose offsets are committed, each as soon as no handler of it runs.

        A handler has ``consume_lock_wait_ms`` to end; after that the queue stays locked and ``give_up_leaving`` tries
        it again. Unlocks are sent oneway, unless ``wait``.
        """
        mine = {one.number: one for one in leaving if one.locked_at_s is not None}
        self.leaving |= mine
        await self._try(list(mine.values()), wait=wait)

    async def give_up_leaving(self, *, wait: bool = False) -> None:
        """Try those again that could not be unlocked."""
        await self._try(list(self.leaving.values()), wait=wait)

    async def _try(self, leaving: Sequence[OwnedQueue], *, wait: bool) -> None:
        quiet = await asyncio.gather(*(self._quiet(one, self._wait_s) for one in leaving))
        returned = []
        for one, calm in zip(leaving, quiet, strict=True):
            if calm or self._overdue(one):
                self.leaving.pop(one.number, None)
                one.locked_at_s = None
                if not one.lock_lost:
                    returned.append(Return(one.queue, one.number, forced=not calm))
        parts: dict[str, list[Return]] = {}
        for each in returned:
            parts.setdefault(each.queue.broker_name, []).append(each)
        answers = [self._send_unlock(name, part) for name, part in parts.items()]
        if wait and answers:
            await asyncio.wait(answers)

    def _overdue(self, owned: OwnedQueue) -> bool:
        """Not renewed for so long that the lock is given back under a running handler (cause R11)."""
        return owned.locked_at_s is None or self._context.age_s() > owned.locked_at_s + self._forced_s

    def _lose(self, owned: OwnedQueue) -> None:
        queue = owned.queue
        log.warning("lock_lost queue=%s:%s:%d: another member holds it", queue.topic, queue.broker_name, queue.queue_id)
        self._taken.discard(queue)
        owned.lock_lost = owned.process_queue.dropped = True
        self._on_lost()

    async def _ask(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Whether each is this client's now; those whose broker could not be asked are left out."""
        parts = by_broker(queues).items()
        answers = await asyncio.gather(*(self._ask_broker(name, part) for name, part in parts))
        return {queue: granted for answer in answers for queue, granted in answer.items()}

    async def _ask_broker(self, broker_name: str, queues: Sequence[MessageQueue]) -> dict[MessageQueue, bool]:
        context = self._context
        try:
            link, keys = context.master(broker_name), [_key(queue) for queue in queues]
            locked = await link.lock_batch(context.group, keys, timeout_ms=context.config.lock_timeout_ms)
        except DejamqError as error:
            log.warning("lock_failed broker=%s queues=%d reason=%s", broker_name, len(queues), error)
            return {}
        return {queue: _key(queue) in locked for queue in queues}

    def _send_unlock(self, broker_name: str, returned: Sequence["Return"]) -> asyncio.Future[None]:
        """One oneway to one broker, journalled before it leaves; a failure is only logged."""
        context, seq = self._context, self._context.next_seq()
        for each in returned:
            self._taken.discard(each.queue)
            self._journal(each, seq)
        keys, timeout_ms = [_key(each.queue) for each in returned], context.config.lock_timeout_ms
        try:
            return context.master(broker_name).unlock_batch_oneway(context.group, keys, timeout_ms=timeout_ms, seq=seq)
        except DejamqError as error:
            log.warning("unlock_failed broker=%s reason=%s", broker_name, error)
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done

    def _journal(self, returned: "Return", seq: int) -> None:
        if self._context.journal.on:
            queue = returned.queue
            self._context.journal.write(Unlock(
                broker_name=queue.broker_name, group=self._context.group, topic=queue.topic, queue_id=queue.queue_id,
                client_id=self._context.client_id, pq_id=returned.pq_id, forced=returned.forced, request_seq=seq,
            ))  # fmt: skip


class Return(msgspec.Struct, frozen=True):
    """A lock on its way back; ``pq_id`` 0 for a queue that was never opened."""

    queue: MessageQueue
    pq_id: int = 0
    forced: bool = False


def _key(queue: MessageQueue) -> Key:
    return queue.topic, queue.queue_id
