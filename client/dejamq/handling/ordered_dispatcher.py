"""Brings messages to handlers in the order of their queue: one handler at a time for each queue.

Workers take whole queues from one line. A queue keeps its worker while it has messages, for up to 60 s. A queue that
has to wait lines up again later: it is suspended, has no lock, or used up its 60 s. Source: RocketMQ
``ConsumeMessageOrderlyService``.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from dejamq.handling.dispatcher import SLICE_S, no_handler
from dejamq.handling.handler_threads import HandlerThreads
from dejamq.handling.queue_turns import HeldMessages, Turn, WorkerLine
from dejamq.handling.retry_send import UNLIMITED
from dejamq.handling.subscriptions import Subscription, Subscriptions
from dejamq.net.waits import ends_task
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.handlers import HandlerOutcome
from dejamq.receiving.ordered_answers import (
    CANCELLED,
    DONE,
    OrderedOutcome,
    OrderedVerdict,
    judge_answer,
    judge_failure,
    suspension_ms,
)
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue

log = logging.getLogger("dejamq.clients.consumer")

RESUME_S = 0.01
QUEUE_BUSY_S = 0.1  # before a queue is looked at again whose former ownership still has a handler


class OrderedRules(msgspec.Struct, frozen=True):
    """The program's choices. ``max_reconsume_times`` is without limit by default, as in RocketMQ."""

    max_concurrency: int
    auto_commit: bool = True
    max_reconsume_times: int = UNLIMITED


class LockSource(Protocol):
    """``QueueLocks``, or what stands for them in a broadcasting group."""

    def held(self, owned: OwnedQueue) -> bool: ...

    async def renew(self, owned: Sequence[OwnedQueue]) -> None: ...


class GiveUp(Protocol):
    """``RetrySend``, or what stands for it in a broadcasting group."""

    async def send(self, owned: OwnedQueue, message: ReceivedMessage, most: int, /) -> bool: ...


