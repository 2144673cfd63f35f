"""What a consumer of a scenario does with its messages: wait, block, fail, and leave an effect in the ledger."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from dejamq import (
    BatchResult,
    ConsumeStatus,
    Message,
    OrderedStatus,
    ReceivedMessage,
    SuspendQueue,
)

from dejamq_lab.scenario.effects import Effects
from dejamq_lab.scenario.ledger import Ledger
from dejamq_lab.scenario.text import Handling

KEY = "number-"
BLOCKED_POLL_S = 0.01


class Refused(Exception):
    """The handler fails, as the scenario says."""


def message(topic: str, number: int, tags: str = "", delay_level: int = 0, pad: int = 0) -> Message:
    """The message of this number: its business key is the number, so that two of one number are the same event."""
    body = json.dumps({"number": number, "pad": " " * pad} if pad else {"number": number}).encode()
    return Message(topic, body, tags=tags or None, keys=[f"{KEY}{number}"], delay_level=delay_level)


def number_of(received: ReceivedMessage) -> int:
    number: int = json.loads(received.body)["number"]
    return number


class Handlers:
    """The handlers of one consumer. Effects come after the work and before a failure, as careless programs do it."""

    def __init__(self, actor: str, group: str, handling: Handling, ledger: Ledger) -> None:
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
        except Refused as refusal:
            return self._refused(refusal)

    async def many(self, received: Sequence[ReceivedMessage]) -> Any:
        """Handles a list: each of it in its order, up to the first that fails. The last word of them counts."""
        answer = None
        for index, each in enumerate(received):
            try:
                answer = await self._handle(each) or answer
            except Refused as refusal:
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
        except Refused as refusal:
            return self._refused(refusal)
        return self._done(received, number)

    def chosen(self) -> Callable[..., Awaitable[Any] | None]:
        """What is subscribed with."""
        if self._handling.plain:
            return self.plain
        return self.many if self._handling.batch else self.one

    async def _handle(self, received: ReceivedMessage) -> OrderedStatus | None:
        """Raises Refused where it fails."""
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

    def _refused(self, refusal: Refused) -> Any:
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
        """What is left to do after the first effect, and the answer to success."""
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
            raise Refused(f"message {number} is refused for the {self._failed[number]}. time, as the scenario says")
