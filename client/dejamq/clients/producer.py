"""Producer: sends messages. Source of the semantics: RocketMQ ``DefaultMQProducer``, 5.3."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec
from dejamq_proto.codes import BacklogFull, BrokerUnavailable, ClientClosed, DejamqError, ForkedProcess, SendTimeout
from dejamq_proto.names import check_group
from dejamq_proto.records.recall_handle import RecallHandle

from dejamq.clients.running_info import client_info
from dejamq.native import Take, declined
from dejamq.net.instance import Instance
from dejamq.net.unclosed import Unclosed
from dejamq.receiving.observer import ObservedClient, Observing, observing_or_default
from dejamq.receiving.received import ReceivedMessage
from dejamq.sending.backlog import Backlog
from dejamq.sending.batches import all_stored, check_batch, split
from dejamq.sending.detector import Detector
from dejamq.sending.fault_strategy import FaultTable
from dejamq.sending.hooks import SendHook, SendHooks
from dejamq.sending.intake import Destination, Intake, no_message
from dejamq.sending.requests import Requests, seen
from dejamq.sending.sender import Sender
from dejamq.sending.sends import ONEWAY, Sends
from dejamq.values.config import client_config
from dejamq.values.forking import ProcessOrigin, check_loop
from dejamq.values.message import Message, MessageQueue, SendResult
from dejamq.values.namespace import wrap
from dejamq.values.producer_config import ProducerConfig

log = logging.getLogger("dejamq")


@dataclass(frozen=True)
class ProducerView:
    """The parts of a started producer, for tests."""

    instance: Instance
    backlog: Backlog
    faults: FaultTable | None
    waiting_requests: int


class Producer:
    """Sends messages; belongs to the event loop it was started in.

    Messages sent while others are under way leave together; an idle producer adds no delay. A try that failed is made
    again on another broker (``retry_times_when_send_failed``), within the budget ``send_msg_timeout_ms``; a time-out is
    not. Errors of a send carry ``definite``: whether the message surely is not stored.

    ``queue=`` takes a MessageQueue or a selector (``select_by_hash`` and others); the message then goes there or
    nowhere.
    """

    _config_class: ClassVar[type[ProducerConfig]] = ProducerConfig

    def __init__(
        self, group: str, *, namesrv: str | Sequence[str] | None = None, telemetry: Observing | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        """``settings`` are fields of ``ProducerConfig``; for ``telemetry`` see ``dejamq.telemetry``.

        Raises InvalidName, ConfigError.
        """
        check_group(group)
        self.group = group
        self.config = client_config(self._config_class, namesrv, settings)
        self._inner_group = wrap(self.config.namespace, group)
        check_group(self._inner_group)
        self._instance: Instance | None = None
        self._sender: Sender | None = None
        self._closing = False
        self._origin = ProcessOrigin()
        self._hooks = SendHooks()
        self._intake = Intake(self.config)
        self._plain = self._intake.plain
        self._take: Take = declined
        observing = observing_or_default(telemetry)
        self._observer = None if observing is None else observing.of_producer(
            ObservedClient(group, self.config.namespace, lambda: self._instance.client_id if self._instance else "")
        )  # fmt: skip
        if self._observer is not None:
            self._hooks.add(self._observer)

    # life

    async def start(self) -> None:
        """Ready to send. Name server and brokers are asked when the first message needs them. May be called twice."""
        if self._closing:
            raise ClientClosed("this producer is closed; make a new one")
        if not self._origin.here:
            raise ForkedProcess("this producer was made before fork; make a new one in the child process")
        if self._sender is not None:
            self._check_loop(self._sender)
            return
        instance = Instance(self.config, role="producer")
        instance.register_producer(self._inner_group)
        instance.commands.info[self._inner_group] = lambda stacks: client_info(
            instance, state={"pending_bytes": sender.backlog.bytes, "pending_messages": sender.backlog.calls},
            stacks=stacks,
        )  # fmt: skip
        sender = Sender(instance, self.config, self._inner_group, self._hooks, self._intake.plain_below)
        instance.on_fatal.connect(lambda error: sender.abandon(lambda definite: _ended(str(error), definite)))
        self._instance, self._sender = instance, sender
        if self._observer is None:
            self._take = sender.take  # which nobody can watch
        self._requests = Requests(instance)
        backlog = sender.backlog
        self._unclosed = Unclosed(self, f"producer {self.group!r}", lambda: _unsent(backlog.calls))
        instance.on_left_open.connect(self._unclosed.tell)
        await instance.start()
        if sender.faults is not None and self.config.start_detector_enable:
            instance.spawn(Detector(sender.faults, instance, self.config).run(), "detector")

    async def close(self, timeout_ms: float | None = None) -> None:
        """Send the backlog (at most ``await_termination_ms``), then leave. Unsent ones fail. May be called twice.

        A message that was under way may be stored although its future fails: that error is not ``definite``.
        """
        if not self._origin.here:
            raise ForkedProcess("this producer was made before fork; close it in its own process")
        self._closing = True
        if self._instance is None or self._sender is None:
            return
        if self._instance.closed_with_loop():
            self._sender.open = False
            return
        self._sender.shut()
        budget_ms = self.config.await_termination_ms if timeout_ms is None else timeout_ms
        deadline = monotonic() + budget_ms / 1000
        try:
            async with asyncio.timeout(budget_ms / 1000):
                await self._sender.backlog.end()
        except TimeoutError:
            pass  # abandon tells those concerned
        finally:
            self._unclosed.close()
            if left := _unsent(self._sender.backlog.calls):
                log.warning("producer_closed group=%s: %s; their futures tell", self.group, left)
            self._sender.abandon(lambda definite: _ended("the producer was closed before it was sent", definite))
            self._requests.abandon(_ended("the producer was closed before the reply came", False))
            await self._instance.close(deadline - monotonic())

    @property
    def closed(self) -> bool:
        """Closing has begun, or is done."""
        return self._closing

    @property
    def observed(self) -> bool:
        """Telemetry watches its sends, whose parent is what the caller does at the time."""
        return self._observer is not None

    @property
    def pending_bytes(self) -> int:
        """Taken on and not finished, as ``max_pending_bytes`` counts it."""
        return 0 if self._sender is None else self._sender.backlog.bytes

    def inspect(self) -> ProducerView:
        """The parts of a started producer. Only tests call this."""
        assert self._instance is not None, "start it first"
        assert self._sender is not None
        return ProducerView(self._instance, self._sender.backlog, self._sender.faults, self._requests.waiting)

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

    async def send(self, message: Message, *, queue: Destination = None, timeout_ms: float | None = None) -> SendResult:
        """Send and wait for the result. Above ``max_pending_bytes`` it waits for room first, within its budget.

        Raises SendTimeout, BrokerUnavailable, RouteNotFound, MessageTooLarge, InvalidName, ClientClosed and other
        DejamqErrors. Cancelling stops the wait; the message may still be sent.
        """
        if queue is None and timeout_ms is None and self._origin.here:
            taken: asyncio.Future[SendResult] | None = self._take(message, "sync")
            if taken is not None:
                return await taken
        if self._observer is None or not isinstance(message, Message):
            return await self._sent(message, queue, timeout_ms)
        with self._observer.sending((message,)) as sending:
            result = await self._sent(sending.messages[0], queue, timeout_ms)
            sending.stored((result,))
        return result

    def submit(
        self, message: Message, *, queue: Destination = None, timeout_ms: float | None = None
    ) -> "asyncio.Future[SendResult]":
        """Take the message on and return at once; the future gets its result. Raises as ``send`` for bad messages.

        Raises BacklogFull above ``max_pending_bytes``: await ``drain()`` and submit again.

        Messages stand in a queue in the order of their submits, as long as no try fails; with ``max_runs_in_flight=1``
        a refused message changes no order either. When many sends wait for
        many queues, the sends of one queue leave together, before earlier sends of other queues. The future may be
        dropped; the outcome of the message is then in the journal only.
        """
        if queue is None and timeout_ms is None and self._origin.here:
            taken: asyncio.Future[SendResult] | None = self._take(message, "async")
            if taken is not None:
                return taken
        if self._observer is None or not isinstance(message, Message):
            return self._submit(message, queue, timeout_ms, "async")
        sending = self._observer.sending((message,))
        try:
            future = self._submit(sending.messages[0], queue, timeout_ms, "async")
        except BaseException as error:
            sending.failed(error)
            raise
        future.add_done_callback(sending.told)
        return future

    def send_oneway(self, message: Message, *, queue: Destination = None) -> None:
        """Send without waiting for anything: one try, a failure is only logged. Raises as ``submit``."""
        sender = self._ready()
        if self._observer is None or not isinstance(message, Message):
            self._intake.single(message, None, None, ONEWAY, queue, columns=sender.columns)
            return
        with self._observer.sending((message,)) as sending:
            self._intake.single(sending.messages[0], None, None, ONEWAY, queue, columns=sender.columns)

    async def send_batch(
        self, messages: Iterable[Message], *, queue: Destination = None, timeout_ms: float | None = None
    ) -> list[SendResult]:
        """Send messages of one topic to one queue, one run for each ``max_message_size`` of them.

        All messages of a run are stored or none, and a retry repeats all of them. Raises as ``send``, and
        BatchIncomplete when some runs of a large batch are stored and others are not.
        """
        batch = tuple(messages)
        check_batch(batch)
        if self._observer is None:
            return await self._sent_batch(batch, queue, timeout_ms)
        with self._observer.sending(batch, "send_batch") as sending:
            results = await self._sent_batch(sending.messages, queue, timeout_ms)
            sending.stored(results)
        return results

    async def _sent_batch(
        self, batch: Sequence[Message], queue: Destination, timeout_ms: float | None
    ) -> list[SendResult]:
        sender = self._ready()
        futures = [sender.new_future() for _ in batch]
        sends = [
            self._intake.single(message, future, timeout_ms, "batch", queue, pack=False)
            for message, future in zip(batch, futures, strict=True)
        ]
        await self._route_within(batch[0].topic, sends[0].deadlines[0])
        one_queue = sender.queue_for(sends[0])
        try:
            for part in split(sends, self.config.max_message_size):
                part.whole, part.queues = True, [] if one_queue is None else [one_queue] * len(part)
                await self._take_on(part)
            return all_stored(await asyncio.gather(*futures, return_exceptions=True))
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()  # those that have not left never do
            raise

    async def request(self, message: Message, timeout_ms: float, *, queue: Destination = None) -> ReceivedMessage:
        """Send the message and wait for a consumer's reply (``reply_to``), both within ``timeout_ms``.

        Raises RequestTimeout when no reply came, and as ``send`` when the request could not be sent. A request that
        was stored twice may be answered twice; the first reply counts.
        """
        self._ready()
        if not isinstance(message, Message):
            raise no_message(message)
        if self._observer is None:
            return await self._requested(message, timeout_ms, queue)
        with self._observer.sending((message,), "request") as sending:
            return await self._requested(sending.messages[0], timeout_ms, queue)

    async def _requested(self, message: Message, timeout_ms: float, queue: Destination) -> ReceivedMessage:
        deadline = monotonic() + self._intake.budget_s(timeout_ms)
        async with self._requests.expecting(message, timeout_ms, self._intake.topic(message.topic)) as expected:
            left_ms = max(1.0, (deadline - monotonic()) * 1000)
            sending = asyncio.ensure_future(self._patiently(expected.message, queue, left_ms, "request"))
            sending.add_done_callback(seen)
            try:
                return await expected.reply(sending, deadline)
            finally:
                sending.cancel()

    async def recall(self, topic: str, handle: str, *, timeout_ms: float | None = None) -> str:
        """Take a message back that waits for its time, by ``SendResult.recall_handle``; its message id.

        Once it was answered the message is not delivered. Raises DejamqError with ILLEGAL_OPERATION for what is no
        handle of this topic and when the message's second has begun, and RouteNotFound, BrokerUnavailable, SendTimeout.
        """
        self._ready()
        assert self._instance is not None
        inner = self._intake.topic(topic)
        named = msgspec.structs.replace(RecallHandle.decode(handle), topic=inner)
        budget_ms = self.config.send_msg_timeout_ms if timeout_ms is None else timeout_ms
        await self._route_within(topic, monotonic() + budget_ms / 1000)
        address = self._instance.routes.master_address(named.broker_name)
        if address is None:
            raise BrokerUnavailable(
                f"no route names broker {named.broker_name!r}, which has the message", definite=True
            )
        link = self._instance.link(address)
        return await link.recall(self._inner_group, inner, named.encode(), timeout_ms=budget_ms)

    async def drain(self) -> None:
        """Return when there is room again for submits."""
        await self._ready().backlog.room()

    async def flush(self) -> None:
        """Return when nothing waits and nothing is in flight; failures are told by the futures."""
        await self._ready().backlog.end()

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Queues that messages of the topic may go to, sorted. Raises RouteNotFound, BrokerUnavailable, InvalidName."""
        self._ready()
        assert self._instance is not None
        queues = await self._instance.routes.publish_queues(self._intake.topic(topic))
        return [self._intake.outside(queue) for queue in queues]

    def add_hook(self, hook: SendHook) -> None:
        """Have it called before and after every try, from now on. Raises ConfigError for what is no hook."""
        self._hooks.add(hook)

    async def _sent(self, message: Message, queue: Destination, timeout_ms: float | None) -> SendResult:
        """What the quickest way of ``send`` has declined."""
        try:
            return await self._submit(message, queue, timeout_ms, "sync")
        except BacklogFull:
            return await self._patiently(message, queue, timeout_ms, "sync")

    def _submit(
        self, message: Message, queue: Destination, timeout_ms: float | None, mode: str
    ) -> "asyncio.Future[SendResult]":
        """What the quickest way has declined, which stands in ``send`` and ``submit``. Raises BacklogFull."""
        sender = self._sender
        if sender is None or not sender.open or not self._origin.here:
            sender = self._ready()
        if queue is None and timeout_ms is None:
            common = self._plain(message)
            if common is not None:
                return sender.submit_plain(message, common, mode)
        future = sender.new_future()
        self._intake.single(message, future, timeout_ms, mode, queue, columns=sender.columns)
        return future

    async def _patiently(self, message: Message, queue: Destination, timeout_ms: float | None, mode: str) -> SendResult:
        """Wait for room, within the budget of the send."""
        future = self._ready().new_future()
        await self._take_on(self._intake.single(message, future, timeout_ms, mode, queue))
        return await future

    async def _route_within(self, topic: str, deadline: float) -> None:
        """Until the topic's queues are known. Raises as ``publish_queues``, SendTimeout when it takes too long."""
        assert self._instance is not None
        try:
            async with asyncio.timeout(deadline - monotonic()):
                await self._instance.routes.publish_queues(self._intake.topic(topic))
        except TimeoutError as error:
            if isinstance(error, DejamqError):
                raise
            text = f"no route in time: name server {self._instance.namesrv.address} does not answer"
            raise SendTimeout(text, definite=True) from None

    async def _take_on(self, sends: Sends) -> None:
        """Submit them, all or none, as soon as there is room; where there is none in time, their futures tell."""
        while True:
            try:
                sender = self._ready()
                sender.submit(sends)
                return
            except BacklogFull as full:
                error = SendTimeout(f"not sent in time: {full}", definite=True)
            except DejamqError as closed:
                for future in sends.futures:
                    assert future is not None
                    future.set_exception(closed)
                return
            try:
                async with asyncio.timeout(sends.deadlines[0] - monotonic()):
                    await sender.backlog.room()
            except TimeoutError:
                sender.refuse(sends, error)
                return

    def _ready(self) -> Sender:
        if self._instance is not None:
            self._instance.check()
        elif not self._closing:
            raise ClientClosed("this producer is not started; use `async with producer:` or await start()")
        if self._closing or self._sender is None:
            raise ClientClosed("this producer is closed; make a new one")
        self._check_loop(self._sender)
        return self._sender

    def _check_loop(self, sender: Sender) -> None:
        if sender.loop.is_closed():
            self._unclosed.tell()
        check_loop(sender.loop)


def _unsent(calls: int) -> str:
    return f"{calls} messages are not known to be stored" if calls else ""


def _ended(reason: str, definite: bool) -> DejamqError:
    return ClientClosed(reason, definite=definite)
