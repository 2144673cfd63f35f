"""P7 and P8 produced on purpose at a real broker, and the audit of what its processes wrote."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from dejamq import ConsumeFrom, Message, ReceivedMessage, TransactionProducer, TransactionState
from dejamq_lab import Cluster
from told import Auditor

pytestmark = pytest.mark.process

SETTINGS = {
    "transaction_timeout_ms": 2000, "transaction_check_interval_ms": 1000, "transaction_op_batch_interval_ms": 600_000,
    "poll_name_server_interval_ms": 500,
}  # fmt: skip
"""Marks are gathered for ten minutes, so that a kill surely loses them."""


class Shop:
    """Messages by body, where each was read, and how many checks of it are answered with a commit."""

    def __init__(self) -> None:
        self.places: dict[bytes, set[tuple[int, int]]] = {}
        self.commits = {b"late": 1, b"lost": 1}

    async def take(self, message: ReceivedMessage) -> None:
        self.places.setdefault(message.body, set()).add((message.queue.queue_id, message.queue_offset))

    async def checker(self, message: ReceivedMessage) -> TransactionState:
        left = self.commits.get(message.body, 0)
        self.commits[message.body] = left - 1
        return TransactionState.COMMIT if left > 0 else TransactionState.UNKNOWN

    async def until(self, body: bytes, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.places.get(body, ())) < count:
                await asyncio.sleep(0.02)

    # local transactions

    async def at_once(self, message: Message) -> TransactionState:
        return TransactionState.COMMIT

    async def after_a_check(self, message: Message) -> TransactionState:
        """It takes so long that a check has been answered meanwhile."""
        await self.until(message.body, 1)
        return TransactionState.COMMIT

    # what goes wrong

    async def commit_late(self, producer: TransactionProducer) -> None:
        """P7."""
        await producer.send_in_transaction(Message("orders", b"late"), self.after_a_check)
        await self.until(b"late", 2)

    async def lose_the_mark(self, producer: TransactionProducer, broker: Any) -> None:
        """P8: the broker is killed when the message is out and its mark is not stored."""
        await producer.send_in_transaction(Message("orders", b"lost"), self.at_once)
        await self.until(b"lost", 1)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.restart)
        await self.until(b"lost", 2)


async def test_the_audit_of_a_real_broker_names_both_causes_and_blames_nothing_else(
    tmp_path: Path, audited: Auditor
) -> None:
    shop = Shop()
    async with (
        Cluster(processes=True, topics={"orders": 1}, settings=SETTINGS, directory=tmp_path) as cluster,
        cluster.push_consumer("billing", consume_from=ConsumeFrom.FIRST_OFFSET) as consumer,
        cluster.transaction_producer("till", checker=shop.checker, topics=["orders"]) as producer,
    ):
        consumer.subscribe("orders", shop.take)
        await producer.send_in_transaction(Message("orders", b"once"), shop.at_once)
        await shop.commit_late(producer)
        await shop.lose_the_mark(producer, cluster.broker("broker-a"))
        await shop.until(b"once", 1)
    result = await asyncio.to_thread(audited, journals=[str(cluster.journal_dir)])
    rows = [row for row in result.findings.collect() if row.identity == "I2"]
    found = [
        (row.cause, {(row[side].queue_id, row[side].queue_offset) for side in ("first", "second")}) for row in rows
    ]
    wanted = [("P7", shop.places[b"late"]), ("P8", shop.places[b"lost"])]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    assert {row.certainty for row in rows} == {"certain"}
    assert all(sum(line.event == "END_TRANSACTION" for line in row.evidence) == 2 for row in rows)
    assert len(shop.places[b"once"]) == 1
