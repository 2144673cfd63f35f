"""Spans and metrics of consumers: process, receive and settle."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from dejamq_proto.codes import ClientClosed
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Tracer

from dejamq.receiving.hooks import ConsumeContext
from dejamq.receiving.observer import ObservedClient
from dejamq.receiving.received import ReceivedMessage
from dejamq.telemetry import conventions as names
from dejamq.telemetry.carrying import Carrier
from dejamq.telemetry.conventions import Attributes
from dejamq.telemetry.earlier import EarlierDeliveries, why_again
from dejamq.telemetry.instruments import Instruments
from dejamq.telemetry.timed import Timed, now
from dejamq.values.message import MessageQueue
from dejamq.values.namespace import unwrap_queue

DONE = frozenset({"success", "uncommitted"})
QUIET = (asyncio.CancelledError, StopAsyncIteration, ClientClosed)
"""How a receive ends that got nothing because nobody waits any more."""
PROCESSING = "dejamq.telemetry"


class Processing:
    """A span of a handler's call that is current until it ends."""

    def __init__(self, timed: Timed, around: Context) -> None:
        self.timed = timed
        self._token = contexts.attach(trace.set_span_in_context(timed.span, around))

    def end(self) -> None:
        contexts.detach(self._token)
        self.timed.end()


class Got:
    """One receive; a ``Receiving``."""

    def __init__(self) -> None:
        self.messages: Sequence[ReceivedMessage] = ()

    def got(self, messages: Sequence[ReceivedMessage]) -> None:
        self.messages = messages


