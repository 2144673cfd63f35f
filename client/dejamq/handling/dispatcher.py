"""Brings messages to handlers: a fixed number of workers share one queue of runs.

A task for each message would cost more than everything else together; workers that take from one shared iterator cost
next to nothing, and a handler that waits holds up only its own worker. Source: RocketMQ
``ConsumeMessageConcurrentlyService``.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from operator import length_hint
from typing import Any

import msgspec

from dejamq.handling.handler_threads import HandlerThreads
from dejamq.handling.overdue import GiveBack, HandlerCall, Overdue
from dejamq.handling.results import DONE, Results
from dejamq.handling.subscriptions import Subscription, Subscriptions
from dejamq.net.waits import before_each_suspension, ends_task
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.handlers import ConsumeStatus, HandlerOutcome
from dejamq.receiving.received import ReceivedMessage

SLICE_S = 0.005  # how long handlers that never wait may keep the loop from everything else


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
        self, context: ConsumerContext, subscriptions: Subscriptions, deliveries: Deliveries, send_back: GiveBack,
        *, max_concurrency: int,
    ) -> None:  # fmt: skip
        self._context, self._subscriptions = context, subscriptions
        self._deliveries = deliveries
        self._results = Results(
            context, deliveries, send_back, lambda owned, message: self.submit(owned, [message], again=True)
        )
        self._timeout_s = context.config.consume_timeout_ms / 1000
        self._executor = HandlerThreads(max_concurrency, "dejamq-handler")
        self._ready: deque[Work] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._stopping = self._hurried = False
        self._busy = 0
        self._quiet: asyncio.Future[None] | None = None
        self._yielded_s = 0.0

    @property
    def overdue(self) -> Overdue:
        """The watch over handlers that take too long."""
        return self._results.overdue

    def submit(self, owned: OwnedQueue, messages: list[ReceivedMessage], *, again: bool = False) -> None:
        """Queue messages for their handlers, in this order. A retry topic's messages go to their first topic's handler.

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
        """Wake idle workers. A worker that finds more than it takes wakes two further ones.

        When handlers wait, all workers are up after a few iterations of the event loop. When handlers do not wait,
        one worker does all, and hardly any other wakes for nothing.
        """
        while number and self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)
                number -= 1

    async def work(self) -> None:
        """One worker, until cancelled or drained."""
        handling = self.overdue.worker()
        await before_each_suspension(self._work(handling), partial(self._results.catch_up, handling))

    async def _work(self, handling: HandlerCall) -> None:
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
                handling.end()
                self._busy -= 1
                self._tell_if_quiet()
            if self._ready and self._ready[0] is work:
                self._ready.popleft()

    async def drain(self, timeout_s: float) -> bool:
        """Start no further handler and wait for the running ones. False when some did not end in time."""
        self._stopping = True
        self._ready.clear()
        self._results.close()
        self._wake(len(self._idle))
        if not self._busy:
            return True
        self._quiet = asyncio.get_running_loop().create_future()
        if not self._hurried:
            await asyncio.wait((self._quiet,), timeout=timeout_s)
        return not self._busy

    def hurry(self) -> None:
        """Let ``drain`` wait no longer, and the end of the program for no thread."""
        self._executor.abandon()
        self._hurried = True
        if self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    def close(self) -> None:
        """After the workers ended. Threads whose plain handlers still run are left to end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _run_each(self, work: Work, handling: HandlerCall) -> None:
        """The hot path: what ends well is only kept in ``handling.done``, and settled before anybody else can look.

        At level ``forensic`` each is settled before the next is entered, and what comes again by itself.
        """
        held, handler, results, clock = work.owned.process_queue, work.handler, self._results, self._context.age_s
        numbers, done, again = self._deliveries.numbers, handling.done, work.again
        told_first, worker = again or self._deliveries.forensic, asyncio.current_task()
        handling.begin(work.owned, clock(), again=again)
        for message in work.messages:
            if held.dropped or held.draining or self._stopping:
                break
            message.delivery_number = next(numbers)
            handling.now = message
            if told_first:
                results.catch_up(handling)
            try:
                answer = await handler(message)
                outcome = DONE if answer is None or answer is ConsumeStatus.SUCCESS else results.judged(answer, 1)
            except BaseException as error:
                if ends_task(error, worker):
                    self._cancelled(handling, [message])
                    raise
                outcome = results.failed(error, message)
            ended_s = clock()
            if outcome is DONE and not held.dropped and ended_s - handling.began_s < self._timeout_s:
                done.append(message)
                handling.now = None
                handling.began_s = ended_s
                if again:
                    results.catch_up(handling)
            else:
                await self._settle(handling, [message], outcome)
            if not 0 <= ended_s - self._yielded_s <= SLICE_S:  # a clock that was put back must not keep the loop
                results.catch_up(handling)
                results.count(handling)
                await asyncio.sleep(0)
                self._yielded_s = handling.began_s = handling.counted_s = clock()
        results.catch_up(handling)
        results.count(handling)

    async def _run_batches(self, work: Work, handling: HandlerCall) -> None:
        """As ``_run_each`` for handlers of lists; one answer settles all of them."""
        owned, held, clock, results = work.owned, work.owned.process_queue, self._context.age_s, self._results
        worker = asyncio.current_task()
        while messages := list(islice(work.messages, work.batch_size)):
            if held.dropped or held.draining or self._stopping:
                return
            (self._deliveries.enter_again if work.again else self._deliveries.enter_batch)(owned, messages)
            held.in_flight += len(messages)
            handling.begin(owned, clock(), again=work.again)
            handling.batch = messages
            try:
                outcome = results.judged(await work.handler(messages), len(messages))
            except BaseException as error:
                if ends_task(error, worker):
                    held.in_flight -= len(messages)
                    self._cancelled(handling, messages)
                    raise
                outcome = results.failed(error, messages[0])
            handling.batch = None
            held.in_flight -= len(messages)
            ended_s = clock()
            await results.settle(owned, messages, outcome, ended_s - handling.began_s)
            if not 0 <= ended_s - self._yielded_s <= SLICE_S:
                await asyncio.sleep(0)
                self._yielded_s = clock()

    async def _settle(self, handling: HandlerCall, messages: list[ReceivedMessage], outcome: HandlerOutcome) -> None:
        """Settle a message that did not simply succeed. Everything before it is settled first."""
        owned, took_s = self._put_down(handling), self._context.age_s() - handling.began_s
        self._results.count(handling)
        await self._results.settle(owned, messages, outcome, took_s)
        handling.began_s = handling.counted_s = self._context.age_s()

    def _cancelled(self, handling: HandlerCall, messages: list[ReceivedMessage]) -> None:
        """As ``Results.cancelled``, of what the worker has in hand."""
        self._results.cancelled(self._put_down(handling), messages)

    def _put_down(self, handling: HandlerCall) -> OwnedQueue:
        """The handler has ended, not simply well: it was entered, and has nothing in hand any more."""
        assert handling.owned is not None
        self._results.catch_up(handling)
        handling.now = handling.batch = None
        self._results.catch_up(handling)
        return handling.owned

    def _tell_if_quiet(self) -> None:
        if not self._busy and self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)


async def no_handler(message: ReceivedMessage) -> None:
    raise LookupError(f"no handler is subscribed to topic {message.topic!r} any more")
