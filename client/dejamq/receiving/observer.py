"""What watches the operations of clients: sends, receives, settlements. Nobody does but ``dejamq.telemetry``.

A client asks once, when it is made. Without an observer its quickest ways stay as they are.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import Message, MessageQueue, SendResult


class ObservedClient(msgspec.Struct, frozen=True, weakref=True):
    """The client whose operations are watched. ``group`` is the program's name of it; the client id comes later."""

    group: str
    namespace: str
    client_id: Callable[[], str]
    broadcasting: bool | None = None


class SendOperation(Protocol):
    """One send of one message or of a batch. It ends once: stored, failed, or (one way) at the end of the block."""

    @property
    def messages(self) -> Sequence[Message]:
        """As they shall travel: with the context of this send in their properties."""

    def stored(self, results: Sequence[SendResult]) -> None:
        """The broker's word on each."""

    def failed(self, error: BaseException) -> None:
        """Nothing is stored, or nobody knows."""

    def told(self, future: Any) -> None:
        """The future of a submit is done."""

    def __enter__(self) -> "SendOperation": ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None: ...


class ProducerObserver(Protocol):
    """Of one producer; also a SendHook and an EndTransactionHook."""

    def sending(self, messages: Sequence[Message], name: str = "send") -> SendOperation:
        """``name``: send, request, send_batch or send_in_transaction."""

    def checking(self, checker: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """The checker of transactions, watched."""

    def before_send(self, context: Any) -> None: ...

    def after_send(self, context: Any) -> None: ...

    def end_transaction(self, context: Any) -> None: ...


class ReceiveOperation(Protocol):
    """One receive that the program asked for."""

    def got(self, messages: Sequence[ReceivedMessage]) -> None:
        """Its messages, if any came."""


class ConsumerObserver(Protocol):
    """Of one consumer; also a ConsumeHook."""

    def receiving(self, name: str) -> AbstractContextManager[ReceiveOperation]:
        """``name``: receive or poll."""

    def settling(
        self, name: str, topic: str, messages: Sequence[ReceivedMessage], *, after_process: bool = False
    ) -> AbstractContextManager[None]:
        """A broker is told of the messages' fate. ``after_process``: their handler has just ended."""

    def committing(
        self, queue: MessageQueue, offset: int, reason: str, *, asked: bool = False
    ) -> AbstractContextManager[None]:
        """A broker is told an offset. ``queue`` is as brokers know it; ``asked``: the program called commit."""

    def before_consume(self, context: Any) -> None: ...

    def after_consume(self, context: Any) -> None: ...


class Observing(Protocol):
    """Makes the observer of each client."""

    def of_producer(self, who: ObservedClient) -> ProducerObserver: ...

    def of_consumer(self, who: ObservedClient) -> ConsumerObserver: ...


_for_all: Observing | None = None


def observe_all(observing: Observing | None) -> None:
    """Watch every client that is made from now on, or (None) none that has no observer of its own."""
    global _for_all
    _for_all = observing


def observing_or_default(own: Observing | None) -> Observing | None:
    """A client's own choice, else that for all clients."""
    return _for_all if own is None else own
