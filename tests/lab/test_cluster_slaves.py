"""Clusters with slaves: what is sent to a master is in its slave's log, whatever kind of cluster it is."""

import asyncio
import time
from pathlib import Path

import pytest
from dejamq import DejamqError, Message, Producer
from dejamq_lab import Cluster
from dejamq_lab.cluster.rpc_control import runtime
from replica_files import assert_same_files


async def settled(cluster: Cluster, broker: str) -> None:
    """Wait until the slave has everything that its master has."""
    deadline = time.monotonic() + 20
    while True:
        values = [await runtime(cluster.broker(name).address) for name in (broker, f"{broker}-s1")]
        ends = {value.get("commitLogMaxOffset") for value in values}
        if len(ends) == 1 and all(value.get("dispatchBehindBytes") == "0" for value in values):
            return
        assert time.monotonic() < deadline, ends
        await asyncio.sleep(0.02)


async def sent(producer: Producer, body: bytes) -> None:
    """Wait until it is: a route of the time without a master is in the client for a while."""
    deadline = time.monotonic() + 20
    while True:
        try:
            await producer.send(Message("orders", body))
            return
        except DejamqError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.process)])
async def test_what_is_sent_to_a_master_is_in_its_slaves_log(tmp_path: Path, processes: bool) -> None:
    async with Cluster(
        brokers=2, slaves=1, processes=processes, topics={"orders": 2}, directory=tmp_path, time_scale=0.1
    ) as cluster:
        async with cluster.producer("till") as producer:
            for number in range(200):
                await producer.send(Message("orders", b"order-%d" % number))
        for broker in ("broker-a", "broker-b"):
            await settled(cluster, broker)
            assert (await runtime(cluster.broker(broker).address))["slaves"] == "1"
    for broker in ("broker-a", "broker-b"):
        assert_same_files(tmp_path / broker / "store", tmp_path / f"{broker}-s1" / "store")


@pytest.mark.process
async def test_a_slave_that_was_killed_and_one_whose_master_was_follow_again(tmp_path: Path) -> None:
    async with (
        Cluster(slaves=1, processes=True, topics={"orders": 2}, directory=tmp_path, time_scale=0.1) as cluster,
        cluster.producer("till") as producer,
    ):
        for name in ("broker-a-s1", "broker-a"):
            await sent(producer, b"before")
            cluster.broker(name).kill()
            cluster.broker(name).restart()
            await cluster.ready()
            await sent(producer, b"after")
        await settled(cluster, "broker-a")
    assert_same_files(tmp_path / "broker-a" / "store", tmp_path / "broker-a-s1" / "store")
