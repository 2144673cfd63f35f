"""One name server and brokers that tests of the producer close, start again, and look into."""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from broker_wire import until
from dejamq import MessageQueue, Producer
from dejamq.net.instance import Instance
from dejamq.values.config import ClientConfig
from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.store import MessageStore, StoreConfig
from dejamq_lab.cluster.ports import hold, port_of
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.client_pb2 import ConsumerData
from dejamq_proto.codes import RouteNotFound
from dejamq_proto.pull_pb2 import PullRequest
from dejamq_proto.records.record import Record, decode

STORE = StoreConfig(mapped_file_size_commit_log=4 << 20, mapped_file_size_consume_queue=20 * 10_000)


class Site:
    """One name server and brokers that may be closed and started again."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        """``settings`` are the brokers'."""
        self._directory, self._settings = directory, settings
        self._held: list[socket.socket] = []
        self.namesrv = NameServer(NamesrvConfig(listen=self._address()))
        self.brokers: dict[str, Broker] = {}

    async def start_broker(self, name: str, listen: str = "") -> Broker:
        """Without ``listen`` at a new address, that nobody else gets while the broker is down."""
        config = BrokerConfig(
            broker_name=name, listen=listen or self._address(), namesrv=self.namesrv.address, store=STORE,
            store_directory=str(self._directory / name), **({"broker_fast_failure_enable": False} | self._settings),
        )  # fmt: skip
        self.brokers[name] = broker = Broker(config)
        await broker.start()
        return broker

    async def restart_broker(self, name: str) -> Broker:
        address = self.brokers[name].address
        await self.brokers[name].close()
        return await self.start_broker(name, listen=address)

    async def stop_broker(self, name: str) -> str:
        """Close it; the address on which it may start again."""
        broker = self.brokers.pop(name)
        await broker.close()
        return broker.address

    async def stop_namesrv(self) -> None:
        """Close the name server; the brokers go on without it."""
        await self.namesrv.close()

    async def start_namesrv(self) -> None:
        """A new one on the same address, which knows nothing until the brokers register again."""
        self.namesrv = NameServer(NamesrvConfig(listen=self.namesrv.address))
        await self.namesrv.start()

    def producer(self, **settings: Any) -> Producer:
        """With short intervals, so that changes are seen soon."""
        quick: dict[str, Any] = {"poll_name_server_interval_ms": 100, "reconnect_interval_ms": 50}
        return Producer("g", namesrv=self.namesrv.address, **quick | settings)

    async def close(self) -> None:
        for broker in self.brokers.values():
            await broker.close()
        await self.namesrv.close()
        for held in self._held:
            held.close()

    def _address(self) -> str:
        self._held.append(hold())
        return f"127.0.0.1:{port_of(self._held[-1])}"


async def stored(site: Site, queue: MessageQueue) -> list[Record]:
    """What a consumer would be given of this queue, from its beginning."""
    instance = Instance(ClientConfig(namesrv=site.namesrv.address), role="consumer")
    link = instance.link(site.brokers[queue.broker_name].address)
    request = PullRequest(
        group="reader", topic=queue.topic, queue_id=queue.queue_id, max_messages=1000, max_bytes=1 << 20
    )
    instance.register_consumer(lambda: ConsumerData(group="reader"))
    try:
        await routed(instance, queue.topic)
        assert await instance.heartbeat() == []
        async with asyncio.timeout(10):
            while True:
                request.caller.Clear()
                answer = await link.pull(request)
                if answer.code == 0:
                    break
                await asyncio.sleep(0.01)
        data, records, position = b"".join(answer.records), [], 0
        for size in answer.sizes.tolist():
            records.append(decode(data, position))
            position += size
        return records
    finally:
        await instance.close()


async def routed(instance: Instance, topic: str) -> None:
    """Wait for the route of a topic that a send has just made: the name server hears of it after the answer."""

    async def known() -> bool:
        with suppress(RouteNotFound):
            await instance.routes.get(topic)
            return True
        return False

    await until(known)


async def bodies_at(site: Site, topic: str) -> list[bytes]:
    """What every running broker has stored of the topic, queue by queue, in order."""
    found: list[bytes] = []
    for broker in site.brokers.values():
        store, config = broker.domain.store, broker.domain.tables.topics.get(topic)
        async with asyncio.timeout(10):
            while store.dispatched < store.log_max:
                await asyncio.sleep(0.005)
        for queue_id in range(config.queues if config else 0):
            found += _bodies(store, topic, queue_id)
    return found


def _bodies(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    found, queue_offset = [], store.min_offset(topic, queue_id)
    while queue_offset < store.max_offset(topic, queue_id):
        read, at = store.read(topic, queue_id, queue_offset, max_messages=1000), 0
        for size in read.sizes:
            found.append(decode(read.records, at).body)
            at += int(size)
        queue_offset += len(read.sizes)
    return found
