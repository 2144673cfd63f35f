"""Servers inside the calling process, on its event loop: the quickest cluster."""

import asyncio
import dataclasses
import shutil
import subprocess
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.failover import FailoverBroker, broker_of
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto import failpoints
from dejamq_proto.codes import DejamqError

from dejamq_lab.cluster.plan import server_name
from dejamq_lab.cluster.played_process import PlayedProcess
from dejamq_lab.errors import ClusterFailed, NotSupported

COPIES = 5


class InProcessServer:
    """One server. It shares the process, so it cannot have the faults of processes.

    A stage of scenarios does the faults that work without a process (``end``, ``abandon`` and ``start`` again).
    """

    def __init__(self, config: NamesrvConfig | BrokerConfig, armed: Path | None) -> None:
        """``armed``: the file that arms its failpoints."""
        self._config, self._armed = config, armed
        self.name, self.address = server_name(config), ""
        self.role = "broker" if isinstance(config, BrokerConfig) else "namesrv"
        self.process = PlayedProcess(armed)
        self._server: Broker | FailoverBroker | NameServer | None = None

    @property
    def running(self) -> bool:
        return self._server is not None

    async def start(self, broker_id: int | None = None) -> None:
        """Start it, also again; then it may have another port. ``broker_id``: as another replica from now on.

        Raises as the server does.
        """
        if broker_id is not None and isinstance(self._config, BrokerConfig):
            self._config = dataclasses.replace(self._config, broker_id=broker_id)
        config, self.process = self._config, PlayedProcess(self._armed)
        made: Broker | FailoverBroker | NameServer
        if not isinstance(config, BrokerConfig):
            made = self.process.make(NameServer, config)
        else:
            made = self.process.make(broker_of, config)
        try:
            self.address = await self.process.do(made.start())
        except BaseException:  # also of who waits, in the moment in which the start has just succeeded
            await self.process.do(made.close())
            raise
        self._server = made

    async def end(self) -> None:
        """Close it, if it runs. It is closed also when nobody waits for it any more."""
        server, self._server = self._server, None
        if server is None:
            return
        closing = asyncio.ensure_future(self.process.do(server.close()))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:  # the loop may end next, and would end the close with it
            await asyncio.wait((closing,))
            raise

    async def abandon(self) -> None:
        """Leave it as SIGKILL would, when nobody can reach it any more: its journal ends, its store stays as it is.

        Threads and mappings still have to end in this process; they end on a store that is then thrown away.
        """
        self.process.fall_silent()
        store = Path(self._config.store_directory) if isinstance(self._config, BrokerConfig) else None
        kept = _copied(store) if store else None
        with suppress(DejamqError, OSError):
            await self.end()
        if store and kept:
            shutil.rmtree(store)
            kept.rename(store)

    def arm(self, name: str, terms: str) -> None:
        """Arm a failpoint, or set its clock. Raises NotSupported."""
        if self._armed is None:
            raise NotSupported(f"{self.name} was started without failpoints")
        self._armed.parent.mkdir(parents=True, exist_ok=True)
        failpoints.arm(self._armed, name, terms)

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


def _copied(store: Path) -> Path:
    """The store as it is at this moment, for the loop stands meanwhile. The store's threads do not: a file that one of
    them renames just now makes the copy begin again. Raises ClusterFailed.
    """
    kept = store.with_name("kept")
    for _ in range(COPIES):
        done = subprocess.run(("cp", "-a", "--sparse=always", str(store), str(kept)), capture_output=True, check=False)
        if not done.returncode:
            return kept
        shutil.rmtree(kept, ignore_errors=True)
    raise ClusterFailed(f"{store} cannot be kept as it is: {done.stderr.decode().strip()}")


class InProcessServers:
    """Started in order, closed in reverse, so that brokers leave before their name servers."""

    def __init__(self, directory: Path | None = None) -> None:
        """``directory``: where failpoints of servers are armed; without it they cannot be."""
        self._directory = directory
        self._servers: list[InProcessServer] = []

    async def start_namesrv(self, config: NamesrvConfig) -> InProcessServer:
        return await self._start(config)

    async def start_broker(self, config: BrokerConfig) -> InProcessServer:
        return await self._start(config)

    async def _start(self, config: NamesrvConfig | BrokerConfig) -> InProcessServer:
        armed = self._directory / server_name(config) / "failpoints" if self._directory else None
        server = InProcessServer(config, armed)
        self._servers.append(server)
        await server.start()
        return server

    async def close(self) -> None:
        """Every one of them, whatever becomes of the others, also when the wait for one is cancelled."""
        async with AsyncExitStack() as ends:
            while self._servers:
                ends.push_async_callback(self._servers.pop(0).end)
