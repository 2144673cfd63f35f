"""Members of one group that join and leave all the time, and what they were given; for tests and `make prove`."""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consumer_cluster import until
from dejamq import ConsumeFrom, Message, PushConsumer, ReceivedMessage
from dejamq_lab import Cluster
from dejamq_lab.duplicates import Duplicate
from handover_proof import given_too_early, lines_of, owned_twice

QUEUES = 16
MEMBERS = 8
SCALE = 0.02
NO_END_MS = 10_000_000
"""Longer than any run even when scaled, for what must not end however busy the machine is."""
PATIENT = {"mq_client_api_timeout_ms": 30_000, "consumer_progress_timeout_ms": 30_000, "await_termination_ms": 30_000}
"""Of clients, not scaled: a call that is given up on a busy machine would be a fault of the test's making."""


@dataclass
class Told:
    """What became of one run."""

    steps: int = 0
    sent: int = 0
    deliveries: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Delivery ids by message body, in the order of entering the handler."""
    duplicates: list[Duplicate] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    """What the journals have against a graceful hand-over."""

    @property
    def lost(self) -> list[int]:
        return [number for number in range(self.sent) if str(number) not in self.deliveries]

    @property
    def repeated(self) -> dict[str, list[str]]:
        """Delivery ids of what was delivered more than once."""
        return {body: ids for body, ids in self.deliveries.items() if len(ids) > 1}

    def check_graceful(self) -> None:
        """Raises AssertionError with the first message that was lost or came twice, or a queue that had two owners."""
        assert not self.lost, f"lost: {self.lost[:5]} of {self.sent}"
        assert not self.repeated, f"delivered twice: {list(self.repeated.items())[:3]}"
        assert self.duplicates == []
        assert self.against == []

    def check_told(self) -> None:
        """Nothing is lost, and the duplicates found are exactly those that handlers saw, each with both deliveries."""
        assert not self.lost, f"lost: {self.lost[:5]} of {self.sent}"
        found: dict[str, list[str]] = defaultdict(list)
        for duplicate in self.duplicates:
            pair = [f"{one.boot_id}-{one.delivery_id}" for one in (duplicate.first, duplicate.second)]
            assert duplicate.first.place == duplicate.second.place
            ids = found[duplicate.message_id]
            assert not ids or ids[-1] == pair[0], "each repeat is paired with the delivery before it"
            found[duplicate.message_id] += pair if not ids else pair[1:]
        assert sorted(map(sorted, found.values())) == sorted(map(sorted, self.repeated.values()))


class Churn:
    """One run on one cluster. Everything that is random comes from ``seed``, except what the machine does."""

    def __init__(self, cluster: Cluster, seed: int, **settings: Any) -> None:
        self._cluster, self._dice, self._settings = cluster, random.Random(seed), settings
        self._present: list[PushConsumer] = []
        self._stopped = asyncio.Event()
        self.told = Told()

    async def run(self, steps: int) -> Told:
        """So many times one member joins or leaves, under a steady stream of messages; then the rest is consumed."""
        sending = asyncio.ensure_future(self._send())
        try:
            for _ in range(steps):
                await self._step()
        finally:
            self._stopped.set()
            await sending
        await until(lambda: not self.told.lost, 60)
        await asyncio.gather(*(member.close() for member in self._present))
        self.told.duplicates = await self._cluster.duplicates("g")
        if self._settings["graceful_handover"]:
            lines = lines_of(self._cluster.journal_dir)
            self.told.against = given_too_early(lines, NO_END_MS * SCALE) + owned_twice(lines)
        return self.told

    async def _step(self) -> None:
        """A member joins or leaves, sometimes several at once; then some messages go by, before or after it settled."""
        self.told.steps += 1
        present, dice = self._present, self._dice
        if len(present) < 2 or (len(present) < MEMBERS and dice.random() < 0.55):
            present.append(self._member())
            await present[-1].start()
        else:
            await present.pop(dice.randrange(len(present))).close()
        if dice.random() < 0.7:
            at = len(self.told.deliveries) + dice.randrange(60)
            await until(lambda: len(self.told.deliveries) >= at, 60)

    def _member(self) -> PushConsumer:
        settings = {**PATIENT, **self._settings}
        consumer = self._cluster.push_consumer(
            "g", consume_from=ConsumeFrom.FIRST_OFFSET, max_concurrency=8, **settings
        )
        seconds = self._dice.choice((0.0, 0.002, 0.02))

        async def handle(message: ReceivedMessage) -> None:
            self.told.deliveries[message.body.decode()].append(message.delivery_id)
            await asyncio.sleep(seconds)

        consumer.subscribe("orders", handle)
        return consumer

    async def _send(self) -> None:
        """A few hundred a second, never so many ahead that catching up takes long."""
        told = self.told
        async with self._cluster.producer("p", send_msg_timeout_ms=30_000) as producer:
            while not self._stopped.is_set():
                if told.sent - len(told.deliveries) < 300:
                    bodies = range(told.sent, told.sent + 20)
                    await asyncio.gather(*(producer.send(Message("orders", b"%d" % number)) for number in bodies))
                    told.sent += 20
                await asyncio.sleep(0.02)


async def churned(directory: Path, steps: int, seed: int, *, graceful: bool, **settings: Any) -> Told:
    """A cluster of two brokers, its group in motion, and what came of it.

    Each member asks either broker who else there is, so their lists differ for moments (cause R2).
    """
    servers, topics = {"claim_life_ms": NO_END_MS}, {"orders": QUEUES // 2}
    async with Cluster(2, topics=topics, time_scale=SCALE, settings=servers, directory=directory) as cluster:
        own = {"claim_trust_ms": NO_END_MS, "handover_wait_ms": NO_END_MS} if graceful else {}
        return await Churn(cluster, seed, graceful_handover=graceful, **own, **settings).run(steps)
