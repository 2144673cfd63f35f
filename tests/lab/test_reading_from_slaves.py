"""Consumers go on at a slave while the master is away, and go back to it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from dejamq import Admin, BrokerUnavailable, ConsumeFrom, DejamqError, Message, Producer
from dejamq_lab import Cluster
from dejamq_lab.cluster.rpc_control import runtime
from journalled import journalled

pytestmark = pytest.mark.process


async def until(holds: Callable[[], Any], deadline_s: float = 30) -> None:
    deadline = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)


async def sent(producer: Producer, *bodies: bytes) -> None:
    """Wait until they are: a route of the time without a master is in the client for a while."""
    deadline = time.monotonic() + 20
    for body in bodies:
        while True:
            try:
                await producer.send(Message("orders", body))
                break
            except DejamqError:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)


async def copied(cluster: Cluster) -> None:
    """Wait until the slave has the whole log."""
    deadline = time.monotonic() + 20
    while True:
        values = [await runtime(cluster.broker(name).address) for name in ("broker-a", "broker-a-s1")]
        if values[0]["commitLogMaxOffset"] == values[1]["commitLogMaxOffset"]:
            return
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def journal(directory: Path, name: str, event: str) -> list[dict[str, Any]]:
    """What this broker process wrote of its group's reading."""
    lines = journalled(directory / "journal", event, of=f"broker-{name}-*")
    return [line for line in lines if line["topic"] == "orders"]


def pulls(directory: Path, name: str) -> list[dict[str, Any]]:
    """Its answers with messages."""
    return [line for line in journal(directory, name, "PULL") if int(line.get("count", 0))]


def commits(directory: Path, name: str) -> list[dict[str, Any]]:
    """What it took from consumers."""
    return [line for line in journal(directory, name, "OFF_SET") if line["by"] != "slave-sync"]


@asynccontextmanager
async def a_cluster(directory: Path, **settings: Any) -> AsyncIterator[Cluster]:
    async with Cluster(
        slaves=1, processes=True, topics={"orders": 2}, directory=directory, time_scale=0.03, settings=settings
    ) as cluster:
        yield cluster


@pytest.mark.parametrize("kind", ["push", "lite"])
async def test_a_consumer_reads_from_the_slave_while_the_master_is_away_and_goes_back(
    tmp_path: Path, kind: str
) -> None:
    async with a_cluster(tmp_path) as cluster, cluster.producer("till") as producer:
        got: list[bytes] = []
        await sent(producer, b"1", b"2")
        await copied(cluster)
        cluster.broker("broker-a").kill()
        consumer = a_consumer(cluster, kind, got)
        async with consumer:
            polling = asyncio.create_task(poll(consumer, got)) if kind == "lite" else None
            await until(lambda: sorted(got) == [b"1", b"2"])
            await until(lambda: commits(tmp_path, "broker-a-1"))
            async with Admin(cluster.namesrv) as admin:
                with pytest.raises(BrokerUnavailable, match=r"broker-a has no master now, only slaves \(1 at "):
                    await admin.progress("g")
            cluster.broker("broker-a").restart()
            await cluster.ready()
            await sent(producer, b"3", b"4")
            await until(lambda: sorted(got) == [b"1", b"2", b"3", b"4"])
            count = 4
            while not pulls(tmp_path, "broker-a-0"):
                await sent(producer, b"%d" % (count := count + 1))
                await until(lambda: len(got) == count)
            if polling is not None:
                polling.cancel()
        assert len(got) == len(set(got))
    assert pulls(tmp_path, "broker-a-1")


def a_consumer(cluster: Cluster, kind: str, got: list[bytes]) -> Any:
    if kind == "lite":
        lite = cluster.lite_pull_consumer("g", consume_from=ConsumeFrom.FIRST_OFFSET)
        lite.subscribe("orders")
        return lite
    push = cluster.push_consumer("g", consume_from=ConsumeFrom.FIRST_OFFSET)
    push.subscribe("orders", lambda message: got.append(message.body))
    return push


async def poll(consumer: Any, got: list[bytes]) -> None:
    while True:
        got += [message.body for message in await consumer.poll(100)]


async def test_a_master_sends_who_is_far_behind_to_its_slave(tmp_path: Path) -> None:
    async with (
        a_cluster(tmp_path, access_message_in_memory_max_ratio=0) as cluster,
        cluster.producer("till") as producer,
    ):
        await sent(producer, *(b"%d" % number for number in range(200)))
        await copied(cluster)
        got: list[bytes] = []
        consumer = cluster.push_consumer("g", consume_from=ConsumeFrom.FIRST_OFFSET, pull_batch_size=4)
        consumer.subscribe("orders", lambda message: got.append(message.body))
        async with consumer:
            await until(lambda: len(got) == 200)
        assert len(set(got)) == 200
    assert pulls(tmp_path, "broker-a-0")
    assert pulls(tmp_path, "broker-a-1")
