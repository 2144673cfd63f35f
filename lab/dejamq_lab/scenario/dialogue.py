"""What actors do beside plain sending and handling: local transactions, and replies to requests."""

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any

from dejamq import Message, Producer, ReceivedMessage, TransactionProducer, TransactionState, reply_to
from dejamq_proto.codes import DejamqError

from dejamq_lab.scenario.text import Transacting

FOR_ALL_CLIENTS = ("journal_dir", "journal_level")


class Transactions:
    """Local transactions of one producer and its answers to checks: all the same, as the scenario says."""

    def __init__(self, said: Transacting) -> None:
        self._said, self._released = said, asyncio.Event()

    def release(self) -> None:
        """Let local transactions end that wait."""
        self._released.set()

    def producer(self, group: str, namesrv: str, topics: tuple[str, ...], settings: Mapping[str, Any]) -> Producer:
        """The client that asks here."""
        return TransactionProducer(group, checker=self._check, topics=topics, namesrv=namesrv, **settings)

    def send(self, producer: TransactionProducer, message: Message, timeout_ms: float | None) -> Awaitable[Any]:
        """Half message, local transaction, and how it ended."""
        return producer.send_in_transaction(message, self._execute, timeout_ms=timeout_ms)

    async def _execute(self, _: Message) -> TransactionState:
        if self._said.blocks:
            await self._released.wait()
        return TransactionState[self._said.answer.upper()]

    async def _check(self, _: ReceivedMessage) -> TransactionState:
        return TransactionState[self._said.check.upper()]


class Replier:
    """Replies to requests, by a producer of its own. A reply that nobody waits for any more is no failure."""

    def __init__(self, group: str, namesrv: str, settings: Mapping[str, Any]) -> None:
        own = {name: settings[name] for name in FOR_ALL_CLIENTS if name in settings}
        self.producer = Producer(f"{group}-replies", namesrv=namesrv, **own)

    async def reply(self, request: ReceivedMessage) -> None:
        """Say that it is done."""
        with suppress(DejamqError):
            await self.producer.send(reply_to(request, b"done"))
