"""Earlier deliveries of a message in this process, so that a later one can point at them. Bounded."""

from collections import OrderedDict
from weakref import WeakValueDictionary

import msgspec
from opentelemetry.trace import SpanContext

from dejamq.receiving.observer import ObservedClient
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue

ASKED_AGAIN = frozenset({"reconsume", "exception", "timeout", "wrong_value", "suspend", "rollback"})
"""What a handler's call ended with when its message comes again because of that."""


class Earlier(msgspec.Struct):
    """A delivery of a message. ``status`` is the journal's word for its handler's end; empty: not known.

    ``before`` is the delivery before it, which has none itself.
    """

    span: SpanContext
    queue: MessageQueue
    queue_offset: int
    delivery_id: str
    status: str = ""
    before: "Earlier | None" = None


class EarlierDeliveries:
    """Of all groups of one ``Telemetry``; the last ``most`` messages."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[tuple[str, str, str], Earlier] = OrderedDict()
        self._receivers: WeakValueDictionary[str, ObservedClient] = WeakValueDictionary()

    def of(self, who: ObservedClient, message: ReceivedMessage) -> Earlier | None:
        """The delivery before this one, if this process had it and remembers.

        A message that is received and then processed is one delivery with two spans.
        """
        last = self._found.get(_key(who, message))
        this = _this(last, message.delivery_id)
        return last if this is None else this.before

    def this(self, who: ObservedClient, message: ReceivedMessage) -> Earlier | None:
        """This delivery itself, if its span has ended."""
        return _this(self._found.get(_key(who, message)), message.delivery_id)

    def remember(self, who: ObservedClient, message: ReceivedMessage, span: SpanContext, status: str = "") -> None:
        """The span of this delivery has ended: a later one points at it."""
        if not self._most:
            return
        key, last = _key(who, message), self._found.get(_key(who, message))
        if (this := _this(last, message.delivery_id)) is not None:
            this.span, this.status = span, status
            self._found.move_to_end(key)
            return
        if last is not None:
            last.before = None  # else all deliveries of a message hold one another
        self._found[key] = Earlier(span, message.queue, message.queue_offset, message.delivery_id, status, last)
        self._found.move_to_end(key)
        if len(self._found) > self._most:
            self._found.popitem(last=False)

    def receiver(self, message: ReceivedMessage) -> ObservedClient | None:
        """Who got this message, if that consumer is still there."""
        return self._receivers.get(_boot_id(message))

    def received(self, who: ObservedClient, message: ReceivedMessage) -> None:
        """A program got it, and may ask later for the span of its processing."""
        if _boot_id(message) not in self._receivers:
            self._receivers[_boot_id(message)] = who


def why_again(message: ReceivedMessage, earlier: Earlier | None) -> str | None:
    """Why the message is delivered, if not for the first time.

    ``retry``: its group failed with it. ``redelivered``: the same stored copy came again, as after a crash or a
    rebalance before the commit. ``stored_again``: another copy of it, as after a repeated send.
    """
    if message.reconsume_times or (earlier is not None and earlier.status in ASKED_AGAIN):
        return "retry"
    if earlier is None:
        return None
    same = (earlier.queue, earlier.queue_offset) == (message.queue, message.queue_offset)
    return "redelivered" if same else "stored_again"


def _this(last: Earlier | None, delivery_id: str) -> Earlier | None:
    """The last delivery or the one before it, whichever is this one: a handler may end after the next delivery."""
    for one in (last, None if last is None else last.before):
        if one is not None and one.delivery_id == delivery_id:
            return one
    return None


def _boot_id(message: ReceivedMessage) -> str:
    """Of the start of the client that got the message."""
    return message.delivery_id.rpartition("-")[0]


def _key(who: ObservedClient, message: ReceivedMessage) -> tuple[str, str, str]:
    """Each member of a broadcasting group gets everything: theirs are deliveries of their own."""
    member = who.client_id() if who.broadcasting else ""
    return f"{who.namespace}%{who.group}", member, message.message_id
