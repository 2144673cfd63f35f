"""Actors beyond plain sending and handling: local transactions, replies to requests, and offsets of their own."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from dejamq import (
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
    reply_to,
)
from dejamq_proto.codes import DejamqError

from dejamq_lab.scenario.script.ledger import EffectLedger
from dejamq_lab.scenario.script.text import Transacting

# A program that keeps its offsets itself: in a table of its own, written apart from its effects, as some do.

SCHEMA = """CREATE TABLE IF NOT EXISTS own_offsets (
    consumer_group TEXT NOT NULL, topic TEXT NOT NULL, broker_name TEXT NOT NULL, queue_id INTEGER NOT NULL,
    queue_offset INTEGER NOT NULL, PRIMARY KEY (consumer_group, topic, broker_name, queue_id))"""


class OwnOffsets:
    """The next offset of each queue, written after every ``every`` messages; a crash loses those in between."""

    def __init__(self, ledger: EffectLedger, group: str, every: int) -> None:
        self._connection, self._group, self._every = ledger.connection, group, every
        self._connection.execute(SCHEMA)
        self._next: dict[MessageQueue, int] = {}
        self._count = 0

    def begin(self, lite: LitePullConsumer, queues: Sequence[MessageQueue]) -> None:
        """Go on where the table says: at 0 in a queue that it does not have."""
        query = "SELECT topic, broker_name, queue_id, queue_offset FROM own_offsets WHERE consumer_group = ?"
        rows = self._connection.execute(query, (self._group,))
        kept = {MessageQueue(topic, broker_name, queue_id): at for topic, broker_name, queue_id, at in rows}
        for queue in queues:
            lite.seek(queue, kept.get(queue, 0))

    def done(self, received: ReceivedMessage) -> None:
        """Its effect is there."""
        self._next[received.queue] = received.queue_offset + 1
        self._count += 1
        if self._count % self._every == 0:
            rows = [(self._group, at.topic, at.broker_name, at.queue_id, kept) for at, kept in self._next.items()]
            self._connection.executemany("INSERT OR REPLACE INTO own_offsets VALUES (?, ?, ?, ?, ?)", rows)


FOR_ALL_CLIENTS = ("journal_dir", "journal_level")


class ScriptedTransactions:
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
