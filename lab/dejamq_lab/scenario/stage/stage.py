"""The stage of a scenario: its cluster with links and failpoints, its actors, its ledger.

Derived classes choose the parts of a stage: processes, parts of this process, containers.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec
from dejamq_proto.codes import ConfigError
from dejamq_proto.journal.events import Fault
from dejamq_proto.journal.writer import Journal

from dejamq_lab.cluster.cluster import Cluster
from dejamq_lab.scenario.actors.performer import ActorPart
from dejamq_lab.scenario.script.ledger import EffectLedger
from dejamq_lab.scenario.script.text import Actor, Scenario
from dejamq_lab.scenario.stage.links import LinkedCluster, Relays


class StagedActor(Protocol):
    """A client of the scenario, wherever it lives. All raise ClusterFailed."""

    part: ActorPart

    @property
    def running(self) -> bool: ...

    async def spawn(self) -> None:
        """Have it there, its client not started; also after it ended."""

    async def ask(self, command: str, timeout_s: float, **arguments: Any) -> int | None:
        """Have the actor do a command, as ``main.perform`` does it."""

    async def end(self) -> None:
        """Close its client and let it go."""


class ScenarioStage(ABC):
    """Everything that runs for one scenario; ``async with`` starts the cluster and ends everything."""

    processes: bool
    """Whether the cluster's servers are processes of their own."""

    def __init__(self, scenario: Scenario, directory: Path, *, links: bool) -> None:
        shape = scenario.cluster
        self.scenario, self.directory = scenario, directory
        directory.mkdir(parents=True, exist_ok=True)
        host = own_host(directory)
        self.links = Relays(host)
        values: dict[str, Any] = {
            "brokers": shape.brokers, "namesrvs": shape.namesrvs, "slaves": shape.slaves,
            "time_scale": shape.time_scale, "topics": dict.fromkeys(shape.topics, shape.queues),
            "settings": scenario.settings, "directory": directory / "cluster", "host": host,
            "processes": self.processes, "journal_level": shape.journal_level,
        }  # fmt: skip
        self.cluster = self.made(values, links=links)
        self.cluster.failpoints = True
        self.ledger = EffectLedger(directory / "ledger.sqlite")

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def made(self, values: Mapping[str, Any], *, links: bool) -> Cluster:
        """The cluster, not started. ``values``: its arguments."""
        return LinkedCluster(self.links, self.scenario.actors, **values) if links else Cluster(**values)

    async def start(self) -> None:
        """The cluster serves; actors are made, and not started. Raises ClusterFailed."""
        await self.cluster.start()
        for name, actor in self.scenario.actors.items():
            self.add(await self._part(name, actor))

    async def close(self) -> None:
        """Actors first, then the cluster. All of it ends, whatever becomes of a part; raises the last failure."""
        async with AsyncExitStack() as ends:
            ends.callback(self.ledger.close)
            ends.push_async_callback(self.links.close)
            ends.push_async_callback(self.cluster.close)
            for actor in reversed(list(self.actors.values())):
                ends.push_async_callback(actor.end)

    # what those that derive from it have to say

    @property
    @abstractmethod
    def actors(self) -> Mapping[str, StagedActor]:
        """By name."""

    @abstractmethod
    def add(self, part: ActorPart) -> None:
        """Make an actor."""

    @abstractmethod
    async def strike(self, who: str, kind: str) -> None:
        """Do ``kill``, ``pause``, ``resume`` or ``terminate`` to an actor or a server; return when it is done."""

    @abstractmethod
    async def restart(self, who: str, broker_id: int | None) -> None:
        """Start an actor's process or a server again, the latter at its address and on its store."""

    @abstractmethod
    def arm(self, who: str, name: str, terms: str) -> None:
        """Arm a failpoint of an actor or a server, or set its clock."""

    @property
    def journal(self) -> Journal | None:
        """The lab's own, for faults."""
        return self.cluster.journal

    # what all of them have

    def actor(self, name: str) -> StagedActor:
        """Raises ConfigError for a name that is no actor's."""
        if name not in self.actors:
            raise ConfigError(f"{name} is no actor; there are {', '.join(self.actors)}")
        return self.actors[name]

    def store_of(self, who: str) -> Path:
        """Where the files of this broker are; of actors: where the broadcasting ones keep their offsets."""
        return self.directory / "offsets" if who in self.actors else self.directory / "cluster" / who / "store"

    def note(self, kind: str, target: str, phase: str, pid: int = 0) -> None:
        """Write a fault into the lab's journal."""
        if self.journal is not None:
            self.journal.write(Fault(kind=kind, target=target, phase=phase, target_pid=pid))

    async def _part(self, name: str, actor: Actor) -> ActorPart:
        cluster, given = self.cluster, {"journal_business_key": "KEYS"} | actor.settings
        namesrvs = actor.namesrvs or [f"namesrv-{number}" for number in range(self.scenario.cluster.namesrvs)]
        told = [
            await cluster.dialled(name, each) if isinstance(cluster, LinkedCluster) else cluster.server(each).address
            for each in namesrvs
        ]
        if given.get("model") == "BROADCASTING":  # never in the home of the user who runs the lab
            given = {"local_offset_store_dir": str(self.directory / "offsets")} | given
        settings = cluster.client_settings(actor.kind, given)
        actor = msgspec.structs.replace(actor, invisible_ms=actor.invisible_ms * self.scenario.cluster.time_scale)
        return ActorPart(
            name=name, actor=actor, namesrv=";".join(told), ledger=str(self.directory / "ledger.sqlite"),
            settings=settings,
        )  # fmt: skip


def own_host(directory: Path) -> str:
    """The address of a stage's servers, another one for each directory.

    Runs side by side take no port of each other, not even the port of a server that is away for a while.
    """
    digest = hashlib.sha256(str(directory.absolute()).encode()).digest()
    return f"127.{1 + digest[0] % 254}.{digest[1]}.1"
