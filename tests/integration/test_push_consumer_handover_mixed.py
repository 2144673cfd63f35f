"""Graceful hand-over in a group with a RocketMQ client, which claims no queues: it is off for everybody, and said."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import SLOW, Servers, servers, until
from dejamq import PushConsumer, ReceivedMessage
from dejamq_proto.remoting import requests as r
from remoting_wire import RemotingClient, a_heartbeat, remoting

NO_END_MS = 600_000
GRACEFUL: dict[str, Any] = SLOW | {"graceful_handover": True, "claim_trust_ms": NO_END_MS}
FOREIGN = "zz"
"""Behind our own members in the order by which queues are shared out."""
BODIES = [str(number) for number in range(8)]


class Holding:
    """A handler that holds each message until it may go on."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.go_on = asyncio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.entered.append(message.body.decode())
        await self.go_on.wait()


@asynccontextmanager
async def owner(directory: Path) -> AsyncIterator[tuple[Servers, PushConsumer, Holding]]:
    """A member with graceful hand-over that owns all four queues, and whose handlers run."""
    async with servers(directory, claim_life_ms=NO_END_MS) as here:
        await here.send(*BODIES)
        handler = Holding()
        consumer = here.consumer(**GRACEFUL, max_concurrency=2 * len(BODIES))
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: len(handler.entered) == len(BODIES))
            try:
                yield here, consumer, handler
            finally:
                handler.go_on.set()


async def join(client: RemotingClient, group: str = "g") -> None:
    assert (await client.ask(r.HEART_BEAT, a_heartbeat(FOREIGN, group, "orders"))).code == 0


async def test_queues_are_let_go_at_once_for_a_member_that_waits_for_nobody(tmp_path: Path) -> None:
    async with owner(tmp_path) as (here, consumer, _), remoting(here.address) as foreign:
        await join(foreign)
        await until(lambda: len(consumer.assignment) == 2)
        handover = consumer.inspect().handover
        assert handover is not None
        await until(lambda: not handover.leaving)


async def test_commits_of_a_member_that_claims_nothing_count(tmp_path: Path) -> None:
    async with owner(tmp_path) as (here, consumer, _), remoting(here.address) as foreign:
        await join(foreign)
        for queue in range(4):  # also of queues that still are another's, as with RocketMQ
            at = {"consumerGroup": "g", "topic": "orders", "queueId": queue}
            await foreign.ask(r.UPDATE_CONSUMER_OFFSET, **at, commitOffset=2)
        assert here.broker is not None
        committed = here.broker.domain.tables.offsets.of_group("g")
        assert sorted(committed)[-4:] == [("orders", queue, 2) for queue in range(4)]
        assert consumer.assignment


async def test_it_is_said_when_hand_over_is_not_graceful_and_when_it_is_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with owner(tmp_path) as (here, consumer, handler):
        async with remoting(here.address) as foreign:
            await join(foreign)
            await until(lambda: f"handover_off group=g member={FOREIGN}" in caplog.text)
            await until(lambda: f"handover_off group=g reason=member {FOREIGN} claims no queues" in caplog.text)
            await until(lambda: len(consumer.assignment) == 2)
        await until(lambda: len(consumer.assignment) == 4)
        await until(lambda: caplog.text.count("handover_on group=g") == 2)
        assert consumer.inspect().handover is not None
        handler.go_on.set()


async def test_hand_over_is_graceful_again_when_the_foreign_member_has_left(tmp_path: Path) -> None:
    async with owner(tmp_path) as (here, consumer, handler):
        async with remoting(here.address) as foreign:
            await join(foreign)
            await until(lambda: len(consumer.assignment) == 2)
        await until(lambda: len(handler.entered) == 12)  # those of two queues came again
        other = here.consumer(**GRACEFUL)
        other.subscribe("orders", Holding())
        async with other:
            handover = consumer.inspect().handover
            assert handover is not None
            await until(lambda: len(handover.leaving) == 2)
            assert (len(consumer.assignment), other.assignment) == (4, ())
            handler.go_on.set()
            await until(lambda: len(consumer.assignment) == len(other.assignment) == 2)


async def test_a_foreign_member_of_another_group_changes_nothing(tmp_path: Path) -> None:
    async with owner(tmp_path) as (here, consumer, _), remoting(here.address) as foreign:
        await join(foreign, "another")
        assert here.broker is not None
        assert here.broker.domain.members.handovers.off("g") == ""
        assert here.broker.domain.members.handovers.off("another") == ""
        assert len(consumer.assignment) == 4
