"""A stage of processes: servers and actors can be killed, frozen and started again."""

import signal
from collections.abc import Mapping
from pathlib import Path

from dejamq_lab.cluster.process import ServerProcess
from dejamq_lab.scenario.actors.performer import ActorPart
from dejamq_lab.scenario.actors.process import ActorProcess
from dejamq_lab.scenario.script.text import Scenario
from dejamq_lab.scenario.stage.stage import ScenarioStage

SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT, "terminate": signal.SIGTERM}


class ProcessStage(ScenarioStage):
    """One process for each name server, broker and actor."""

    processes = True

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        super().__init__(scenario, directory, links=scenario.cluster.links)
        self._actors: dict[str, ActorProcess] = {}

    @property
    def actors(self) -> Mapping[str, ActorProcess]:
        return self._actors

    def add(self, part: ActorPart) -> None:
        self._actors[part.name] = ActorProcess(part, self.directory, self.note)

    async def strike(self, who: str, kind: str) -> None:
        if who in self._actors:
            await self._actors[who].strike(kind, SIGNALS[kind])
            return
        server = self._server(who)
        getattr(server, kind)()
        if kind == "terminate":
            await server.ended()

    async def restart(self, who: str, broker_id: int | None) -> None:
        if who in self._actors:
            await self._actors[who].spawn()
        else:
            self._server(who).restart(broker_id)

    def arm(self, who: str, name: str, terms: str) -> None:
        (self._actors.get(who) or self._server(who)).arm(name, terms)

    def _server(self, name: str) -> ServerProcess:
        server = self.cluster.server(name)
        assert isinstance(server, ServerProcess), "the stage has processes"
        return server
