"""Ordinary sends to the group's retry topic: how consumers in order give up, and what others do after a failed
send-back.

The broker makes a dead letter of it when a queue lock of the group is alive or its tries are used up. Source: RocketMQ
``ConsumeMessageOrderlyService.sendMessageBack``, ``DefaultMQPushConsumerImpl.sendMessageBackAsNormalMessage``; both
send by the client's inner producer.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext

import msgspec
import numpy as np
from dejamq_proto import names
from dejamq_proto.codes import DejamqError, error_for
from dejamq_proto.journal.events import Sendback
from dejamq_proto.records.record import Outgoing, encode_properties, tags_code
from dejamq_proto.wire.messages import SendRun

from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue, SendStatus
from dejamq.values.namespace import wrap

log = logging.getLogger("dejamq.clients.consumer")

INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
BUDGET_MS, TRIES = 3_000, 3  # the inner producer's own, whatever the program's producers have
UNLIMITED = (1 << 31) - 1
STORED = frozenset(int(status) for status in SendStatus)


class Try(msgspec.Struct, frozen=True):
    """The properties of the copy: tries so far, delay level, and how many tries it has (None: the group's number)."""

    times: int
    delay_level: int
    most: int | None


class RetrySend:
    """Owned by the event loop. ``queues`` gives the retry topic's queues; it raises DejamqError without any."""

    def __init__(
        self, context: ConsumerContext, deliveries: Deliveries, queues: Callable[[], Awaitable[Sequence[MessageQueue]]]
    ) -> None:
        self._context, self._deliveries, self._queues = context, deliveries, queues
        self._topic = names.retry_topic(context.group)

    async def send(self, owned: OwnedQueue, message: ReceivedMessage, max_reconsume_times: int) -> bool:
        """Give a message of a queue in order up. Whether it was stored; False: it was not, or nobody knows.

        Never raises but when cancelled. The broker that has the message is tried first: there the group's lock lives.
        A time-out is not tried again.
        """
        times = message.reconsume_times
        return await self._send(owned, message, Try(times, 3 + times, max_reconsume_times), elsewhere=False)

    async def send_retry(
        self, owned: OwnedQueue, message: ReceivedMessage, delay_level: int, max_reconsume_times: int | None,
        reason: str = "",
    ) -> bool:  # fmt: skip
        """As ``send``, for the next try of a message whose send-back failed: other brokers are tried first.

        ``delay_level`` 0 takes 3 + the tries so far, below 0 asks for a dead letter. When the send-back was stored
        after all, this makes a second retry of one failure (cause B11), as in RocketMQ. ``reason`` is for the journal.
        """
        times = message.reconsume_times
        if delay_level < 0:
            max_reconsume_times = times
        again = Try(times + 1, max(delay_level, 0) or 3 + times, max_reconsume_times)
        return await self._send(owned, message, again, elsewhere=True, why=reason)

    async def _send(
        self, owned: OwnedQueue, message: ReceivedMessage, again: Try, *, elsewhere: bool, why: str = ""
    ) -> bool:
        seq, outcome, reason = 0, "failed", ""
        try:
            async with asyncio.timeout(BUDGET_MS / 1000):
                for queue in await self._destinations(owned.queue.broker_name, elsewhere):
                    seq = self._context.next_seq()
                    outcome, reason = await self._send_to(queue, message, again, seq)
                    if outcome != "failed":
                        break
        except asyncio.CancelledError:
            self._journal(owned, message, "indefinite", seq, "cancelled")
            raise
        except TimeoutError:
            outcome, reason = "indefinite", f"no answer within {BUDGET_MS} ms"
        except DejamqError as error:
            reason = str(error)
        if outcome != "ok":
            log.warning("retry_not_stored message_id=%s reason=%s", message.message_id, reason)
        self._journal(owned, message, outcome, seq, reason or why)
        return outcome == "ok"

    async def _destinations(self, broker_name: str, elsewhere: bool) -> list[MessageQueue]:
        """One queue a broker, that of this broker first (``elsewhere``: last), others in any order."""
        queues = list(await self._queues())
        random.shuffle(queues)
        one_each = {queue.broker_name: queue for queue in queues}
        return sorted(one_each.values(), key=lambda queue: (queue.broker_name == broker_name) is elsewhere)[:TRIES]

    async def _send_to(self, queue: MessageQueue, message: ReceivedMessage, again: Try, seq: int) -> tuple[str, str]:
        """The journal's outcome and why."""
        try:
            observer = self._context.observer
            with nullcontext() if observer is None else observer.settling(
                "retry_send", message.topic, [message], after_process=True
            ):  # fmt: skip
                result = await self._context.link(queue.broker_name).send_run(self._run(queue, message, again, seq))
                if result.code not in STORED:
                    raise error_for(result.code, result.remark)
        except DejamqError as error:
            return "failed" if error.definite else "indefinite", str(error)
        return "ok", ""

    def _run(self, queue: MessageQueue, message: ReceivedMessage, again: Try, seq: int) -> SendRun:
        common = Outgoing.to(self._topic, flag=message.flag, reconsume_times=again.times)
        topic = wrap(self._context.config.namespace, message.topic)
        properties = encode_properties(retry_properties(message, topic, again))
        record = common.encode(queue.queue_id, int(time.time() * 1000), message.body, properties)
        return SendRun(
            client_id=self._context.client_id, boot_id=self._context.boot_id, seq=seq, group=INNER_PRODUCER,
            queues=[(self._topic, queue.queue_id)], sizes=np.array([len(record)], "<u4"), records=[record],
            tags_codes=np.array([tags_code(message.tags)], "<i4"), rewrite=True,
        )  # fmt: skip

    def _journal(self, owned: OwnedQueue, message: ReceivedMessage, outcome: str, seq: int, reason: str) -> None:
        if not self._context.journal.on:
            return
        self._deliveries.flush(owned)
        queue = owned.queue
        self._context.journal.write(Sendback(
            delivery_ids=[message.delivery_number], group=self._context.group, topic=queue.topic,
            broker_name=queue.broker_name, queue_id=queue.queue_id, path="fallback", outcome=outcome,
            queue_offsets=[message.queue_offset], unique_keys=[message.message_id], request_seq=seq, reason=reason,
        ))  # fmt: skip


def retry_properties(message: ReceivedMessage, topic: str, again: Try) -> dict[str, str]:
    """All of the message's own, UNIQ_KEY first, and what its next try or dead letter is known by. Pure.

    ``topic`` is the message's as brokers know it.
    """
    outdated = (
        "TRAN_MSG", names.PROPERTY_DELAY, names.PROPERTY_MAX_RECONSUME_TIMES, names.PROPERTY_DEAD_LETTER_REASON
    )  # fmt: skip
    kept = {name: text for name, text in message.properties.items() if name not in outdated}
    limit = {} if again.most is None else {names.PROPERTY_MAX_RECONSUME_TIMES: str(again.most)}
    reason = names.reason_text(message.failure)
    return {
        **kept,
        names.PROPERTY_RETRY_TOPIC: topic,
        names.PROPERTY_ORIGIN_MESSAGE_ID: kept.get(names.PROPERTY_ORIGIN_MESSAGE_ID) or message.message_id,
        names.PROPERTY_RECONSUME_TIME: str(again.times),
        names.PROPERTY_DELAY: str(again.delay_level),
        **limit,
        **({names.PROPERTY_DEAD_LETTER_REASON: reason} if reason else {}),
    }
