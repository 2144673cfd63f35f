"""Producer: sends messages. Source of the semantics: RocketMQ ``DefaultMQProducer``, 5.3."""

import asyncio
from collections.abc import Iterable, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self

from dejamq_proto.codes import ClientClosed, Code, DejamqError, ForkedProcess, MessageTooLarge
from dejamq_proto.names import check_group, is_internal

from dejamq.batching import NO_WAIT, PLAIN, REWRITE, Call
from dejamq.config import LARGEST_BODY, client_config
from dejamq.encoding import check_body, encode_properties, template
from dejamq.forking import Origin
from dejamq.instance import Instance
from dejamq.message import Message, MessageQueue, SendResult
from dejamq.producer_config import ProducerConfig
from dejamq.sender import Sender


class Producer:
    """Sends messages; belongs to the event loop it was started in.

    Messages sent while others are under way leave together; an idle producer adds no delay. A try that failed is made
    again on another broker (``retry_times_when_send_failed``), within the budget ``send_msg_timeout_ms``; a time-out is
    not. Errors of a send carry ``definite``: whether the message surely is not stored.
    """

    def __init__(self, group: str, *, namesrv: str | Sequence[str] | None = None, **settings: Any) -> None:
        """``settings`` are fields of ``ProducerConfig``. Raises InvalidName, ConfigError."""
        check_group(group)
        self.group = group
        self.config = client_config(ProducerConfig, namesrv, settings)
        self._instance: Instance | None = None
        self._sender: Sender | None = None
        self._closing = False
        self._origin = Origin()
        self._timeout_s = self.config.send_msg_timeout_ms / 1000
        self._max_message_size = self.config.max_message_size
        self._last_call_id = self._last_batch = 0

    # life

    async def start(self) -> None:
        """Ready to send. Name server and brokers are asked when the first message needs them. May be called twice."""
        if self._closing:
            raise ClientClosed("this producer is closed; make a new one")
        if not self._origin.here:
            raise ForkedProcess("this producer was made before fork; make a new one in the child process")
        if self._instance is not None:
            return
        instance = Instance(self.config, role="producer")
        instance.register_producer(self.group)
        sender = Sender(instance, self.config, self.group)
        instance.on_fatal = lambda error: sender.abandon(lambda definite: _ended(str(error), definite))
        self._instance, self._sender = instance, sender
        await instance.start()

    async def close(self, timeout_ms: float | None = None) -> None:
        """Send what waits (at most ``await_termination_ms``), then leave. What is left fails. May be called twice.

        A message that was under way may be stored although its future fails: that error is not ``definite``.
        """
        if not self._origin.here:
            raise ForkedProcess("this producer was made before fork; close it in its own process")
        self._closing = True
        if self._instance is None or self._sender is None:
            return
        self._sender.open = False
        budget_ms = self.config.await_termination_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(budget_ms / 1000):
                await self._sender.backlog.end()
        except TimeoutError:
            pass  # abandon tells those concerned
        finally:
            self._sender.abandon(lambda definite: _ended("the producer was closed before it was sent", definite))
            await self._instance.close()

    @property
    def closed(self) -> bool:
        """Closing has begun, or is done."""
        return self._closing

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
        if error is None and self._instance is not None and self._instance.fatal is not None:
            raise self._instance.fatal

    # sending

    async def send(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: float | None = None
    ) -> SendResult:
        """Send and wait for the result. With ``queue`` it goes there or nowhere.

        Raises SendTimeout, BrokerUnavailable, RouteNotFound, MessageTooLarge, InvalidName, BacklogFull, ClientClosed
        and other DejamqErrors. Cancelling stops the wait; the message may still be sent.
        """
        return await self.submit(message, queue=queue, timeout_ms=timeout_ms)

    def submit(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: float | None = None
    ) -> "asyncio.Future[SendResult]":
        """Take the message on and return at once; the future gets its result. Raises as ``send`` for bad messages.

        Raises BacklogFull above ``max_pending_bytes``: await ``drain()`` and submit again.

        The order of submits to one queue is the order in the queue, as long as no try fails. The future may be
        dropped; what becomes of the message is then in the journal only.
        """
        sender = self._sender
        if sender is None or not sender.open or not self._origin.here:
            sender = self._ready()
        future = sender.new_future()
        call = self._call(message, future, timeout_ms)
        if queue is not None:
            _check_queue(message, queue)
            call.queue, call.pinned = queue, True
        sender.submit(call)
        return future

    def send_oneway(self, message: Message) -> None:
        """Send without waiting for anything: one try, a failure is only logged. Raises as ``submit``."""
        self._ready().submit(self._call(message, None, None))

    async def send_batch(self, messages: Iterable[Message], *, timeout_ms: float | None = None) -> list[SendResult]:
        """Send messages of one topic as one run to one queue: all are stored or none; a retry repeats all.

        Raises as ``send``, for the whole batch.
        """
        batch = tuple(messages)
        _check_batch(batch, self.config.max_message_size)
        sender = self._ready()
        queues = await self.publish_queues(batch[0].topic)
        self._last_batch += 1
        queue = queues[self._last_batch % len(queues)]
        loop = asyncio.get_running_loop()
        calls = [self._call(message, loop.create_future(), timeout_ms) for message in batch]
        if sum(call.size for call in calls) > LARGEST_BODY:
            raise MessageTooLarge(f"the batch with its properties is larger than {LARGEST_BODY}; send smaller batches")
        for call in calls:
            call.batch, call.queue = self._last_batch, queue
        sender.submit_all(calls)
        return list(await asyncio.gather(*(call.future for call in calls if call.future is not None)))

    async def drain(self) -> None:
        """Return when there is room again for submits."""
        await self._ready().backlog.room()

    async def flush(self) -> None:
        """Return when nothing waits and nothing is in flight; failures are told by the futures."""
        await self._ready().backlog.end()

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Queues that messages of the topic may go to, sorted. Raises RouteNotFound, BrokerUnavailable, InvalidName."""
        self._ready()
        template(topic, 0, None)
        assert self._instance is not None
        return list(await self._instance.routes.publish_queues(topic))

    def _ready(self) -> Sender:
        if self._instance is None or self._sender is None:
            raise ClientClosed("this producer is not started; use `async with producer:` or await start()")
        self._instance.check()
        if self._closing:
            raise ClientClosed("this producer is closed; make a new one")
        return self._sender

    def _call(self, message: Message, future: "asyncio.Future[SendResult] | None", timeout_ms: float | None) -> Call:
        body = message.body
        if not 0 < len(body) <= self._max_message_size:
            check_body(body, self._max_message_size)
        common = template(message.topic, message.flag, message.tags)
        properties = encode_properties(message, common)
        self._last_call_id += 1
        kind = REWRITE if message.delay_level else PLAIN if message.wait_store else NO_WAIT
        budget_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        return Call(
            message, common, properties, kind, self._last_call_id, monotonic() + budget_s,
            len(body) + len(properties) + 100, future, pinned=message.sharding_key is not None or future is None,
        )  # fmt: skip


def _check_queue(message: Message, queue: MessageQueue) -> None:
    """Raises INVALID_PARAMETER before anything is sent: a record in another topic's queue would be found by nobody."""
    if queue.topic != message.topic:
        text = f"queue {queue.topic}/{queue.broker_name}/{queue.queue_id} is not of topic {message.topic!r}"
        raise DejamqError(text, code=Code.INVALID_PARAMETER)


def _check_batch(batch: Sequence[Message], max_size: int) -> None:
    """RocketMQ's rules for a batch (``MessageBatch``)."""
    if not batch:
        raise DejamqError("the batch is empty", code=Code.INVALID_PARAMETER)
    if len({(message.topic, message.wait_store) for message in batch}) > 1:
        raise DejamqError("messages of a batch have one topic and one wait_store", code=Code.INVALID_PARAMETER)
    if any(message.delay_level for message in batch) or is_internal(batch[0].topic):
        raise DejamqError("a batch has no delayed messages and no retry topic", code=Code.INVALID_PARAMETER)
    size = sum(len(message.body) for message in batch)
    if size > max_size:
        raise MessageTooLarge(f"the batch has {size} bytes, max_message_size is {max_size}; send smaller batches")


def _ended(reason: str, definite: bool) -> DejamqError:
    return ClientClosed(reason, definite=definite)
