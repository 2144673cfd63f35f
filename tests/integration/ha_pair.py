"""A master and its slave in one process, and what tests compare of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker_wire import Wire, a_run, running, until
from dejamq_broker.app import Broker
from replica_making import assert_same

QUICK: dict[str, Any] = {
    "ha_send_heartbeat_interval_ms": 100, "ha_housekeeping_interval_ms": 1000, "ha_reconnect_interval_ms": 400,
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
    async with a_master(directory, **settings) as master, a_slave(directory, master.address) as slave:
        yield master, slave


async def same(master: Broker, slave: Broker) -> None:
    """Wait until the slave has the whole log, then compare bytes and queues."""
    ours, theirs = slave.domain.store, master.domain.store
    await until(lambda: ours.is_open and ours.log_max == theirs.log_max == ours.dispatched)
    assert_same(theirs, ours)


async def send(wire: Wire, count: int, *, topic: str = "T", queue_id: int = 0, size: int = 300, **more: Any) -> Any:
    bodies = [b"%d" % number + b"." * size for number in range(count)]
    return await wire.send(a_run(topic, bodies, queue_id=queue_id, **more))
