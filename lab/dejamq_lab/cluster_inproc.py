"""Servers inside the calling process, on its event loop: the quickest cluster, for tests without faults."""

from contextlib import AsyncExitStack

from dejamq_broker.app import Broker
from dejamq_broker.config import BrokerConfig
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig

from dejamq_lab.errors import NotSupported
from dejamq_lab.plan import server_name


class InProcessServer:
    """One server. It shares the process, so the faults of processes are not for it."""

    def __init__(self, name: str, role: str, address: str) -> None:
        self.name, self.role, self.address = name, role, address

    def kill(self) -> None:
        self._refuse("kill")

    def restart(self) -> None:
        self._refuse("restart")

    def pause(self) -> None:
        self._refuse("pause")

    def resume(self) -> None:
        self._refuse("resume")

    def terminate(self) -> None:
        self._refuse("terminate")

    def cut(self, other: object) -> None:
        self._refuse("cut")

    def heal(self) -> None:
        self._refuse("heal")

    def _refuse(self, what: str) -> None:
        raise NotSupported(f"{what}: {self.name} runs in this process; use Cluster(processes=True)")


class InProcessServers:
    """Started in order, closed in reverse, so that brokers leave before their name servers."""

    def __init__(self) -> None:
        self._running = AsyncExitStack()

    async def start_namesrv(self, config: NamesrvConfig) -> InProcessServer:
        server = NameServer(config)
        address = await server.start()
        self._running.push_async_callback(server.close)
        return InProcessServer(config.name, "namesrv", address)

    async def start_broker(self, config: BrokerConfig) -> InProcessServer:
        server = Broker(config)
        address = await server.start()
        self._running.push_async_callback(server.close)
        return InProcessServer(server_name(config), "broker", address)

    async def close(self) -> None:
        await self._running.aclose()