class ConsumerTelemetry:
    """The observer of one consumer, and the hook around its handlers."""

    def __init__(
        self, who: ObservedClient, tracer: Tracer, instruments: Instruments, carrier: Carrier, earlier: EarlierDeliveries,
        *, child_of_send: bool,
    ) -> None:  # fmt: skip
        self._who, self._tracer, self._instruments = who, tracer, instruments
        self._carrier, self._earlier, self._child_of_send = carrier, earlier, child_of_send

    # process

    def before_consume(self, context: ConsumeContext) -> None:
        context.values[PROCESSING] = self.process(context.messages, batch=context.batch)

    def after_consume(self, context: ConsumeContext) -> None:
        processing: Processing | None = context.values.pop(PROCESSING, None)
        if processing is None:
            return
        status, timed = context.status or "", processing.timed
        if context.error is not None:
            timed.fail(context.error)
        elif status not in DONE:
            timed.refuse(status)
        timed.learn({names.CONSUME_STATUS: status})
        self.processed(processing, context.messages, status)
        self._instruments.consumed(len(context.messages), names.only(timed.attributes, *WITHOUT_ERROR))

    def process(self, messages: Sequence[ReceivedMessage], *, batch: bool) -> Processing:
        """A span for these messages, current from now on. A batch's has no parent, as it can have only one."""
        attributes = names.of_consumer(self._who, "process", "process", messages[0].topic)
        single, around = messages[0], Context()
        links = [link for message in messages for link in self._links(message, alone=not batch)]
        if batch:
            attributes[names.BATCH_COUNT] = len(messages)
        else:
            attributes |= names.of_received(single) | self._again(single)
            if self._child_of_send:
                around = self._carrier.context(single.properties)
        began = now()
        span = self._tracer.start_span(f"process {single.topic}", around, SpanKind.CONSUMER, attributes, links,
                                       start_time=began[0])  # fmt: skip
        return Processing(Timed(span, attributes, began), around)

    def processed(self, processing: Processing, messages: Sequence[ReceivedMessage], status: str) -> None:
        """The end of ``process``."""
        processing.end()
        span = processing.timed.span.get_span_context()
        for message in messages:
            self._earlier.remember(self._who, message, span, status)
        self._instruments.processed(processing.timed.took_s, processing.timed.attributes)

    # receive

    @contextmanager
    def receiving(self, name: str) -> Iterator[Got]:
        """A receive that gets nothing in time leaves no span: a waiting program makes them all day."""
        got, began = Got(), now()
        try:
            yield got
        except QUIET:
            raise
        except BaseException as error:
            timed = self._received(name, (), began)
            timed.fail(error)
            self._end(timed)
            raise
        if got.messages:
            timed = self._received(name, got.messages, began)
            self._end(timed)
            self._instruments.consumed(len(got.messages), timed.attributes)
            for message in got.messages:
                self._earlier.received(self._who, message)
                self._earlier.remember(self._who, message, timed.span.get_span_context())

    def _received(self, name: str, messages: Sequence[ReceivedMessage], began: tuple[int, float]) -> Timed:
        topics = {message.topic for message in messages}
        topic = topics.pop() if len(topics) == 1 else ""
        attributes = names.of_consumer(self._who, name, "receive", topic) | {names.BATCH_COUNT: len(messages)}
        links = [link for message in messages for link in self._links(message, alone=False)]
        span = self._tracer.start_span(f"{name} {topic}".strip(), kind=SpanKind.CLIENT, attributes=attributes,
                                       links=links, start_time=began[0])  # fmt: skip
        return Timed(span, attributes, began)

    # settle

    def settling(
        self, name: str, topic: str, messages: Sequence[ReceivedMessage], *, after_process: bool = False
    ) -> AbstractContextManager[None]:
        attributes = names.of_consumer(self._who, name, "settle", topic)
        links = [Link(made, _delivered(one))
                 for one in messages if (made := self._carrier.created_by(one.properties))]  # fmt: skip
        if len(messages) == 1:
            attributes |= names.of_received(messages[0])
        else:
            attributes[names.BATCH_COUNT] = len(messages)
        processed = self._earlier.this(self._who, messages[0]) if after_process else None
        return self._settled(attributes, links, None if processed is None else _inside(processed.span))

    def committing(
        self, queue: MessageQueue, offset: int, reason: str, *, asked: bool = False
    ) -> AbstractContextManager[None]:
        queue = unwrap_queue(self._who.namespace, queue)
        attributes = names.of_consumer(self._who, "commit", "settle", queue.topic) | names.of_place(queue)
        attributes |= {names.QUEUE_OFFSET: offset, names.COMMIT_REASON: reason}
        return self._settled(attributes, (), None if asked else Context())

    @contextmanager
    def _settled(self, attributes: Attributes, links: Sequence[Link], parent: Context | None) -> Iterator[None]:
        """``parent`` None: whatever is current, because the program itself asked."""
        began, name = now(), f"{attributes[names.OPERATION_NAME]} {attributes.get(names.DESTINATION, '')}".strip()
        span = self._tracer.start_span(name, parent, SpanKind.CLIENT, attributes, links, start_time=began[0])
        timed = Timed(span, attributes, began)
        try:
            yield
        except BaseException as error:
            timed.fail(error)
            raise
        finally:
            self._end(timed)

    def _end(self, timed: Timed) -> None:
        timed.end()
        self._instruments.operation(timed.took_s, timed.attributes)

    # causes

    def _links(self, message: ReceivedMessage, *, alone: bool) -> list[Link]:
        """To the span that made the message, and to its earlier delivery."""
        of_message: Attributes = {} if alone else (
            _delivered(message) | self._again(message)
        )  # fmt: skip
        links, made_in = [], self._carrier.created_by(message.properties)
        if made_in is not None:
            links.append(Link(made_in, of_message))
        if (earlier := self._earlier.of(self._who, message)) is not None:
            told: Attributes = {names.LINK: "earlier_delivery", names.QUEUE_OFFSET: earlier.queue_offset}
            told |= names.of_place(earlier.queue) | ({names.EARLIER_STATUS: earlier.status} if earlier.status else {})
            links.append(Link(earlier.span, told))
        return links

    def _again(self, message: ReceivedMessage) -> Attributes:
        why = why_again(message, self._earlier.of(self._who, message))
        return {} if why is None else {names.REDELIVERY: why}


WITHOUT_ERROR = (names.SYSTEM, names.OPERATION_NAME, names.DESTINATION, names.GROUP)
"""It was delivered, however its handler ended."""


def _delivered(message: ReceivedMessage) -> Attributes:
    return names.of_delivery(message) | {names.MESSAGE_ID: message.message_id}


def _inside(span: trace.SpanContext) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(span), Context())
