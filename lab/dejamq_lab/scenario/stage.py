"""The stage of a scenario: its cluster with links and failpoints, its actors, its ledger."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dejamq_proto.codes import ConfigError
from dejamq_proto.events import Fault

from dejamq_lab.cluster import Cluster
from dejamq_lab.scenario.actor_process import ActorProcess
from dejamq_lab.scenario.ledger import Ledger
from dejamq_lab.scenario.links import Links
from dejamq_lab.scenario.performer import Part
from dejamq_lab.scenario.text import Actor, Scenario

if TYPE_CHECKING:
    from dejamq_broker.config import BrokerConfig


class LinkedCluster(Cluster):
    """A cluster of processes whose links go through relays."""

    def __init__(self, links: Links, actors: Mapping[str, Actor], **shape: Any) -> None:
        super().__init__(processes=True, **shape)
        self.links, self._actors = links, actors

    async def _broker_config(self, name: str) -> "BrokerConfig":
        def address() -> str:
            return self.broker(name).address

        told = [await self.links.between(name, namesrv.name, partial(_address, namesrv)) for namesrv in self._namesrvs]
        advertised = [
            f"{self.links.host(actor)}={await self.links.between(actor, name, address)}" for actor in self._actors
        ]
        config = await super()._broker_config(name)
        return dataclasses.replace(config, namesrv=";".join(told), advertise=";".join(advertised))

    async def dialled(self, actor: str, namesrv: str) -> str:
        """Where this actor dials a name server."""
        return await self.links.between(actor, namesrv, partial(_address, self.server(namesrv)))


class Stage:
    """Everything that runs for one scenario; ``async with`` starts the cluster and ends everything."""

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        shape = scenario.cluster
        self.scenario, self.directory = scenario, directory
        directory.mkdir(parents=True, exist_ok=True)
        self.links = Links()
        values: dict[str, Any] = {
            "brokers": shape.brokers, "namesrvs": shape.namesrvs, "slaves": shape.slaves,
            "time_scale": shape.time_scale, "topics": dict.fromkeys(shape.topics, shape.queues),
            "settings": scenario.settings, "directory": directory / "cluster",
        }  # fmt: skip
        self.cluster = (
            LinkedCluster(self.links, scenario.actors, **values) if shape.links else Cluster(processes=True, **values)
        )
        self.cluster.failpoints = True
        self.ledger = Ledger(directory / "ledger.sqlite")
        self.actors: dict[str, ActorProcess] = {}

    async def __aenter__(self) -> "Stage":
        try:
            await self.cluster.start()
            for name, actor in self.scenario.actors.items():
                self.actors[name] = ActorProcess(await self._part(name, actor), self.directory, self.note)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Actors first, then the cluster."""
        for actor in self.actors.values():
            await actor.end()
        await self.cluster.close()
        await self.links.close()
        self.ledger.close()

    def actor(self, name: str) -> ActorProcess:
        """Raises ConfigError for a name that is no actor's."""
        if name not in self.actors:
            raise ConfigError(f"{name} is no actor; there are {', '.join(self.actors)}")
        return self.actors[name]

    def note(self, kind: str, target: str, phase: str, pid: int = 0) -> None:
        """Write a fault into the lab's journal."""
        if self.cluster.journal is not None:
            self.cluster.journal.write(Fault(kind=kind, target=target, phase=phase, target_pid=pid))

    async def _part(self, name: str, actor: Actor) -> Part:
        cluster, given = self.cluster, {"journal_business_key": "KEYS"} | actor.settings
        namesrvs = actor.namesrvs or [f"namesrv-{number}" for number in range(self.scenario.cluster.namesrvs)]
        told = [
            await cluster.dialled(name, each) if isinstance(cluster, LinkedCluster) else cluster.server(each).address
            for each in namesrvs
        ]
        settings = cluster.client_settings(actor.kind, given)
        return Part(
            name=name, actor=actor, namesrv=";".join(told), ledger=str(self.directory / "ledger.sqlite"),
            settings=settings,
        )  # fmt: skip


def _address(server: Any) -> str:
    address: str = server.address
    return address
