"""Spans and metrics of producers: one span a send, whatever its tries; batches have one more for each message."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dejamq_proto.codes import BacklogFull, DejamqError
from opentelemetry.trace import Link, SpanKind, Tracer

from dejamq.receiving.observer import ObservedClient
from dejamq.receiving.received import ReceivedMessage
from dejamq.sending.hooks import SendContext
from dejamq.telemetry import conventions as names
from dejamq.telemetry.carrying import Carrier
from dejamq.telemetry.conventions import Attributes
from dejamq.telemetry.instruments import Instruments
from dejamq.telemetry.timed import Timed, now
from dejamq.transactions.hooks import EndTransactionContext
from dejamq.transactions.states import TransactionState
from dejamq.values.message import Message, SendResult

BATCH, TRANSACTION = "send_batch", "send_in_transaction"
ENDS = {TransactionState.COMMIT: "commit", TransactionState.ROLLBACK: "rollback", TransactionState.UNKNOWN: "unknown"}


class Sent:
    """One send under way; a ``Sending``."""

    def __init__(self, timed: Timed, messages: Sequence[Message], owner: "ProducerTelemetry") -> None:
        self.timed, self.messages, self._owner = timed, messages, owner
        self.attempts = 0
        self._ended = False

    def stored(self, results: Sequence[SendResult]) -> None:
        self.timed.learn(_place(results[0]) if len(results) == 1 else {})
        self._end()

    def failed(self, error: BaseException) -> None:
        if isinstance(error, BacklogFull):
            self._withdraw()
        if not self._ended:
            self.timed.fail(error)
            if isinstance(error, DejamqError):
                self.timed.learn({names.SEND_DEFINITE: error.definite})
        self._end()

    def told(self, future: "asyncio.Future[SendResult]") -> None:
        if future.cancelled():
            self.failed(asyncio.CancelledError())
        elif (error := future.exception()) is not None:
            self.failed(error)
        else:
            self.stored((future.result(),))

    def __enter__(self) -> "Sent":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.failed(error)
        else:
            self._end()

    def _withdraw(self) -> None:
        """It was not taken on, and the program sends it again: a span that does not end is told to nobody."""
        self._ended = True
        self._owner.forget(self)

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            if self.attempts > 1:
                self.timed.learn({names.SEND_ATTEMPTS: self.attempts})
            self.timed.end()
            self._owner.ended(self)


class ProducerTelemetry:
    """The observer of one producer, and its hook: of each try of a send, and of each end of a transaction."""

    def __init__(
        self, who: ObservedClient, tracer: Tracer, instruments: Instruments, carrier: Carrier, *, create_spans: bool
    ) -> None:
        self._who, self._tracer, self._instruments, self._carrier = who, tracer, instruments, carrier
        self._create_spans = create_spans
        self._under_way: dict[str, Sent] = {}

    def sending(self, messages: Sequence[Message], name: str = "send") -> Sent:
        topic, batch = messages[0].topic, name == BATCH
        attributes = names.operation(self._who, name, "send", topic) | {names.PRODUCER_GROUP: self._who.group}
        if batch:
            attributes[names.BATCH_COUNT] = len(messages)
        else:
            attributes |= names.of_message(messages[0], transaction=name == TRANSACTION)
        if batch and self._create_spans:
            messages = [self._created(message) for message in messages]
        custom = [self._carrier.created_by(message.properties) for message in messages]
        kind = SpanKind.CLIENT if all(custom) else SpanKind.PRODUCER
        links = [Link(context, {names.MESSAGE_ID: message.message_id} if batch else {})
                 for context, message in zip(custom, messages, strict=True) if context]  # fmt: skip
        began = now()
        span = self._tracer.start_span(f"{name} {topic}", kind=kind, attributes=attributes, links=links,
                                       start_time=began[0])  # fmt: skip
        carrying = [
            message if context else self._carrier.with_context(message, span)
            for context, message in zip(custom, messages, strict=True)
        ]
        sent = Sent(Timed(span, attributes, began), carrying, self)
        self._under_way.update((message.message_id, sent) for message in messages)
        return sent

    def checking(self, checker: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def checked(message: ReceivedMessage) -> Any:
            attributes = names.operation(self._who, "check", "process", message.topic)
            attributes |= {names.PRODUCER_GROUP: self._who.group} | names.of_received(message)
            made_in = self._carrier.created_by(message.properties)
            with self._tracer.start_as_current_span(
                f"check {message.topic}", self._carrier.context(message.properties), SpanKind.CONSUMER, attributes,
                [Link(made_in)] if made_in else (),
            ):  # fmt: skip
                return await checker(message)

        return checked

    def before_send(self, context: SendContext) -> None:
        sent = self._under_way.get(context.message.message_id)
        if sent is not None and context.attempt > sent.attempts:
            sent.attempts = context.attempt
            sent.timed.learn(names.of_server(context.broker_address))

    def after_send(self, context: SendContext) -> None:
        sent, error = self._under_way.get(context.message.message_id), context.error
        if sent is not None and error is not None:
            told: Attributes = {
                "dejamq.attempt": context.attempt, names.ERROR_TYPE: names.error_type(error),
                names.SEND_DEFINITE: error.definite,
            }  # fmt: skip
            sent.timed.span.add_event("try failed", told | names.of_server(context.broker_address))

    def end_transaction(self, context: EndTransactionContext) -> None:
        """It leaves one way: the span has hardly any duration."""
        message, name = context.message, ENDS[context.state]
        attributes = names.operation(self._who, name, "settle", message.topic)
        attributes |= names.of_server(context.broker_address) | {
            names.PRODUCER_GROUP: self._who.group, names.MESSAGE_ID: message.message_id, names.TYPE: "transaction",
        }  # fmt: skip
        made_in, began = self._carrier.created_by(message.properties), now()
        span = self._tracer.start_span(f"{name} {message.topic}", kind=SpanKind.CLIENT, attributes=attributes,
                                       links=[Link(made_in)] if made_in else (), start_time=began[0])  # fmt: skip
        timed = Timed(span, attributes, began)
        timed.end()
        self._instruments.operation(timed.took_s, attributes)

    def _created(self, message: Message) -> Message:
        """The message with a context of its own, unless the program gave it one."""
        if self._carrier.created_by(message.properties):
            return message
        attributes = names.operation(self._who, "create", "create", message.topic) | names.of_message(message)
        span = self._tracer.start_span(f"create {message.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        span.end()
        return self._carrier.with_context(message, span)

    def forget(self, sent: Sent) -> None:
        """It is not under way any more."""
        for message in sent.messages:
            if self._under_way.get(message.message_id) is sent:
                del self._under_way[message.message_id]

    def ended(self, sent: Sent) -> None:
        """As ``forget``, and its span has ended."""
        self.forget(sent)
        attributes = sent.timed.attributes
        self._instruments.sent(len(sent.messages), attributes)
        self._instruments.operation(sent.timed.took_s, attributes)


def _place(result: SendResult) -> Attributes:
    found = names.of_place(result.queue) | {
        names.QUEUE_OFFSET: result.queue_offset, names.STORED_ID: result.offset_message_id,
    }  # fmt: skip
    return found | {names.SEND_DUPLICATE: True} if result.duplicate else found
