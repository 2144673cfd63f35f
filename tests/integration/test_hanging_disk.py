"""A disk that hangs: the event loops of broker and name server wait for none of its calls, and go on serving."""

import asyncio
import dataclasses
import os
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from consumer_cluster import STORE, Servers, servers, until
from dejamq import Admin, Message, ReceivedMessage
from dejamq_broker.store import ASYNC_FLUSH, SYNC_FLUSH
from dejamq_proto.codes import DejamqError
from grpc_health.v1 import health_pb2, health_pb2_grpc

KINDS = {
    "fdatasync": ("fdatasync", "fsync"),
    "write": ("write", "pwrite", "fsync", "ftruncate", "posix_fallocate"),
    "unlink": ("unlink", "replace", "link"),
}
SERVED_S = 25.0
"""Far less than the disk hangs, whatever else the machine does."""


class Disk:
    """Calls that wait for a disk: none may be made in the event loop, and in other threads they hang when told so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hangs: frozenset[str] = frozenset()
        self.answers = threading.Event()
        self.hanging = 0
        self.in_loop: list[str] = []
        self.loop_thread = 0
        for name in {name for names in KINDS.values() for name in names}:
            monkeypatch.setattr(os, name, self._instead(name, getattr(os, name)))

    @contextmanager
    def hang(self, kind: str) -> Iterator[None]:
        """For as long as the block lasts."""
        self.answers.clear()
        self.hangs = frozenset(KINDS[kind])
        try:
            yield
        finally:
            self.hangs = frozenset()
            self.answers.set()

    def _instead(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() == self.loop_thread:
                self._note(name)
            elif name in self.hangs:
                self.hanging += 1
                self.answers.wait(55)
            return real(*arguments, **named)

        return call

    def _note(self, name: str) -> None:
        """The log's bytes go into the kernel's memory by a call of the loop: that is known (docs/limits.md)."""
        where = [f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in traceback.extract_stack(limit=8)[-3::-1]]
        if not (name == "pwrite" and "_written" in where[0]):
            self.in_loop.append(f"{name} < {' < '.join(where)}")


@pytest.fixture
async def disk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.answers.set()


async def healthy(address: str) -> bool:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest())
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def known(admin: Admin, topic: str) -> None:
    """Until the name server tells of the topic: its creation goes on by itself beside all this."""
    while not all(map(registered, (await admin.routes(topic)).values())):
        await asyncio.sleep(0.01)


def registered(route: object) -> bool:
    """A name server's answer has queues of the topic."""
    return not isinstance(route, DejamqError) and bool(route)


async def consumed(cluster: Servers, group: str, count: int) -> list[bytes]:
    """By a member that joins now, and whose heartbeats are acknowledged."""
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    consumer = cluster.consumer(group, journal_level="off")
    consumer.subscribe("orders", handle)
    await consumer.start()
    await until(lambda: len(seen) >= count, SERVED_S)
    assert await consumer.inspect().instance.heartbeat() == []
    await consumer.close(timeout_ms=200)
    return sorted(seen)


@pytest.mark.parametrize(
    ("kind", "flush"),
    [("fdatasync", ASYNC_FLUSH), ("fdatasync", SYNC_FLUSH), ("write", ASYNC_FLUSH), ("unlink", SYNC_FLUSH)],
)
async def test_members_pulls_health_and_registration_are_served_while_the_disk_hangs(
    tmp_path: Path, disk: Disk, kind: str, flush: str
) -> None:
    store = dataclasses.replace(STORE, flush_disk_type=flush)
    async with servers(tmp_path, store=store, sync_flush_timeout_ms=300) as cluster:
        assert cluster.broker is not None
        for number in range(5):
            await cluster.send(f"{number}")
        await cluster.send("x", topic="unwanted")
        disk.loop_thread = threading.get_ident()
        with disk.hang(kind):
            async with cluster.producer() as producer, Admin(namesrv=cluster.namesrv.address) as admin:
                changing: list[asyncio.Future[Any]] = [
                    asyncio.ensure_future(admin.create_topic("late", queues=2)),
                    asyncio.ensure_future(admin.delete_topic("unwanted")),
                ]
                changing += [
                    producer.submit(Message("orders", b"hung")),
                    producer.submit(Message("orders", b"hung", delay_ms=1_500)),
                ]
                await until(lambda: disk.hanging, SERVED_S)
                async with asyncio.timeout(SERVED_S):
                    assert await healthy(cluster.broker.address)
                    assert await healthy(cluster.namesrv.address)
                    assert (await consumed(cluster, "g1", 5))[:5] == [b"%d" % number for number in range(5)]
                    await known(admin, "late")
                    assert len(await producer.publish_queues("late")) == 2
            for task in changing:
                task.cancel()
            await asyncio.gather(*changing, return_exceptions=True)
        async with asyncio.timeout(SERVED_S):
            await cluster.broker.domain.tables.kept()
        assert sorted(await consumed(cluster, "g2", 5))[:5] == [b"%d" % number for number in range(5)]
        disk.loop_thread = 0
    assert disk.in_loop == []
