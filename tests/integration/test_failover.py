"""A slave takes its lost master's place by itself, and a master that comes back writes nothing beside it."""

import asyncio
from pathlib import Path

import pytest
from broker_wire import until
from dejamq_broker.base.config import SYNC_MASTER
from dejamq_proto.codes import Code
from failover_set import LEASE_MS, ReplicaSet, a_set, send
from ha_pair import replica_events
from store_making import records_of

LEASE_S = LEASE_MS / 1000


def bodies(replicas: ReplicaSet, name: str) -> list[bytes]:
    return [record.body for record in records_of(replicas.broker(name).domain.store, "T", 0)]


async def test_a_slave_takes_over_and_the_master_that_comes_back_follows_it(tmp_path: Path) -> None:
    async with a_set(tmp_path, broker_role=SYNC_MASTER) as replicas:
        assert (await send(replicas.broker("a"), b"1")).code == Code.SUCCESS
        await replicas.kill("a")
        await until(lambda: replicas.is_master("b"), 30)
        answer = await send(replicas.broker("b"), b"2")
        assert answer.code == Code.SLAVE_NOT_AVAILABLE, "nobody follows it yet"
        await replicas.start("a")
        await until(lambda: replicas.broker("a").site.broker_id == 1, 30)
        await replicas.follows("a")
        assert (await send(replicas.broker("b"), b"3")).code == Code.SUCCESS
        assert (await send(replicas.broker("a"), b"beside")).code == Code.SERVICE_NOT_AVAILABLE
        await replicas.follows("a")
        assert bodies(replicas, "a") == bodies(replicas, "b") == [b"1", b"2", b"3"]
        assert await replicas.masters() == ["b"]
    changes = [event["change"] for event in replica_events(tmp_path / "journal")]
    assert "took_over" in changes
