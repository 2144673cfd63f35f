"""Transactions while their broker is killed at random moments, and what became of each; for tests and `make prove`."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dejamq import (
    ConsumeFrom,
    DejamqError,
    Message,
    ReceivedMessage,
    TransactionProducer,
    TransactionResult,
    TransactionState,
)
from dejamq_lab import Cluster

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
SCALE = 0.05
PATIENT = {"mq_client_api_timeout_ms": 10_000, "consumer_progress_timeout_ms": 10_000}
"""Not scaled: a call that is given up on a busy machine would be a fault of the test's making."""
CLOSING = {"transaction_finish_once": True, "transaction_op_with_commit": True, "retry_times_when_send_failed": 0}
"""What closes RocketMQ's windows, the producer's second try of a half message among them."""
SIDES = ("first", "second")
WORKERS = 8
DEADLINE_S = 90.0


@dataclass
class Ledger:
    """The local transactions, as a database would know them, and where each message was read."""

    state: dict[str, TransactionState] = field(default_factory=dict)
    """By message id; what is not here is under way, and the checker cannot tell."""
    returned: list[TransactionResult] = field(default_factory=list)
    refused: int = 0
    kills: int = 0
    places: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    """Queue and queue offset of each delivered record, by message id."""

    @property
    def committed(self) -> set[str]:
        return {key for key, state in self.state.items() if state is COMMIT}

    @property
    def missing(self) -> set[str]:
        """Committed and not delivered."""
        return self.committed - self.places.keys()

    @property
    def doubled(self) -> dict[str, set[tuple[int, int]]]:
        """Stored twice or more often where consumers read, with the places."""
        return {key: places for key, places in self.places.items() if len(places) > 1}

    def check(self) -> None:
        """Raises AssertionError: a commit that returned is lost, or what was rolled back was delivered."""
        told = {result.message_id for result in self.returned if result.state is COMMIT}
        assert told <= self.committed
        assert not self.missing, f"lost: {sorted(self.missing)[:3]} of {len(self.committed)}"
        rolled_back = {key for key, state in self.state.items() if state is ROLLBACK}
        assert not rolled_back & self.places.keys(), "a rolled back message was delivered"

    def check_told(self, findings: Iterable[Mapping[str, Any]]) -> None:
        """What the audit calls stored or delivered twice is exactly what was doubled, each with all of its records, and
        of a cause that may be. Raises AssertionError.
        """
        told: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for one in findings:
            if one["identity"] != "I2":
                continue  # the same record again: what a killed broker forgets of consumers' offsets
            assert one["cause"] in ("P7", "P8") or "only its commit log" in one["missing"], one
            told[one["message_id"]] |= {(one[side]["queue_id"], one[side]["queue_offset"]) for side in SIDES}
        assert told == self.doubled

    # what the program's functions do

    async def checker(self, message: ReceivedMessage) -> TransactionState:
        return self.state.get(message.message_id, UNKNOWN)

    async def take(self, message: ReceivedMessage) -> None:
        self.places[message.message_id].add((message.queue.queue_id, message.queue_offset))


class Traffic:
    """Programs that make transactions one after the other until they are stopped."""

    def __init__(self, ledger: Ledger, producer: TransactionProducer, seed: int) -> None:
        self._ledger, self._producer, self._chance = ledger, producer, random.Random(seed)
        self._stopped = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work())

    def stop(self) -> None:
        self._stopped = True

    async def _work(self) -> None:
        while not self._stopped:
            message = Message("orders", b"x")
            try:
                self._ledger.returned.append(await self._producer.send_in_transaction(message, self._execute))
            except DejamqError:
                self._ledger.refused += 1
                self._ledger.state[message.message_id] = ROLLBACK  # its half message may be stored all the same
                await asyncio.sleep(0.02)

    async def _execute(self, message: Message) -> TransactionState:
        """Most end at once; some take longer than a round, some do not know how they ended."""
        chance = self._chance.random()
        await asyncio.sleep(self._chance.uniform(0.5, 2.5) if chance < 0.05 else self._chance.uniform(0, 0.02))
        state = ROLLBACK if self._chance.random() < 0.3 else COMMIT
        self._ledger.state[message.message_id] = state
        return UNKNOWN if chance > 0.95 else state


@asynccontextmanager
async def bank(directory: Path, settings: dict[str, Any]) -> AsyncIterator[Cluster]:
    """One broker as a process, its intervals a twentieth of RocketMQ's: rounds 1.5 s apart, marks gathered 150 ms."""
    every = {"transaction_check_max": 1000} | settings
    async with Cluster(
        processes=True, topics={"orders": 2}, time_scale=SCALE, settings=every, directory=directory
    ) as cluster:
        yield cluster


async def killed_again_and_again(directory: Path, kills: int, seed: int, settings: dict[str, Any]) -> Ledger:
    """One run; when it returns everything that was committed was delivered, or the deadline is over."""
    ledger, chance = Ledger(), random.Random(seed)
    async with bank(directory, settings) as cluster:
        consumer = cluster.push_consumer("billing", consume_from=ConsumeFrom.FIRST_OFFSET, **PATIENT)
        consumer.subscribe("orders", ledger.take)
        own = (
            PATIENT
            | {"send_msg_timeout_ms": 10_000}
            | {key: value for key, value in settings.items() if key.startswith("retry_")}
        )
        producer = cluster.transaction_producer("shop", checker=ledger.checker, topics=["orders"], **own)
        async with consumer, producer:
            traffic = Traffic(ledger, producer, seed)
            running = asyncio.ensure_future(traffic.run())
            broker: Any = cluster.broker("broker-a")
            for _ in range(kills):
                await asyncio.sleep(chance.uniform(0.3, 3))
                await asyncio.to_thread(broker.kill)
                ledger.kills += 1
                await asyncio.sleep(chance.uniform(0, 0.5))
                await asyncio.to_thread(broker.restart)
                await broker.started()
            await asyncio.sleep(chance.uniform(0.5, 1))
            traffic.stop()
            await running
            await _settled(ledger)
    return ledger


async def _settled(ledger: Ledger) -> None:
    """Everything committed is there, and two rounds more have brought nothing new."""
    quiet_s, since, seen = 3.5, 0.0, -1
    for _ in range(int(DEADLINE_S / 0.1)):
        count = sum(map(len, ledger.places.values()))
        since, seen = (since + 0.1, seen) if count == seen else (0.0, count)
        if not ledger.missing and since >= quiet_s:
            return
        await asyncio.sleep(0.1)
