"""A message that an operator gives to one member's handler: no queue is owned for it, and no progress moves.

It is journalled as a delivery of kind ``direct``, which the audit counts as asked for (cause L7). Source: RocketMQ
``ConsumeMessageConcurrentlyService.consumeMessageDirectly`` and its ordered twin.
"""

import asyncio
import logging
import time

from dejamq_proto.client_pb2 import TakeDirectly
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import BadRecord
from dejamq_proto.records.run import BadRun
from dejamq_proto.running_pb2 import DirectResult

from dejamq.clients.options import Options
from dejamq.handling.handler_threads import HandlerThreads
from dejamq.handling.subscriptions import Subscription, Subscriptions
from dejamq.net.waits import ends_task
from dejamq.receiving import handlers, ordered_answers
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.handlers import HandlerOutcome
from dejamq.receiving.process_queue import ProcessQueue
from dejamq.receiving.received import ReceivedMessage, receive_stored
from dejamq.values.namespace import unwrap, wrap_queue

log = logging.getLogger("dejamq.clients.consumer")

NO_QUEUE = 0
"""The number of an ownership that is none."""
RESULTS = {
    "success": "SUCCESS", "uncommitted": "SUCCESS", "reconsume": "LATER", "suspend": "LATER", "rollback": "ROLLBACK",
    "wrong_value": "LATER", "exception": "THROW_EXCEPTION",
}  # fmt: skip
"""The journal's words in RocketMQ's (``CMResult``)."""


class Direct:
    """One push consumer's answers to an operator. Owned by the event loop; handlers run beside the ordinary ones."""

    def __init__(self, options: Options, subscriptions: Subscriptions, deliveries: Deliveries, boot_id: str) -> None:
        self._options, self._subscriptions, self._deliveries = options, subscriptions, deliveries
        self._boot_id = boot_id
        self._executor: HandlerThreads | None = None

    async def take(self, wanted: TakeDirectly) -> DirectResult:
        """Have the message handled and say how that ended; whatever the handler does is a result, no error.

        Raises MESSAGE_ILLEGAL for bytes that are no message, SUBSCRIPTION_NOT_EXIST for a topic without a handler.
        """
        message = self._message(wanted)
        subscription = self._subscriptions.get(message.topic)
        if subscription is None:
            text = f"nothing handles topic {message.topic!r} in this consumer"
            raise DejamqError(text, code=Code.SUBSCRIPTION_NOT_EXIST, definite=True)
        owned = OwnedQueue(
            NO_QUEUE, wrap_queue(self._options.config.namespace, message.queue), ProcessQueue(message.queue_offset),
            message.queue_offset,
        )  # fmt: skip
        self._deliveries.enter_again(owned, (message,), kind="direct")
        began = time.monotonic()
        outcome, result = HandlerOutcome("cancelled"), ""
        try:
            outcome, result = await self._handle(subscription, message)
        finally:
            self._deliveries.end(owned, (message,), outcome)
        return DirectResult(
            result=result, remark=outcome.reason, ordered=self._options.ordered, auto_commit=self._options.auto_commit,
            spent_ms=int((time.monotonic() - began) * 1000),
        )  # fmt: skip

    def hurry(self) -> None:
        """The end of the program waits for no thread."""
        if self._executor is not None:
            self._executor.abandon()

    def close(self) -> None:
        """Let go of the thread; what it still runs ends by itself."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def _handle(self, subscription: Subscription, message: ReceivedMessage) -> tuple[HandlerOutcome, str]:
        self._executor = self._executor or HandlerThreads(1, "dejamq-direct")
        handler, task = subscription.callable(self._executor), asyncio.current_task()
        try:
            answer = await handler([message] if subscription.batch_size else message)
        except BaseException as error:
            if ends_task(error, task):
                raise
            log.warning("handler_failed message_id=%s topic=%s", message.message_id, message.topic, exc_info=error)
            return self._failed(error)
        return self._judged(answer)

    def _judged(self, answer: object) -> tuple[HandlerOutcome, str]:
        if not self._options.ordered:
            outcome = handlers.judge_answer(answer, 1)
            return outcome, RESULTS[outcome.status]
        verdict = ordered_answers.judge_answer(answer, auto_commit=self._options.auto_commit)
        said = answer is ordered_answers.OrderedStatus.COMMIT
        return HandlerOutcome(verdict.status, reason=verdict.reason), "COMMIT" if said else RESULTS[verdict.status]

    def _failed(self, error: BaseException) -> tuple[HandlerOutcome, str]:
        if not self._options.ordered:
            outcome = handlers.judge_error(error)
            return outcome, RESULTS[outcome.status]
        verdict = ordered_answers.judge_failure(error)
        return HandlerOutcome(verdict.status, reason=verdict.reason), RESULTS[verdict.status]

    def _message(self, wanted: TakeDirectly) -> ReceivedMessage:
        try:
            message = receive_stored(wanted.record, wanted.broker_name, self._boot_id, self._options.config.namespace)
        except (BadRecord, BadRun) as error:
            raise DejamqError(f"this is no message: {error}", code=Code.MESSAGE_ILLEGAL, definite=True) from None
        message._batch.group = unwrap(self._options.config.namespace, self._options.group)
        return message
