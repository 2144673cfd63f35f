"""The outcome of messages when their handler has ended: finished, sent back, or kept for another try here.

Source: RocketMQ ``ConsumeMessageConcurrentlyService.processConsumeResult``.
"""

import asyncio
import logging
from collections.abc import Callable
from operator import attrgetter

import msgspec

from dejamq.handling.overdue import GiveBack, HandlerCall, Overdue
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.handlers import CANCELLED, HandlerOutcome, judge_answer, judge_error
from dejamq.receiving.received import ReceivedMessage

log = logging.getLogger("dejamq.clients.consumer")

DONE = judge_answer(None, 1)
PLACE = attrgetter("queue_offset")


class Results:
    """Owned by the event loop; workers call it."""

    def __init__(
        self, context: ConsumerContext, deliveries: Deliveries, send_back: GiveBack,
        again: Callable[[OwnedQueue, ReceivedMessage], None],
    ) -> None:  # fmt: skip
        """``again`` takes a message whose time for another try here has come."""
        self._context, self._deliveries, self._send_back, self._again = context, deliveries, send_back, again
        self._timeout_s = context.config.consume_timeout_ms / 1000
        self._retry_s = context.config.consume_retry_delay_ms / 1000
        self._retries: set[asyncio.TimerHandle] = set()
        self._closed = False
        self.overdue = Overdue(context.config.consume_timeout_ms, send_back, context.age_s, self._retry_here)

    def close(self) -> None:
        """No further try here. May be called twice."""
        self._closed = True
        for retry in self._retries:
            retry.cancel()

    def catch_up(self, handling: HandlerCall) -> None:
        """Settle what a worker did since it last let others run, and note which message it has in hand.

        Called before a worker waits, so that nobody sees less than what is true; between two waits nobody looks, and
        settling many messages at once costs a tenth of settling each.
        """
        owned, done, now, told = handling.owned, handling.done, handling.now, handling.told
        if owned is None or (now is told and not done):
            return
        (self._settle_each if self._deliveries.forensic else self._settle_all)(handling, owned)
        handling.told = now
        owned.process_queue.in_flight += (now is not None) - (told is not None)

    def _settle_all(self, handling: HandlerCall, owned: OwnedQueue) -> None:
        """What began since, then what has ended."""
        done, now, told = handling.done, handling.now, handling.told
        begun = done if told is None else done[1:]
        if now is not None and now is not told:
            begun = [*begun, now]
        if begun and handling.again:
            self._deliveries.entered_again(owned, begun)
        elif begun:
            self._deliveries.entered(owned, begun)
        if done:
            self._finish(handling, owned)

    def _settle_each(self, handling: HandlerCall, owned: OwnedQueue) -> None:
        """At level ``forensic``, where each is settled before the next begins: the one that a worker was seen with has
        ended, or another one begins, or both.
        """
        done, begins = handling.done, handling.now if handling.now is not handling.told else None
        for message in done:
            owned.process_queue.finish(message.queue_offset)
            self._deliveries.tell_succeeded(owned, message, followed=begins is not None)
            handling.count += 1
        done.clear()
        if begins is not None and handling.again:
            self._deliveries.entered_again(owned, (begins,))
        elif begins is not None:
            self._deliveries.tell_entered(owned, begins)

    def _finish(self, handling: HandlerCall, owned: OwnedQueue) -> None:
        """Finished messages count for the queue and in the journal."""
        done, held = handling.done, owned.process_queue
        if len(done) == 1:
            held.finish(done[0].queue_offset)
        else:
            held.finish_all(list(map(PLACE, done)))
        self._deliveries.succeed(owned, done)
        handling.count += len(done)
        done.clear()

    def count(self, handling: HandlerCall) -> None:
        """Add what a worker settled to the statistics; now and then is enough."""
        owned, count = handling.owned, handling.count
        if owned is not None and count:
            owned.counts.called(count, handling.began_s - handling.counted_s, succeeded=count)
            owned.last_consume_s, handling.count = handling.began_s, 0
        handling.counted_s = handling.began_s

    async def settle(
        self, owned: OwnedQueue, messages: list[ReceivedMessage], outcome: HandlerOutcome, took_s: float
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
        held.finish_all(list(map(PLACE, done)))
        if outcome.status == "success" and not rest:
            self._deliveries.succeed_together(owned, done)
            return
        if done and rest:  # the answer named those that are done: they did not fail
            self._deliveries.end(owned, done, DONE)
        self._deliveries.end(owned, rest or done, outcome)
        failed = [message for message in rest if message.queue_offset in held]
        if failed:
            await self._send_all_back(owned, failed, outcome)

    async def _send_all_back(self, owned: OwnedQueue, failed: list[ReceivedMessage], outcome: HandlerOutcome) -> None:
        held = owned.process_queue
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

    def cancelled(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        """The worker was cancelled, be it by its handler: neither acknowledged nor a try."""
        self._deliveries.end(owned, messages, CANCELLED)
        for message in messages:
            self._retry_later(owned, message)

    def judged(self, answer: object, count: int) -> HandlerOutcome:
        """A value that is no answer is logged each time: it is a fault of the program that only its author can mend."""
        outcome = judge_answer(answer, count)
        if outcome.status == "wrong_value":
            log.error("handler_answer_unknown group=%s: %s; delivering again", self._context.group, outcome.reason)
        return outcome

    def failed(self, error: BaseException, message: ReceivedMessage) -> HandlerOutcome:
        """The meaning of an exception; one that is no answer is logged."""
        outcome = judge_error(error)
        if outcome.status == "exception":
            log.warning("handler_failed message_id=%s topic=%s", message.message_id, message.topic, exc_info=error)
        return outcome

    def _retry_here(self, owned: OwnedQueue, message: ReceivedMessage) -> None:
        """No broker took the message back: the try is counted here only."""
        message.local_retries += 1
        self._retry_later(owned, message.detach())  # it may wait for long, and would keep its whole run

    def _retry_later(self, owned: OwnedQueue, message: ReceivedMessage) -> None:
        """The message stays unfinished, so that no commit passes it, and comes again from here."""
        if self._closed:
            return

        def due() -> None:
            self._retries.discard(timer)
            if not owned.dropped:
                self._again(owned, message)

        timer = asyncio.get_running_loop().call_later(self._retry_s, due)
        self._retries.add(timer)


def _timed(outcome: HandlerOutcome, took_s: float, timeout_s: float) -> HandlerOutcome:
    """RocketMQ reports a slow handler as timed out, and still does what it returned."""
    if took_s < timeout_s or outcome.status not in ("success", "reconsume"):
        return outcome
    return msgspec.structs.replace(outcome, status="timeout", reason=f"{outcome.status} after {took_s:.0f} s")
