"""One send of a program, from its submission to its end."""

import asyncio

import msgspec

from dejamq.encoding import UNIQUE_NAME, Template
from dejamq.message import Message, MessageQueue, SendResult
from dejamq.selectors import Selector

PLAIN, NO_WAIT, REWRITE, REPLY, TRANSACTION = 0, 1, 2, 3, 4  # kinds of records that a run cannot mix


class Call(msgspec.Struct, eq=False, gc=False):
    """One ``send`` of a program, from submission to its result or error.

    ``before``, the message's id and ``rest`` are the bytes of its record behind the body; ``size`` is that of all of
    it. ``deadline`` is monotonic time in seconds.
    """

    message: Message
    common: Template
    rest: bytes
    kind: int
    call_id: int
    deadline: float
    size: int
    future: asyncio.Future[SendResult] | None  # None: oneway
    mode: str = "sync"  # how the program made it, for the journal: sync, async, batch, request, oneway
    pinned: bool = False  # this queue or none
    select: Selector | None = None  # chooses the queue; without it they take turns
    before: bytes = b""
    queue: MessageQueue | None = None
    batch: int = 0  # calls with one number go and fail together
    tries: int = 0  # times it left
    retries: int = 0  # times a failure made it leave again
    indefinite: bool = False  # an earlier try may have stored it
    packed: bytes = b""  # the body as it travels, where that is not the message's
    kept: SendResult | None = None  # an earlier try stored it, less durably than asked

    @property
    def properties(self) -> bytes:
        """The properties field of the record."""
        return UNIQUE_NAME + self.message.message_id.encode() + self.rest

    @property
    def ended(self) -> bool:
        """Its result, failure or cancellation is there already."""
        return self.future is not None and self.future.done()
