"""From which replica a queue is pulled, and what travels there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from consumer_fakes import FakeLink, a_fetcher, answer, context, owned_queue, stored, until
from dejamq.rebalance.claims import QueueClaims
from dejamq.rebalance.locks import QueueLocks
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import BrokerCalls, ConsumerContext
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.receiving.received import ReceivedMessage
from dejamq_proto.codes import BrokerUnavailable, Code
from dejamq_proto.wire.messages import PullAnswer


class Replicas:
    """A master and a slave; ``there`` are those that routes name."""

    def __init__(self) -> None:
        self.links = {0: FakeLink(), 1: FakeLink()}
        self.there = [0, 1]

    def context(self, **settings: Any) -> ConsumerContext:
        return msgspec.structs.replace(context(self.links[0], **settings), replica=self.replica)

    def replica(self, broker_name: str, broker_id: int) -> tuple[BrokerCalls, int]:
        if not self.there:
            raise BrokerUnavailable(f"no route names {broker_name}", definite=True)
        found = broker_id if broker_id in self.there else self.there[0]
        return self.links[found], found


@asynccontextmanager
async def fetching(replicas: Replicas, owned: OwnedQueue, **settings: Any) -> AsyncIterator[list[ReceivedMessage]]:
    made = replicas.context(**settings)
    deliveries, got = Deliveries(made), list[ReceivedMessage]()
    fetcher = a_fetcher(made, deliveries, RemoteOffsetStore(made, deliveries), lambda _, messages: got.extend(messages))
    task = asyncio.create_task(fetcher.run(owned))
    try:
        yield got
    finally:
        task.cancel()
        await asyncio.wait((task,))


def suggesting(broker_id: int, *offsets: int) -> PullAnswer:
    found = answer([stored(offset) for offset in offsets], offsets[-1] + 1)
    found.suggest_broker_id = broker_id
    return found


async def test_the_next_pull_goes_where_the_last_answer_said() -> None:
    replicas, owned = Replicas(), owned_queue()
    master, slave = replicas.links[0], replicas.links[1]
    master.answers = [suggesting(1, 0)]
    slave.answers = [suggesting(1, 1), suggesting(0, 2)]
    async with fetching(replicas, owned) as got:
        await until(lambda: len(master.pulls) > 1)
    assert [message.queue_offset for message in got] == [0, 1, 2]
    assert [request.queue_offset for request in slave.pulls] == [1, 2]
    assert master.pulls[1].queue_offset == 3


async def test_a_slave_is_read_while_no_route_names_the_master_and_told_no_offset_by_pulls() -> None:
    replicas, owned = Replicas(), owned_queue()
    replicas.there = [1]
    slave = replicas.links[1]
    slave.records = [stored(offset) for offset in range(3)]
    async with fetching(replicas, owned) as got:
        await until(lambda: len(got) == 3)
        owned.process_queue.finish(0)
        count = len(slave.pulls)
        await until(lambda: len(slave.pulls) > count + 1)
        assert not any(request.HasField("commit_offset") for request in slave.pulls)
        replicas.there = [0, 1]
        await until(lambda: replicas.links[0].pulls and replicas.links[0].pulls[-1].commit_offset == 1)
    assert replicas.links[0].pulls[0].queue_offset == 3


async def test_a_slave_that_does_not_answer_is_left_for_the_master() -> None:
    replicas, owned = Replicas(), owned_queue()
    replicas.links[0].answers = [suggesting(1, 0)]
    replicas.links[1].refuse["pull"] = BrokerUnavailable("gone", definite=True)
    async with fetching(replicas, owned) as got:
        await until(lambda: len(replicas.links[0].pulls) > 1)
    assert len(replicas.links[1].pulls) == 1
    assert len(got) == 1


async def test_a_slave_that_speaks_of_a_master_without_route_is_not_asked_all_the_time() -> None:
    replicas, owned = Replicas(), owned_queue()
    replicas.there = [1]
    slave = replicas.links[1]
    slave.answers = [PullAnswer(code=Code.PULL_RETRY_IMMEDIATELY, next_offset=0) for _ in range(1000)]
    async with fetching(replicas, owned, pull_time_delay_when_exception_ms=60_000):
        await until(lambda: len(slave.pulls) == 1)
        await asyncio.sleep(0.05)
    assert len(slave.pulls) == 1


async def test_locks_are_asked_of_masters_only() -> None:
    replicas = Replicas()
    replicas.there = [1]
    made = replicas.context()
    with pytest.raises(BrokerUnavailable, match="has no master now"):
        made.master("broker-a")
    owned = owned_queue()

    async def quiet(_: OwnedQueue, timeout_s: float) -> bool:
        return True

    assert not await QueueLocks(made, list, quiet, lambda: None).lock([owned.queue])
    assert not replicas.links[1].lock_calls


async def test_claims_are_asked_of_masters_only() -> None:
    replicas = Replicas()
    replicas.there = [1]
    made = replicas.context()
    assert (
        await QueueClaims(made, Deliveries(made), on_lost=lambda queue: None, on_doubtful=lambda queue: None).claim(
            [owned_queue().queue]
        )
        == []
    )
    assert not replicas.links[1].claim_calls
