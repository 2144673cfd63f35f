"""What a consumer of a scenario does with its messages: wait, block, fail, and leave an effect in the ledger."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dejamq import Inbox, Message, ReceivedMessage

from dejamq_lab.scenario.ledger import Ledger
from dejamq_lab.scenario.text import Handling

KEY = "number-"
BLOCKED_POLL_S = 0.01


class Refused(Exception):
    """The handler fails, as the scenario says."""


def message(topic: str, number: int, tags: str = "", delay_level: int = 0) -> Message:
    """The message of this number: its business key is the number, so that two of one number are the same event."""
    body = json.dumps({"number": number}).encode()
    return Message(topic, body, tags=tags or None, keys=[f"{KEY}{number}"], delay_level=delay_level)


def number_of(received: ReceivedMessage) -> int:
    number: int = json.loads(received.body)["number"]
    return number


class Handlers:
    """The handlers of one consumer. Effects come after the work and before a failure, as careless programs do it."""

    def __init__(self, actor: str, group: str, handling: Handling, ledger: Ledger) -> None:
        self._actor, self._group, self._handling, self._ledger = actor, group, handling, ledger
        self._inbox = Inbox(ledger.connection) if handling.inbox else None
        self._failed: Counter[int] = Counter()
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let those go on that block."""
        self._released.set()

    async def one(self, received: ReceivedMessage) -> None:
        """Handles a message."""
        number = self._enter(received)
        if number in self._handling.blocks:
            await self._released.wait()
        if self._handling.work_ms:
            await asyncio.sleep(self._handling.work_ms / 1000)
        await self._effect(received, number)
        self._fail(number)

    async def many(self, received: Sequence[ReceivedMessage]) -> None:
        """Handles a list: each of it in its order."""
        for each in received:
            await self.one(each)

    def plain(self, received: ReceivedMessage) -> None:
        """Handles a message in a worker thread."""
        number = self._enter(received)
        while number in self._handling.blocks and not self._released.is_set():
            time.sleep(BLOCKED_POLL_S)
        time.sleep(self._handling.work_ms / 1000)
        self._write(received, number)
        self._fail(number)

    def chosen(self) -> Callable[..., Awaitable[Any] | None]:
        """What is subscribed with."""
        if self._handling.plain:
            return self.plain
        return self.many if self._handling.batch else self.one

    async def _effect(self, received: ReceivedMessage, number: int) -> None:
        if self._inbox is None:
            self._write(received, number)
            return
        async with self._inbox.once(received) as first:
            if first:
                self._write(received, number)

    def _enter(self, received: ReceivedMessage) -> int:
        number = number_of(received)
        self._ledger.enter(received.delivery_id, number, self._actor)
        return number

    def _write(self, received: ReceivedMessage, number: int) -> None:
        self._ledger.write(received.delivery_id, self._group, number, received.message_id, self._actor)

    def _fail(self, number: int) -> None:
        self._failed[number] += 1
        if number in self._handling.fails and self._failed[number] <= self._handling.failures:
            raise Refused(f"message {number} is refused for the {self._failed[number]}. time, as the scenario says")
