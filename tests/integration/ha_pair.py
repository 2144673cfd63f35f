"""A master and its slave in one process, with a relay between them, and what tests compare of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker_wire import Wire, a_run, running, until
from dejamq_broker.app import Broker
from dejamq_lab.cluster.relay import Relay
from dejamq_proto.wire.messages import SendRunResult
from journalled import journalled
from replica_making import assert_same

QUICK: dict[str, Any] = {
    "ha_send_heartbeat_interval_ms": 100, "ha_housekeeping_interval_ms": 800, "ha_reconnect_interval_ms": 400,
}  # fmt: skip


@asynccontextmanager
async def a_master(directory: Path, **settings: Any) -> AsyncIterator[Broker]:
    async with running(directory / "master", **(QUICK | settings)) as master:
        yield master


@asynccontextmanager
async def a_slave(directory: Path, master_address: str, **settings: Any) -> AsyncIterator[Broker]:
    """Of the master at this address, which may be a relay's."""
    more = {"broker_id": 1, "ha_master_address": master_address} | QUICK | settings
    async with running(directory / "slave", **more) as slave:
        yield slave


@asynccontextmanager
async def a_pair(directory: Path, **settings: Any) -> AsyncIterator[tuple[Broker, Broker]]:
    """The slave follows. ``settings`` are the master's."""
    async with a_master(directory, **settings) as master, a_slave(directory, master.address) as slave:
        await following(slave)
        yield master, slave


@asynccontextmanager
async def a_pair_with_topic(directory: Path, topic: str) -> AsyncIterator[tuple[Broker, Broker]]:
    """The slave copies the master's tables all the time. Each takes the place of its own, whenever it comes."""
    async with (
        a_master(directory) as master,
        a_slave(directory, master.address, slave_sync_interval_ms=200) as slave,
    ):
        await following(slave)
        await knows_topic(master, slave, topic)
        yield master, slave


@asynccontextmanager
async def a_link(target: str) -> AsyncIterator[Relay]:
    """What a slave takes for its master."""
    relay = Relay(lambda: target)
    await relay.start("127.0.0.1")
    try:
        yield relay
    finally:
        await relay.close()


async def following(slave: Broker) -> None:
    await until(lambda: told(slave)["following"] == "true")


def told(broker: Broker) -> dict[str, str]:
    """What it says of replication."""
    return broker.replication_info()


async def knows_topic(master: Broker, slave: Broker, topic: str) -> None:
    """The slave has it by its master's table, with ``slave_sync_interval_ms`` or when it begins to follow."""
    master.domain.tables.topics.for_sending(topic, 4)
    await until(lambda: topic in {config.topic_name for config in slave.domain.tables.topics})


async def same(master: Broker, slave: Broker) -> None:
    """Wait until the slave has the whole log, then compare bytes and queues."""
    ours, theirs = slave.domain.store, master.domain.store
    await until(lambda: ours.is_open and ours.log_max == theirs.log_max == ours.dispatched == theirs.dispatched, 20)
    assert_same(theirs, ours)


async def send(wire: Wire, count: int = 1, *, queue_id: int = 0, size: int = 300, **more: Any) -> SendRunResult:
    bodies = [b"%d" % number + b"." * size for number in range(count)]
    return await wire.send(a_run("T", bodies, queue_id=queue_id, **more))


def replica_events(journal: Path, role: str = "broker") -> list[dict[str, Any]]:
    """The REPLICA lines of all processes, in the order of time."""
    return sorted(journalled(journal, "REPLICA", of=f"{role}-*"), key=lambda line: int(line["mono_us"]))
