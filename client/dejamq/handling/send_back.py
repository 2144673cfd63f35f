"""Giving a failed message back to its broker, which delivers it again later (RocketMQ: CONSUMER_SEND_MSG_BACK)."""

import asyncio
import logging
from contextlib import nullcontext

from dejamq_proto.codes import DejamqError
from dejamq_proto.journal.events import Sendback
from dejamq_proto.names import reason_text
from dejamq_proto.send_pb2 import SendBackRequest

from dejamq.handling.retry_send import RetrySend
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.handlers import TO_DEAD_LETTERS
from dejamq.receiving.received import ReceivedMessage

log = logging.getLogger("dejamq.clients.consumer")

EXPIRED = "expired"
"""The journal's reason of a message that was given back while its handler ran."""


class SendBack:
    """The broker keeps the message's id, counts the try and chooses the delay where the handler did not.

    When the send-back fails, this client itself sends the message to the group's retry topic. It does so after any
    failure, as in RocketMQ, so that a send-back whose answer was lost leaves two retries (cause B11).
    """

    def __init__(
        self, context: ConsumerContext, deliveries: Deliveries, max_reconsume_times: int | None, fallback: RetrySend
    ) -> None:
        self._context, self._deliveries, self._fallback = context, deliveries, fallback
        self._max_reconsume_times = max_reconsume_times

    async def send(
        self, owned: OwnedQueue, message: ReceivedMessage, delay_level: int, *, expired: bool = False
    ) -> bool:
        """True when a broker stored the retry. False: none did, or (indefinite) nobody knows.

        Never raises but when cancelled. Every request is in the journal with its outcome, because a retry that
        exists twice can be explained only by requests that were repeated.
        """
        if self._max_reconsume_times == 0:
            delay_level = TO_DEAD_LETTERS  # on the wire 0 tries would mean the group's own limit
        reason = EXPIRED if expired else ""
        if await self._by_broker(owned, message, delay_level, reason):
            return True
        return await self._fallback.send_retry(owned, message, delay_level, self._max_reconsume_times, reason)

    async def _by_broker(self, owned: OwnedQueue, message: ReceivedMessage, delay_level: int, reason: str) -> bool:
        queue, seq = owned.queue, self._context.next_seq()
        request = SendBackRequest(
            caller=self._context.caller(seq), group=self._context.group, topic=queue.topic,
            log_offset=message.log_offset, delay_level=delay_level, origin_message_id=message.message_id,
            max_reconsume_times=self._max_reconsume_times or 0,
            delivery_ref=f"{self._context.boot_id}:{message.delivery_number}", reason=reason_text(message.failure),
        )  # fmt: skip
        try:
            observer = self._context.observer
            with nullcontext() if observer is None else observer.settling(
                "send_back", message.topic, [message], after_process=True
            ):  # fmt: skip
                await self._context.link(queue.broker_name).send_back(request)
        except asyncio.CancelledError:
            self._journal(owned, message, "indefinite", seq, "cancelled")
            raise
        except DejamqError as error:
            outcome, reason = "failed" if error.definite else "indefinite", str(error)
            log.warning("send_back_failed message_id=%s reason=%s", message.message_id, error)
        else:
            outcome = "ok"
        self._journal(owned, message, outcome, seq, reason)
        return outcome == "ok"

    def _journal(self, owned: OwnedQueue, message: ReceivedMessage, outcome: str, seq: int, reason: str) -> None:
        if not self._context.journal.on:
            return
        self._deliveries.flush(owned)
        event = Sendback(
            delivery_ids=[message.delivery_number], group=self._context.group, topic=owned.queue.topic,
            broker_name=owned.queue.broker_name, queue_id=owned.queue.queue_id, path="rpc", outcome=outcome,
            queue_offsets=[message.queue_offset], unique_keys=[message.message_id], request_seq=seq, reason=reason,
        )  # fmt: skip
        self._context.journal.write(event)
