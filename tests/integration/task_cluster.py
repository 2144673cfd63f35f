"""Brokers and workers of taskiq in this process, at the servers of ``consumer_cluster``."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from consumer_cluster import Servers, until
from dejamq.integrations.taskiq import DejamqBroker
from taskiq.brokers.inmemory_broker import InmemoryResultBackend
from taskiq.receiver import Receiver

RESULTS: InmemoryResultBackend[Any] = InmemoryResultBackend()


def task_broker(here: Servers, **settings: Any) -> DejamqBroker:
    """Journalled, with short times; its results stay in this process."""
    own = {"journal_dir": str(here.directory / "journal"), "journal_level": "forensic"}
    quick = {"poll_name_server_interval_ms": 300, "reconnect_interval_ms": 50, "retry_delay_ms": 50}
    chosen = own | quick | {"group": "workers"} | settings
    return DejamqBroker("tasks", namesrv=here.namesrv.address, **chosen).with_result_backend(RESULTS)


@asynccontextmanager
async def working(broker: DejamqBroker, **settings: Any) -> AsyncIterator[None]:
    """As ``taskiq worker`` does it; the end is that of a worker that is told to stop."""
    broker.is_worker_process = True
    stop = asyncio.Event()
    receiver = Receiver(broker, max_async_tasks=10, **settings)
    listening = asyncio.create_task(receiver.listen(stop))
    try:
        yield
    finally:
        stop.set()
        try:
            await listening
        finally:
            await broker.shutdown()


async def nothing_is_left(here: Servers, count: int, topic: str = "tasks") -> None:
    """So many tasks were acknowledged."""
    await until(lambda: len(acknowledged(here, topic)) == count)


def acknowledged(here: Servers, topic: str = "tasks") -> list[int]:
    """Queue offsets of the tasks, and of their repeats."""
    lines = [line for line in here.server_lines("ACK") if line.get("outcome", "ok") == "ok"]
    return [offset for line in lines if line["topic"].endswith(topic) for offset in line["queue_offsets"]]