class OrderedDispatcher:
    """Owned by the event loop; ``work`` is the task of each of the ``max_concurrency`` workers.

    When a process ends, messages handed out and not committed are delivered again to the next owner, from the first
    of them on.
    """

    def __init__(
        self, context: ConsumerContext, subscriptions: Subscriptions, deliveries: Deliveries, retries: GiveUp,
        rules: OrderedRules, locks: LockSource,
    ) -> None:  # fmt: skip
        self.locks = locks
        self._context, self._subscriptions, self._rules = context, subscriptions, rules
        self._deliveries, self._retries = deliveries, retries
        config = context.config
        self._stretch_s = config.max_time_consume_continuously_ms / 1000
        self._lock_retry_s, self._timeout_s = config.lock_retry_ms / 1000, config.consume_timeout_ms / 1000
        self._executor = HandlerThreads(rules.max_concurrency, "dejamq-handler")
        self._handlers: dict[str, tuple[Subscription, Callable[[Any], Awaitable[Any]]]] = {}
        self._turns: dict[int, Turn] = {}
        self._running: dict[MessageQueue, Turn] = {}
        self._line = WorkerLine()
        self._busy = 0
        self._stopping = False
        self._ended = asyncio.Event()
        self._yielded_s = 0.0

    def submit(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        """Add messages behind the queue's waiting ones."""
        turn = self._turns.get(owned.number)
        if turn is None:
            self._forget_ended()
            turn = self._turns[owned.number] = Turn(owned, HeldMessages(owned.process_queue), asyncio.Event())
            turn.quiet.set()
        turn.lane.put(messages)
        self._line.wake(turn)

    async def work(self) -> None:
        """One worker, until cancelled or drained."""
        while not self._stopping:
            turn = await self._line.take()
            self._busy += 1
            pause_s: float | None = self._suspension_s(None)  # a worker that is cancelled leaves its turn to the others
            try:
                pause_s = await self._consume(turn)
            finally:
                self._busy -= 1
                self._tell_if_ended()
                self._line.give_back(turn, pause_s)

    async def quiet(self, owned: OwnedQueue, timeout_s: float) -> bool:
        """Wait until no handler of the queue runs, at most so long. Whether none does."""
        turn = self._turns.get(owned.number)
        if turn is None or turn.quiet.is_set():
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await turn.quiet.wait()
        except TimeoutError:
            return False
        return True

    async def drain(self, timeout_s: float) -> bool:
        """Start no further handler and wait for the running ones. False when some did not end in time."""
        self._stopping = True
        self._line.close()
        self._tell_if_ended()
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            pass
        return not self._busy

    def hurry(self) -> None:
        """Let ``drain`` wait no longer, and the end of the program for no thread."""
        self._executor.abandon()
        self._ended.set()

    def close(self) -> None:
        """After the workers ended. Threads whose plain handlers still run are left to end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _forget_ended(self) -> None:
        """A dropped queue counts for nothing more, once its handler ended: until then its lock is kept for it."""
        ended = [number for number, turn in self._turns.items() if turn.owned.dropped and turn.quiet.is_set()]
        for number in ended:
            del self._turns[number]

    async def _consume(self, turn: Turn) -> float | None:
        """Handle what waits, one batch after the other. Seconds until there is more to do here, None: when more comes.

        Two ownerships of one queue never run side by side, not even when the first was forced to give its lock back.
        """
        owned, queue, began_s = turn.owned, turn.owned.queue, time.monotonic()
        if self._running.setdefault(queue, turn) is not turn:
            return QUEUE_BUSY_S
        try:
            held = owned.process_queue
            while turn.lane and not (owned.dropped or held.draining or self._stopping):
                if not self.locks.held(owned):
                    return await self._lock_again(owned)
                if time.monotonic() - began_s > self._stretch_s:
                    return RESUME_S
                pause_s = await self._handle_next(turn)
                if pause_s is not None:
                    return pause_s
        finally:
            del self._running[queue]
        return None

    async def _lock_again(self, owned: OwnedQueue) -> float:
        """RocketMQ: tryLockLaterAndReconsume."""
        await self.locks.renew([owned])
        return RESUME_S if self.locks.held(owned) else self._lock_retry_s

    async def _handle_next(self, turn: Turn) -> float | None:
        """One call of a handler, judged and applied. Seconds to pause, None to go on."""
        owned, held = turn.owned, turn.owned.process_queue
        topic = turn.lane.next_topic
        subscription, handler = self._handler_of(topic)
        messages = turn.lane.take(subscription.batch_size or 1)
        self._enter(owned, messages, batch=bool(subscription.batch_size))
        held.in_flight += len(messages)
        turn.quiet.clear()
        began_s, worker = time.monotonic(), asyncio.current_task()
        try:
            answer = await handler(messages if subscription.batch_size else messages[0])
            verdict = judge_answer(answer, auto_commit=self._rules.auto_commit)
        except BaseException as error:
            if ends_task(error, worker):
                self._cancelled(turn, messages)
                raise
            verdict = judge_failure(error)
            if verdict.status == "exception":
                log.warning("handler_failed message_id=%s topic=%s", messages[0].message_id, topic, exc_info=error)
        finally:
            held.in_flight -= len(messages)
            turn.quiet.set()
        ended_s = time.monotonic()
        failed = len(messages) if verdict.action in (OrderedOutcome.SUSPEND, OrderedOutcome.ROLLBACK) else 0
        owned.counts.called(1, ended_s - began_s, succeeded=len(messages) - failed, failed=failed)
        owned.last_consume_s = self._context.age_s()
        pause_s = await self._settle(turn, messages, verdict, late=ended_s - began_s >= self._timeout_s)
        if ended_s - self._yielded_s > SLICE_S:
            await asyncio.sleep(0)
            self._yielded_s = time.monotonic()
        return pause_s

    def _handler_of(self, topic: str) -> tuple[Subscription, Callable[[Any], Awaitable[Any]]]:
        """The topic's handler today; finding out how to call it is done once for each subscription."""
        subscription = self._subscriptions.get(topic)
        known = self._handlers.get(topic)
        if known is None or known[0] is not subscription:
            wanted = subscription or Subscription(topic, no_handler)
            known = self._handlers[topic] = wanted, wanted.callable(self._executor)
        return known

    def _enter(self, owned: OwnedQueue, messages: list[ReceivedMessage], *, batch: bool) -> None:
        again = any(message.delivery_number for message in messages)
        if batch:
            self._deliveries.enter_batch(owned, messages, kind="suspend_retry" if again else "first")
        elif again:
            self._deliveries.enter_again(owned, messages, kind="suspend_retry")
        else:
            self._deliveries.enter(owned, messages[0])

    async def _settle(
        self, turn: Turn, messages: list[ReceivedMessage], verdict: OrderedVerdict, *, late: bool
    ) -> float | None:
        """Apply a verdict, unless the queue was lost meanwhile: then it counts for nothing (cause O9)."""
        owned, lane, action = turn.owned, turn.lane, verdict.action
        if owned.dropped:
            self._end(owned, messages, verdict, late)
            return None
        if action is OrderedOutcome.COMMIT:
            lane.commit()
        elif action is OrderedOutcome.ROLLBACK:
            lane.rollback()
        if verdict is DONE and not late:
            self._deliveries.succeed_together(owned, messages)
            return None
        self._end(owned, messages, verdict, late)
        if action is OrderedOutcome.SUSPEND and await self._settled(owned, messages, verdict):
            if self._rules.auto_commit and not owned.dropped:
                lane.commit()
            return None
        if action is OrderedOutcome.SUSPEND:
            lane.again(messages)
        elif action is not OrderedOutcome.ROLLBACK:
            return None
        return self._suspension_s(verdict.suspend_ms)

    async def _settled(self, owned: OwnedQueue, messages: list[ReceivedMessage], verdict: OrderedVerdict) -> bool:
        """As ``_given_up``, seen by whoever wants to hand the queue over."""
        held = owned.process_queue
        held.settling += len(messages)
        try:
            return await self._given_up(owned, messages, verdict)
        finally:
            held.settling -= len(messages)

    async def _given_up(self, owned: OwnedQueue, messages: list[ReceivedMessage], verdict: OrderedVerdict) -> bool:
        """Whether all of them are dead letters now; if not, all are delivered again, those too that are (cause L4).

        RocketMQ: checkReconsumeTimes. Its tries are counted here only: the next owner begins with those of the record.
        """
        most, kept = self._rules.max_reconsume_times, False
        for message in messages:
            exhausted = verdict.dead or message.reconsume_times >= most
            message.failure = verdict.reason
            if exhausted and await self._retries.send(owned, message, most):
                continue
            kept = True
            message.local_retries += 1
        return not kept

    def _cancelled(self, turn: Turn, messages: list[ReceivedMessage]) -> None:
        """The worker was cancelled, be it by its handler: neither acknowledged nor a try."""
        self._deliveries.end(turn.owned, messages, HandlerOutcome(CANCELLED.status))
        turn.lane.again(messages)

    def _end(self, owned: OwnedQueue, messages: list[ReceivedMessage], verdict: OrderedVerdict, late: bool) -> None:
        """Journal a result. A value that is no answer is logged each time: only its author can mend it."""
        status, reason = verdict.status, verdict.reason
        if reason and status in ("success", "wrong_value"):
            log.error("handler_answer_unknown group=%s: %s", self._context.group, reason)
        if late and status in ("success", "reconsume", "suspend", "rollback"):
            status, reason = "timeout", f"{status} after {self._timeout_s:.0f} s or more"
        self._deliveries.end(owned, messages, HandlerOutcome(status, reason=reason))

    def _suspension_s(self, wanted_ms: int | None) -> float:
        return suspension_ms(wanted_ms, self._context.config.suspend_current_queue_time_ms) / 1000

    def _tell_if_ended(self) -> None:
        if self._stopping and not self._busy:
            self._ended.set()
