"""A stage of containers: they are killed, frozen, taken out of networks and started again by the engine."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from dejamq_lab.cluster.cluster import Cluster
from dejamq_lab.machines.engine import Project, free_networks, image
from dejamq_lab.scenario.actors.performer import ActorPart
from dejamq_lab.scenario.script.text import CONSUMERS, Scenario, server_names
from dejamq_lab.scenario.stage.containers import ActorContainer, Container, ContainerCluster, NetworkMemberships
from dejamq_lab.scenario.stage.process import ProcessStage
from dejamq_lab.scenario.stage.stage import own_host
from dejamq_lab.scenario.stage.topology import topology


class ComposeStage(ProcessStage):
    """One container for each name server, broker and actor; ``docker-compose.yml`` in the directory says how."""

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        """Raises NotSupported without an engine or an image, ClusterFailed when there is no room for its networks."""
        directory = directory.absolute()
        directory.mkdir(parents=True, exist_ok=True)
        self._image = image()
        self._project = Project(f"dejamq-lab-{own_host(directory).replace('.', '-')}", directory / "docker-compose.yml")
        self._topology = topology(scenario, free_networks(len(server_names(scenario.cluster))))
        super().__init__(scenario, directory)
        self.links: Any = NetworkMemberships(self._project, self._topology)

    def made(self, values: Mapping[str, Any], *, links: bool) -> Cluster:
        """With or without links that can be cut: networks can always be left."""
        return ContainerCluster(self._project, self._topology, **values)

    async def start(self) -> None:
        user = f"{os.getuid()}:{os.getgid()}"
        text = self._topology.compose(self._image, user, self.directory, self._project.name)
        self._project.file.write_text(text, encoding="utf-8")
        self._project.create()
        await super().start()

    async def close(self) -> None:
        await super().close()
        if self._project.file.exists():
            self._project.down()

    def add(self, part: ActorPart) -> None:
        """A consumer is called as its actor: its process has the same number in every container."""
        if part.actor.kind in CONSUMERS:
            part = msgspec.structs.replace(part, settings={"client_id": part.name} | part.settings)
        container = Container(self._project, self.directory, part.name)
        self._actors[part.name] = ActorContainer(part, self.directory, self.note, container)
