"""How a handler's effects come into the ledger: each delivery's own, or, through an ``Inbox``, once a message."""

import contextlib
from collections.abc import AsyncIterator, Iterator

import dejamq.sync
from dejamq import Inbox, ReceivedMessage

from dejamq_lab.scenario.ledger import Effect, Ledger

BUSINESS_KEY = "KEYS"
"""Marks by what the message is about: a program may send one event as two messages."""


class Effects:
    """Of one consumer. ``first_parts`` of a message's effects are made before the handler may fail.

    Through an inbox those are all of them, in one transaction with the mark.
    """

    def __init__(self, actor: str, group: str, parts: int, ledger: Ledger, *, inbox: bool) -> None:
        self._actor, self._group, self._parts, self._ledger = actor, group, parts, ledger
        self._skipped = ledger
        self._inbox, self.first_parts = inbox, parts if inbox else 1
        if inbox:  # a connection of its own: what others write between its begin and rollback would be undone too
            self._ledger = Ledger(ledger.path)
            self._marks = Inbox(self._ledger.connection, business_key=BUSINESS_KEY)
            self._marks_of_threads = dejamq.sync.Inbox(self._ledger.connection, business_key=BUSINESS_KEY)

    async def make(self, received: ReceivedMessage, number: int) -> None:
        """The first parts, unless an inbox knows that an earlier delivery made them."""
        async with self._once(received) as first:
            if first:
                self._write(received, number, range(1, self.first_parts + 1))
        if not first:
            self._skipped.skip(self._effect(received, number))

    def make_in_thread(self, received: ReceivedMessage, number: int) -> None:
        """As ``make``, for plain handlers."""
        with self._once_in_thread(received) as first:
            if first:
                self._write(received, number, range(1, self.first_parts + 1))
        if not first:
            self._skipped.skip(self._effect(received, number))

    def finish(self, received: ReceivedMessage, number: int) -> None:
        """The parts that are left."""
        self._write(received, number, range(self.first_parts + 1, self._parts + 1))

    @contextlib.asynccontextmanager
    async def _once(self, received: ReceivedMessage) -> AsyncIterator[bool]:
        if not self._inbox:
            yield True
            return
        async with self._marks.once(received) as first:
            yield first

    @contextlib.contextmanager
    def _once_in_thread(self, received: ReceivedMessage) -> Iterator[bool]:
        if not self._inbox:
            yield True
            return
        with self._marks_of_threads.once(received) as first:
            yield first

    def _write(self, received: ReceivedMessage, number: int, parts: range) -> None:
        for part in parts:
            self._ledger.write(self._effect(received, number, part))

    def _effect(self, received: ReceivedMessage, number: int, part: int = 1) -> Effect:
        return Effect(received.delivery_id, part, self._group, number, received.message_id, self._actor)
