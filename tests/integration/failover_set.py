"""Name servers, a master and its slave with fail-over in one process, each connection through a relay of its own."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from broker_wire import Wire, a_run, broker_config, dialled, until
from dejamq_broker.app import Broker
from dejamq_broker.failover import FailoverBroker
from dejamq_lab.cluster.relay import Relay
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.codes import Code
from dejamq_proto.wire.messages import SendRunResult
from ha_pair import QUICK

LEASE_MS = 1_500
"""An event loop that stands for longer is a lost master: a busy machine has such moments."""
SETTINGS: dict[str, Any] = QUICK | {
    "failover_enable": True, "failover_lease_ms": LEASE_MS, "slave_sync_interval_ms": 200,
    "register_name_server_period_ms": 500, "namesrv_reconnect_ms": 100, "shutdown_grace_ms": 200,
}  # fmt: skip


class ReplicaSet:
    """``replicas`` by name, a and b; ``links`` to name servers by (replica, number). a is the configured master."""

    def __init__(self, directory: Path, namesrvs: int, **settings: Any) -> None:
        self.directory, self._count, self._settings = directory, namesrvs, SETTINGS | settings
        self.namesrvs: list[NameServer] = []
        self.links: dict[tuple[str, int], Relay] = {}
        self.replicas: dict[str, FailoverBroker] = {}

    async def start_namesrv(self, number: int, listen: str = "127.0.0.1:0") -> NameServer:
        directory = str(self.directory / f"namesrv-{number}")
        server = NameServer(NamesrvConfig(listen=listen, directory=directory, shutdown_grace_ms=100))
        await server.start()
        return server

    def _address(self, number: int) -> str:
        return self.namesrvs[number].address

    async def restart_namesrv(self, number: int) -> None:
        address = self.namesrvs[number].address
        await self.namesrvs[number].close()
        self.namesrvs[number] = await self.start_namesrv(number, address)

    async def start(self, name: str, **settings: Any) -> FailoverBroker:
        """Also again; then at the same address."""
        for number in range(self._count):
            if (name, number) not in self.links:
                self.links[name, number] = Relay(partial(self._address, number))
                await self.links[name, number].start("127.0.0.1")
        before = self.replicas.get(name)
        config = broker_config(
            self.directory / name, broker_id=0 if name == "a" else 1, journal_dir=str(self.directory / "journal"),
            namesrv=";".join(self.links[name, number].address for number in range(self._count)),
            **(self._settings | settings),
        )  # fmt: skip
        if before is not None:
            config = replace(config, listen=before.address)
        self.replicas[name] = server = FailoverBroker(config)
        await server.start()
        return server

    def broker(self, name: str) -> Broker:
        found = self.replicas[name].broker
        assert found is not None
        return found

    def is_master(self, name: str) -> bool:
        """It serves as master, and its lease holds."""
        server = self.replicas[name]
        return server.broker is not None and server.broker.site.master and server.mastership.holds()

    async def leave(self, name: str) -> None:
        """It ends, and its lease runs out by itself."""
        await self.replicas[name].close()

    async def parted(self, name: str) -> None:
        """From all name servers; its slave still follows it."""
        self.part(name)

    async def joined(self, name: str) -> None:
        """As ``parted``, the other way round; it has stepped down when this returns."""
        self.join(name)
        await until(lambda: (now := self.broker_now(name)) is not None and not now.site.master, 30)

    def sending(self, name: str, life: int, answered: list[bytes]) -> "asyncio.Task[None]":
        """One message after the other to this replica; ``answered`` gets those with SEND_OK."""

        async def send_on() -> None:
            async with Wire(dialled(self.broker(name))) as wire:
                for number in itertools.count():
                    body = b"%d-%d" % (life, number)
                    if (await wire.send(a_run("T", [body]))).code == Code.SUCCESS:
                        answered.append(body)

        return asyncio.create_task(send_on())

    def broker_now(self, name: str) -> Broker | None:
        """None while its role changes."""
        return self.replicas[name].broker

    def masters(self) -> list[str]:
        return [name for name in self.replicas if self.is_master(name)]

    async def follows(self, name: str) -> None:
        """Wait until it copies its master's log, all of it, and consumers may read all."""

        def done() -> bool:
            here = self.broker_now(name)
            state = None if here is None else here.following()
            if here is None or state is None:
                return False
            there = self.broker_now("b" if name == "a" else "a")
            all_read = there is not None and there.domain.store.dispatched == there.domain.store.log_max
            copied = state.connected and state.master_end == here.domain.store.log_max
            return here.tables_copied and copied and all_read

        await until(done, 30)

    def part(self, name: str, *numbers: int) -> None:
        for number in numbers or range(self._count):
            self.links[name, number].cut()

    def join(self, name: str) -> None:
        for number in range(self._count):
            self.links[name, number].heal()

    async def close(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for server in self.replicas.values():
                tasks.create_task(server.close())
        for link in self.links.values():
            await link.close()
        for namesrv in self.namesrvs:
            await namesrv.close()


@asynccontextmanager
async def a_set(directory: Path, namesrvs: int = 2, **settings: Any) -> AsyncIterator[ReplicaSet]:
    """Both replicas run, and b follows a."""
    made = ReplicaSet(directory, namesrvs, **settings)
    async with AsyncExitStack() as parts:
        parts.push_async_callback(made.close)
        for number in range(namesrvs):
            made.namesrvs.append(await made.start_namesrv(number))
        await made.start("a")
        await made.start("b")
        await made.follows("b")
        yield made


async def send(broker: Broker, *bodies: bytes) -> SendRunResult:
    async with Wire(dialled(broker)) as wire:
        return await wire.send(a_run("T", list(bodies)))
