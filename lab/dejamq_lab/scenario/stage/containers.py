"""Servers and actors in containers. The engine does the faults that other stages do to processes.

``docker start --attach`` stands for the process: it carries input and output, and ends with the container.
"""

import dataclasses
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dejamq_broker.base.config import BrokerConfig
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.journal.writer import Journal

from dejamq_lab.cluster.cluster import Cluster
from dejamq_lab.cluster.plan import as_flags
from dejamq_lab.cluster.process import ProcessServers, ServerProcess
from dejamq_lab.errors import ClusterFailed, NotSupported
from dejamq_lab.machines.engine import Project, docker
from dejamq_lab.scenario.actors.performer import ActorPart
from dejamq_lab.scenario.actors.process import ActorProcess, Note
from dejamq_lab.scenario.stage.topology import PORT, Topology, failpoint_file

ORDERS = {signal.SIGKILL: ("kill",), signal.SIGTERM: ("kill", "--signal", "TERM"), signal.SIGSTOP: ("pause",)}


class Container:
    """One container of a project."""

    def __init__(self, project: Project, directory: Path, name: str) -> None:
        self._name, self._file = project.container(name), directory / f"{name}.command.json"
        self.failpoints = failpoint_file(directory, name)

    def command(self, module: str, *arguments: str, talks: bool = False) -> list[str]:
        """Start it, to run this. ``talks``: its input is ours."""
        self._file.write_text(json.dumps([module, *arguments]), encoding="utf-8")
        return ["docker", "start", "--attach", *(["--interactive"] if talks else []), self._name]

    def strike(self, number: signal.Signals) -> None:
        """Raises ClusterFailed. A container that is frozen hears nothing, so it is thawed before it ends."""
        frozen = docker("inspect", "--format", "{{.State.Paused}}", self._name).strip() == "true"
        if frozen and number != signal.SIGSTOP:
            docker("unpause", self._name)
        order = ORDERS.get(number)
        if order and not (frozen and number == signal.SIGSTOP):
            docker(*order, self._name)


class ServerContainer(ServerProcess):
    """A name server or broker."""

    def __init__(
        self,
        config: NamesrvConfig | BrokerConfig,
        directory: Path,
        journal: Journal,
        container: Container,
        address: str,
    ) -> None:
        super().__init__(config, directory, journal, tied=False)
        self._failpoints, self._container, self.address = container.failpoints, container, address

    def command(self) -> list[str]:
        return self._container.command(f"dejamq_{self.role}", *as_flags(self._config))

    def send_signal(self, number: signal.Signals) -> None:
        if self.pid:
            self._container.strike(number)

    def _ready_line(self) -> bool:
        """The engine carries output and errors apart, so this line may come in the middle of a logged one."""
        return any(f"ready {self.role} " in line for line in self._said())


class ActorContainer(ActorProcess):
    """A client."""

    def __init__(self, part: ActorPart, directory: Path, note: Note, container: Container) -> None:
        super().__init__(part, directory, note)
        self._failpoints, self._container = container.failpoints, container

    def command(self, part: Path) -> list[str]:
        return self._container.command("dejamq_lab.scenario.actors.main", str(part), talks=True)

    def send_signal(self, number: signal.Signals) -> None:
        if self.running:
            self._container.strike(number)


class ContainerServers(ProcessServers):
    """All servers of a cluster."""

    def __init__(self, directory: Path, journal: Journal, project: Project, topology: Topology) -> None:
        super().__init__(directory, journal, failpoints=True)
        self._project, self._topology = project, topology

    def make(self, config: NamesrvConfig | BrokerConfig, name: str) -> ServerProcess:
        address = self._topology.address(name)
        here: dict[str, Any] = {"listen": f"0.0.0.0:{PORT}"}
        if isinstance(config, BrokerConfig):
            here["advertise"] = address
        container = Container(self._project, self._directory.parent, name)
        placed = dataclasses.replace(config, **here)
        return ServerContainer(placed, self._directory / name, self._journal, container, address)


class ContainerCluster(Cluster):
    """A cluster whose servers are containers of a project that is there."""

    def __init__(self, project: Project, topology: Topology, **shape: Any) -> None:
        super().__init__(**shape)
        self._project, self._topology = project, topology

    def process_servers(self, journal: Journal) -> ProcessServers:
        return ContainerServers(self._directory, journal, self._project, self._topology)


class NetworkMemberships:
    """The links of containers: who dials is in the network of who listens, or has been taken out of it."""

    def __init__(self, project: Project, topology: Topology) -> None:
        self._project, self._topology = project, topology

    def cut(self, one: str, other: str, mode: str) -> None:
        """Raises NotSupported for a link that shall lose one direction only, ConfigError for no link."""
        if mode in ("to", "from"):
            raise NotSupported("containers: a link is cut in both directions; use --cluster process")
        dialler, listener = self._ends(one, other)
        self._project.disconnect(dialler, listener)

    def delay(self, one: str, other: str, ms: float) -> None:
        raise NotSupported("containers: a link cannot be made slower; use --cluster process")

    def heal(self, one: str, other: str) -> None:
        dialler, listener = self._ends(one, other)
        self._project.connect(dialler, listener, self._topology.members(listener)[dialler])

    async def close(self) -> None:
        """Nothing: the networks go with the project."""

    def _ends(self, one: str, other: str) -> Sequence[str]:
        for dialler, listener in ((one, other), (other, one)):
            if listener in self._topology.servers and dialler in self._topology.members(listener):
                return dialler, listener
        raise ClusterFailed(f"there is no link between {one} and {other}")
