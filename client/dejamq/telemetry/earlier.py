"""Earlier deliveries of a message in this process, so that a later one can point at them. Bounded."""

from collections import OrderedDict

import msgspec
from opentelemetry.trace import SpanContext

from dejamq.receiving.observer import Who
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue

ASKED_AGAIN = frozenset({"reconsume", "exception", "timeout", "wrong_value", "suspend", "rollback"})
"""What a handler's call ended with when its message comes again because of that."""


class Earlier(msgspec.Struct):
    """The last delivery of a message. ``status`` is the journal's word for its handler's end; empty: not known."""

    span: SpanContext
    queue: MessageQueue
    queue_offset: int
    status: str = ""


class EarlierDeliveries:
    """Of all groups of one ``Telemetry``; the last ``most`` messages."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[tuple[str, str, str], Earlier] = OrderedDict()

    def of(self, who: Who, message: ReceivedMessage) -> Earlier | None:
        """The delivery before this one, if this process had it and remembers."""
        return self._found.get(_key(who, message))

    def remember(self, who: Who, message: ReceivedMessage, span: SpanContext, status: str = "") -> None:
        """This is the last one now."""
        if self._most:
            self._found[_key(who, message)] = Earlier(span, message.queue, message.queue_offset, status)
            self._found.move_to_end(_key(who, message))
            if len(self._found) > self._most:
                self._found.popitem(last=False)


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


def _key(who: Who, message: ReceivedMessage) -> tuple[str, str, str]:
    """Each member of a broadcasting group gets everything: theirs are deliveries of their own."""
    member = who.client_id() if who.broadcasting else ""
    return f"{who.namespace}%{who.group}", member, message.message_id
