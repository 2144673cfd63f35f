"""Brings messages to handlers: a fixed number of workers share one queue of runs.

A task for each message would cost more than everything else together; workers that take from one shared iterator cost
next to nothing, and a handler that waits holds up only its own worker. Source: RocketMQ
``ConsumeMessageConcurrentlyService``.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from operator import length_hint
from typing import Any

import msgspec

from dejamq.assignment import OwnedQueue
from dejamq.context import Context
from dejamq.deliveries import Deliveries
from dejamq.handlers import CANCELLED, ConsumeStatus, Outcome, judge_answer, judge_error
from dejamq.overdue import GiveBack, Handling, Overdue
from dejamq.received import ReceivedMessage
from dejamq.subscriptions import Subscription, Subscriptions

log = logging.getLogger("dejamq.consumer")

SLICE_S = 0.005  # how long handlers that never wait may keep the loop from everything else
DONE = judge_answer(None, 1)


class Work(msgspec.Struct, eq=False):
    """Messages of one process queue for one handler. All workers that found it take from the same iterator.

    ``count`` is how many messages it began with; how many are left only the iterator knows.
    """

    owned: OwnedQueue
    handler: Callable[[Any], Awaitable[Any]]
    messages: Iterator[ReceivedMessage]
    count: int
    batch_size: int = 0
    again: bool = False
    """A local retry: a handler of this process queue has had them."""


class Dispatcher:
    """Owned by the event loop; ``work`` is the task of each of the ``max_concurrency`` workers."""

    def __init__(
        self, context: Context, subscriptions: Subscriptions, deliveries: Deliveries, send_back: GiveBack,
        *, max_concurrency: int,
    ) -> None:  # fmt: skip
        self._context, self._subscriptions = context, subscriptions
        self._deliveries, self._send_back = deliveries, send_back
        self._timeout_s = context.config.consume_timeout_ms / 1000
        self._retry_s = context.config.consume_retry_delay_ms / 1000
        self.overdue = Overdue(context.config.consume_timeout_ms, send_back, context.age_s)
        self.overdue.on_kept = self._retry_here
        self._executor = ThreadPoolExecutor(max_concurrency, thread_name_prefix="dejamq-handler")
        self._ready: deque[Work] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._retries: set[asyncio.TimerHandle] = set()
        self._stopping = self._hurried = False
        self._busy = 0
        self._quiet: asyncio.Future[None] | None = None
        self._yielded_s = 0.0

    def submit(self, owned: OwnedQueue, messages: list[ReceivedMessage], *, again: bool = False) -> None:
        """Queue messages for their handlers, in this order; those of a retry topic for their first topic's handler.

        Called by the fetcher in the order of the queue. Handlers of one queue still run side by side:
        concurrent consumption keeps no order (RocketMQ: ConsumeMessageConcurrentlyService).
        """
        if messages and messages[0].topic != owned.queue.topic:
            for topic in dict.fromkeys(message.topic for message in messages):
                self._queue(owned, topic, [message for message in messages if message.topic == topic], again)
        else:
            self._queue(owned, owned.queue.topic, messages, again)

    def _queue(self, owned: OwnedQueue, topic: str, messages: list[ReceivedMessage], again: bool) -> None:
        subscription = self._subscriptions.get(topic) or Subscription(topic, no_handler)
        handler = subscription.callable(self._executor)
        count = len(messages)
        self._ready.append(Work(owned, handler, iter(messages), count, subscription.batch_size, again))
        self._wake(1)

    def _wake(self, number: int) -> None:
        """Wake idle workers. Each that finds more than it takes wakes two further ones, so all are up after a few
        turns of the loop where handlers wait, and where they do not, one does all and hardly any comes for nothing.
        """
        while number and self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)
                number -= 1

    async def work(self) -> None:
        """One worker, until cancelled or drained."""
        handling = self.overdue.worker()
        while not self._stopping:
            if not self._ready:
                waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(waiting)
                await waiting
                continue
            work = self._ready[0]
            if len(self._ready) > 1 or length_hint(work.messages) > 1:
                self._wake(2)
            self._busy += 1
            try:
                await (self._run_batches(work, handling) if work.batch_size else self._run_each(work, handling))
            finally:
                handling.owned = handling.now = None
                self._busy -= 1
                self._tell_if_quiet()
            if self._ready and self._ready[0] is work:
                self._ready.popleft()

    async def drain(self, timeout_s: float) -> bool:
        """Start no further handler and wait for the running ones. False when some did not end in time."""
        self._stopping = True
        self._ready.clear()
        for retry in self._retries:
            retry.cancel()
        self._wake(len(self._idle))
        if not self._busy:
            return True
        self._quiet = asyncio.get_running_loop().create_future()
        if not self._hurried:
            await asyncio.wait((self._quiet,), timeout=timeout_s)
        return not self._busy

    def hurry(self) -> None:
        """Let ``drain`` wait no longer."""
        self._hurried = True
        if self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    def close(self) -> None:
        """After the workers ended. Threads whose plain handlers still run are left to end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _run_each(self, work: Work, handling: Handling) -> None:
        """The hot path: a success that needs nothing but being counted is settled here, everything else in
        ``_settle``.

        A handler that never waits is interrupted for the loop's other work after ``SLICE_S``, between two
        messages.
        """
        owned, handler, deliveries = work.owned, work.handler, self._deliveries
        held, clock = owned.process_queue, self._context.age_s
        handling.owned, count, spent_s = owned, 0, 0.0
        for message in work.messages:
            if held.dropped or held.draining or self._stopping:
                break
            if work.again:
                deliveries.enter_again(owned, (message,))
            else:
                deliveries.enter(owned, message)
            held.in_flight += 1
            handling.now = message
            handling.began_s = began = clock()
            try:
                answer = await handler(message)
            except Exception as error:
                outcome = self._failed(error, message)
            except asyncio.CancelledError:
                if self._cancelled(owned, [message], handling):
                    raise
                continue
            else:
                success = answer is None or answer is ConsumeStatus.SUCCESS
                outcome = DONE if success else self._judged(answer, 1)
            held.in_flight -= 1
            ended = clock()
            if outcome is DONE and not held.dropped and ended - began < self._timeout_s:
                held.finish(message.queue_offset)
                deliveries.succeed(owned, message)
                count += 1
                spent_s += ended - began
            else:
                handling.now = None
                await self._settle(owned, [message], outcome, ended - began)
            if not 0 <= ended - self._yielded_s <= SLICE_S:  # a clock that was put back must not keep the loop
                owned.counts.called(count, spent_s, succeeded=count)
                count, spent_s, owned.last_consume_s = 0, 0.0, ended
                await asyncio.sleep(0)
                self._yielded_s = clock()
        owned.counts.called(count, spent_s, succeeded=count)
        owned.last_consume_s = clock() if count else owned.last_consume_s

    async def _run_batches(self, work: Work, handling: Handling) -> None:
        """As ``_run_each`` for handlers of lists; one answer settles all of them."""
        owned, held, clock = work.owned, work.owned.process_queue, self._context.age_s
        handling.owned = owned
        while messages := list(islice(work.messages, work.batch_size)):
            if held.dropped or held.draining or self._stopping:
                return
            (self._deliveries.enter_again if work.again else self._deliveries.enter_batch)(owned, messages)
            held.in_flight += len(messages)
            handling.now = messages
            handling.began_s = began = clock()
            try:
                outcome = self._judged(await work.handler(messages), len(messages))
            except Exception as error:
                outcome = self._failed(error, messages[0])
            except asyncio.CancelledError:
                if self._cancelled(owned, messages, handling):
                    raise
                continue
            handling.now = None
            held.in_flight -= len(messages)
            await self._settle(owned, messages, outcome, clock() - began)
            await asyncio.sleep(0)

    async def _settle(
        self, owned: OwnedQueue, messages: list[ReceivedMessage], outcome: Outcome, took_s: float
    ) -> None:
        """Apply a judged result, unless the queue was lost meanwhile: then it counts for nothing (cause O9)."""
        held, succeeded = owned.process_queue, outcome.acknowledged
        owned.counts.called(1, took_s, succeeded=succeeded, failed=len(messages) - succeeded)
        owned.last_consume_s = self._context.age_s()
        outcome = _timed(outcome, took_s, self._timeout_s)
        if held.dropped:
            self._deliveries.end(owned, messages, outcome)
            return
        done, rest = messages[:succeeded], messages[succeeded:]
        for message in done:
            held.finish(message.queue_offset)
        if done and rest:  # the answer named those that are done: they did not fail
            self._deliveries.end(owned, done, DONE)
        self._deliveries.end(owned, rest or done, outcome)
        failed = [message for message in rest if message.queue_offset in held]
        held.settling += len(failed)
        try:
            for message in failed:
                if self.overdue.leaving(owned, message.queue_offset):
                    continue
                message.failure = outcome.reason
                if await self._send_back.send(owned, message, outcome.delay_level):
                    held.finish(message.queue_offset)
                else:
                    self._retry_here(owned, message)
        finally:
            held.settling -= len(failed)

    def _retry_here(self, owned: OwnedQueue, message: ReceivedMessage) -> None:
        """No broker took the message back: the try is counted here only."""
        message.local_retries += 1
        self._retry_later(owned, message.detach())  # it may wait for long, and would keep its whole run

    def _cancelled(self, owned: OwnedQueue, messages: list[ReceivedMessage], handling: Handling) -> bool:
        """Neither acknowledged nor a try. True when this worker is cancelled, be it by its handler."""
        handling.now = None
        owned.process_queue.in_flight -= len(messages)
        self._deliveries.end(owned, messages, CANCELLED)
        for message in messages:
            self._retry_later(owned, message)
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    def _retry_later(self, owned: OwnedQueue, message: ReceivedMessage) -> None:
        """The message stays unfinished, so that no commit passes it, and comes again from here."""
        if self._stopping:
            return

        def due() -> None:
            self._retries.discard(timer)
            if not owned.dropped:
                self.submit(owned, [message], again=True)

        timer = asyncio.get_running_loop().call_later(self._retry_s, due)
        self._retries.add(timer)

    def _judged(self, answer: object, count: int) -> Outcome:
        """A value that is no answer is logged each time: it is a fault of the program that only its author can mend."""
        outcome = judge_answer(answer, count)
        if outcome.status == "wrong_value":
            log.error("handler_answer_unknown group=%s: %s; delivering again", self._context.group, outcome.reason)
        return outcome

    def _failed(self, error: Exception, message: ReceivedMessage) -> Outcome:
        outcome = judge_error(error)
        if outcome.status == "exception":
            log.warning("handler_failed message_id=%s topic=%s", message.message_id, message.topic, exc_info=error)
        return outcome

    def _tell_if_quiet(self) -> None:
        if not self._busy and self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)


def _timed(outcome: Outcome, took_s: float, timeout_s: float) -> Outcome:
    """RocketMQ reports a slow handler as timed out, and still does what it returned."""
    if took_s < timeout_s or outcome.status not in ("success", "reconsume"):
        return outcome
    return msgspec.structs.replace(outcome, status="timeout", reason=f"{outcome.status} after {took_s:.0f} s")


async def no_handler(message: ReceivedMessage) -> None:
    raise LookupError(f"no handler is subscribed to topic {message.topic!r} any more")
