"""Requests and their replies: a message that is sent, and the message that some consumer sends back for it.

The reply comes over the heartbeat channel of a broker that this client is connected to. Source: RocketMQ
``DefaultMQProducer.request``, ``RequestFutureHolder``, ``MessageUtil.createReplyMessage``.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import msgspec
import numpy as np
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError, RequestTimeout
from dejamq_proto.names import MASTER_ID
from dejamq_proto.records.record import BadRecord, decode
from dejamq_proto.records.run import BadRun
from dejamq_proto.wire.messages import PullAnswer

from dejamq.net.instance import Instance
from dejamq.receiving.received import ReceivedMessage, receive
from dejamq.values.message import Message, MessageQueue, SendResult
from dejamq.values.namespace import unwrap

log = logging.getLogger("dejamq")


def pushed_message(record: bytes, boot_id: str, broker_name: str = "", namespace: str = "") -> ReceivedMessage:
    """The message of a record that a broker pushed. Raises BadRecord, BadRun for bytes that are not a record."""
    header = decode(record, check_crc=False)
    queue = MessageQueue(unwrap(namespace, header.topic), broker_name, header.queue_id)
    answer = PullAnswer(sizes=np.array([len(record)], "<u4"), records=(record,))
    batch, (message,) = receive(answer, queue, boot_id)
    batch.namespace = namespace
    return message


class ExpectedReply:
    """One request: the message as it travels, and the wait for its reply."""

    def __init__(self, message: Message, future: "asyncio.Future[ReceivedMessage]") -> None:
        self.message, self._future = message, future

    async def reply(self, sending: "asyncio.Future[SendResult]", deadline: float) -> ReceivedMessage:
        """The reply, also one that overtakes the broker's word on the request. ``deadline`` is monotonic seconds.

        Raises RequestTimeout, and what ``sending`` raises.
        """
        try:
            async with asyncio.timeout(deadline - monotonic()):
                await asyncio.wait((sending, self._future), return_when=asyncio.FIRST_COMPLETED)
                if not self._future.done():
                    await sending
                return await self._future
        except TimeoutError as error:
            if isinstance(error, DejamqError):
                raise
            sent = "was sent" if sending.done() else "was not acknowledged"
            text = f"no reply in time: request {self.message.message_id} to {self.message.topic!r} {sent}"
            raise RequestTimeout(text, definite=False) from None


class Requests:
    """The requests of one producer that wait for a reply, by correlation id. Owned by the event loop."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._introduced: set[str] = set()
        self._news = asyncio.Event()
        self._ended: DejamqError | None = None
        instance.presence.on_connected.connect(self._connected)
        instance.presence.on_reply.connect(self.arrived)

    @property
    def waiting(self) -> int:
        """How many requests wait for a reply."""
        return len(self._waiting)

    @asynccontextmanager
    async def expecting(self, message: Message, timeout_ms: float, topic: str) -> AsyncIterator[ExpectedReply]:
        """Wait for the reply to this message while the block runs; a broker that could bring it knows of us before.

        ``topic`` is the message's as brokers know it.
        """
        correlation_id = str(uuid.uuid4())
        properties = {
            **message.properties,
            names.PROPERTY_CORRELATION_ID: correlation_id,
            names.PROPERTY_REPLY_TO_CLIENT: self._instance.client_id,
            names.PROPERTY_TTL: str(int(timeout_ms)),
        }
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        try:
            await self._introduce(topic, timeout_ms / 1000)
            yield ExpectedReply(msgspec.structs.replace(message, properties=properties), future)
        finally:
            del self._waiting[correlation_id]
            future.cancel()
            seen(future)  # the producer may have been closed

    def arrived(self, record: bytes) -> None:
        """A broker pushed a reply. One that nobody waits for (any more) is dropped."""
        try:
            message = pushed_message(record, self._instance.boot_id)
        except (BadRecord, BadRun) as error:
            log.warning("reply_unreadable reason=%s", error)
            return
        future = self._waiting.get(message.properties.get(names.PROPERTY_CORRELATION_ID, ""))
        if future is None or future.done():
            log.info("reply_dropped message=%s: its request has ended", message.message_id)
        else:
            future.set_result(message)

    def abandon(self, error: DejamqError) -> None:
        """No reply will come any more: the producer closes."""
        self._ended = error
        self._news.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    async def _introduce(self, topic: str, timeout_s: float) -> None:
        """Be known to one of the topic's brokers: only where we have a channel can a reply be pushed.

        Not to all of them: one that is silent now would keep every request waiting, and whoever replies tries
        several.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._instance.routes.publish_queues(topic)
                while self._ended is None and not self._masters(topic) & self._introduced:
                    self._news.clear()
                    self._instance.presence.wake()
                    await self._news.wait()
                if self._ended is not None:
                    raise self._ended
        except TimeoutError as error:
            if isinstance(error, DejamqError):
                raise
            text = f"no reply in time: no broker of topic {topic!r} answers; the request was not sent"
            raise RequestTimeout(text, definite=True) from None

    def _masters(self, topic: str) -> set[str]:
        route = self._instance.routes.known(topic)
        return {ids[MASTER_ID] for ids in route.addresses.values() if MASTER_ID in ids} if route else set()

    def _connected(self, address: str) -> None:
        self._introduced.add(address)
        self._news.set()


def reply_to(request: ReceivedMessage, body: bytes) -> Message:
    """The reply to a request, to be sent by any producer; its flags say which client it goes to.

    Raises DejamqError for a message that is no request.
    """
    properties = request.properties
    cluster, correlation_id = properties.get(names.PROPERTY_CLUSTER), properties.get(names.PROPERTY_CORRELATION_ID)
    client_id = properties.get(names.PROPERTY_REPLY_TO_CLIENT)
    if not cluster or not correlation_id or not client_id:
        raise DejamqError(
            f"message {request.message_id} is no request; nobody waits for a reply",
            code=Code.CREATE_REPLY_MESSAGE_EXCEPTION,
        )
    return Message(
        names.reply_topic(cluster),
        body,
        properties={
            names.PROPERTY_MESSAGE_TYPE: names.MESSAGE_TYPE_REPLY,
            names.PROPERTY_CORRELATION_ID: correlation_id,
            names.PROPERTY_REPLY_TO_CLIENT: client_id,
            names.PROPERTY_TTL: properties.get(names.PROPERTY_TTL, "0"),
        },
    )


def seen(future: "asyncio.Future[Any]") -> None:
    """Nobody may wait for what is done with it any more; its failure is then no news."""
    if not future.cancelled():
        future.exception()
