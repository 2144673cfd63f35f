"""Handlers of a scenario's consumers: they wait, block, fail, and leave an effect in the ledger."""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any

import dejamq.sync
from dejamq import (
    BatchResult,
    ConsumeStatus,
    Inbox,
    Message,
    OrderedStatus,
    ReceivedMessage,
    SuspendQueue,
)

from dejamq_lab.scenario.script.ledger import Effect, EffectLedger
from dejamq_lab.scenario.script.steps import Send
from dejamq_lab.scenario.script.text import HandlerScript

# How a handler's effects come into the ledger: each delivery's own, or, through an Inbox, once a message.

BUSINESS_KEY = "KEYS"
"""Marks by what the message is about: a program may send one event as two messages."""


class Effects:
    """Of one consumer. ``first_parts`` of a message's effects are made before the handler may fail.

    Through an inbox those are all of them, in one transaction with the mark.
    """

    def __init__(self, actor: str, group: str, parts: int, ledger: EffectLedger, *, inbox: bool) -> None:
        self._actor, self._group, self._parts, self._ledger = actor, group, parts, ledger
        self._skipped = ledger
        self._inbox, self.first_parts = inbox, parts if inbox else 1
        if inbox:  # a connection of its own: what others write between its begin and rollback would be undone too
            self._ledger = EffectLedger(ledger.path)
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


KEY = "number-"
BLOCKED_POLL_S = 0.01


class ScriptedFailure(Exception):
    """The handler fails, as the scenario says."""


def message(topic: str, number: int, step: Send) -> Message:
    """The message of this number: its business key is the number, so that two of one number are the same event."""
    body = json.dumps({"number": number, "pad": " " * step.pad} if step.pad else {"number": number}).encode()
    return Message(
        topic, body, tags=step.tags or None, keys=[f"{KEY}{number}"],
        delay_level=step.delay_level, delay_ms=step.delay_ms or None,
    )  # fmt: skip


def number_of(received: ReceivedMessage) -> int:
    number: int = json.loads(received.body)["number"]
    return number


class Handlers:
    """The handlers of one consumer. Effects come after the work and before a failure, as careless programs do it."""

    def __init__(self, actor: str, group: str, handling: HandlerScript, ledger: EffectLedger) -> None:
        self._actor, self._handling, self._ledger = actor, handling, ledger
        self._effects = Effects(actor, group, handling.parts, ledger, inbox=handling.inbox)
        self._failed: Counter[int] = Counter()
        self._met: set[int] = set()
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let those go on that block."""
        self._released.set()

    async def one(self, received: ReceivedMessage) -> Any:
        """Handles a message."""
        try:
            return await self._handle(received)
        except ScriptedFailure as refusal:
            return self._refused(refusal)

    async def many(self, received: Sequence[ReceivedMessage]) -> Any:
        """Handles a list: each of it in its order, up to the first that fails. The last word of them counts."""
        answer = None
        for index, each in enumerate(received):
            try:
                answer = await self._handle(each) or answer
            except ScriptedFailure as refusal:
                return BatchResult(index - 1) if self._handling.answer == "rest" else self._refused(refusal)
        return answer

    def plain(self, received: ReceivedMessage) -> Any:
        """Handles a message in a worker thread."""
        number, fresh = self._enter(received)
        while fresh and number in self._handling.blocks and not self._released.is_set():
            time.sleep(BLOCKED_POLL_S)
        time.sleep(self._handling.work_ms / 1000)
        try:
            self._fail(number, self._handling.refuses if fresh else ())
            self._effects.make_in_thread(received, number)
            while fresh and number in self._handling.lingers and not self._released.is_set():
                time.sleep(BLOCKED_POLL_S)
            self._fail(number, self._handling.fails if fresh else ())
        except ScriptedFailure as refusal:
            return self._refused(refusal)
        return self._done(received, number)

    def chosen(self) -> Callable[..., Awaitable[Any] | None]:
        """The handler to subscribe with."""
        if self._handling.plain:
            return self.plain
        return self.many if self._handling.batch else self.one

    async def _handle(self, received: ReceivedMessage) -> OrderedStatus | None:
        """Raises ScriptedFailure where it fails."""
        number, fresh = self._enter(received)
        if fresh and number in self._handling.blocks:
            await self._released.wait()
        if self._handling.work_ms:
            await asyncio.sleep(self._handling.work_ms / 1000)
        self._fail(number, self._handling.refuses if fresh else ())
        await self._effects.make(received, number)
        if fresh and number in self._handling.lingers:
            await self._released.wait()
        self._fail(number, self._handling.fails if fresh else ())
        return self._done(received, number)

    def _refused(self, refusal: ScriptedFailure) -> Any:
        """The handler's answer to a failure, raised or returned."""
        match self._handling.answer:
            case "later":
                return ConsumeStatus.RECONSUME_LATER
            case "rollback":
                return OrderedStatus.ROLLBACK
            case "suspend":
                raise SuspendQueue from refusal
            case _:
                raise refusal

    def _done(self, received: ReceivedMessage, number: int) -> OrderedStatus | None:
        """Do the rest after the first effect; return the answer for success."""
        self._effects.finish(received, number)
        return OrderedStatus.COMMIT if number in self._handling.commits else None

    def _enter(self, received: ReceivedMessage) -> tuple[int, bool]:
        """The message's number, and whether it may have to wait or fail."""
        number = number_of(received)
        self._ledger.enter(received.delivery_id, number, self._actor)
        fresh = not (self._handling.once and number in self._met)
        self._met.add(number)
        return number, fresh

    def _fail(self, number: int, failing: Collection[int]) -> None:
        if number not in failing:
            return
        self._failed[number] += 1
        if self._failed[number] <= self._handling.failures:
            raise ScriptedFailure(
                f"message {number} is refused for the {self._failed[number]}. time, as the scenario says"
            )
