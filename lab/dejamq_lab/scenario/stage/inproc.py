"""A stage inside this process: quicker than processes, for scenarios in which nothing is frozen.

Every connection goes through a relay. A killed server or actor is first cut off from everybody, and its connections are
reset. Then its journal and its effects end, and a broker's store stays as it is at this moment. Nothing that it does
afterwards reaches anybody. So others see, and find on disk, the same as after SIGKILL.
"""

import asyncio
import contextvars
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from dejamq_proto import failpoints
from dejamq_proto.journal.events import State
from dejamq_proto.journal.writer import Journal, new_boot_id, open_journal

from dejamq_lab.cluster.inproc import InProcessServer
from dejamq_lab.cluster.played_process import PlayedProcess, tracked
from dejamq_lab.errors import ClusterFailed, NotSupported
from dejamq_lab.scenario.actors.inproc import ActorInProcess
from dejamq_lab.scenario.actors.performer import ActorPart
from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.script.text import Scenario, server_names
from dejamq_lab.scenario.stage.stage import ScenarioStage

_standing, _armed_before = 0, False


class InProcessStage(ScenarioStage):
    """Servers and actors share the lab's event loop; several stages may stand at a time."""

    processes = False

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        """Raises NotSupported for a scenario with a step that needs processes."""
        refuse(scenario)
        super().__init__(scenario, directory, links=True)
        self._actors: dict[str, ActorInProcess] = {}
        self._journal: Journal | None = None
        self._deaths: set[asyncio.Task[None]] = set()
        self._begun = False
        self._log = logging.FileHandler(directory / "log", delay=True)
        """Log lines of servers and clients: processes have files for them too."""

    @property
    def actors(self) -> Mapping[str, ActorInProcess]:
        return self._actors

    @property
    def journal(self) -> Journal | None:
        return self._journal

    async def start(self) -> None:
        _begin()
        self._begun = True
        logging.getLogger().addHandler(self._log)
        journal = self._journal = open_journal(
            self.cluster.journal_dir, role="harness", process="lab", boot_id=new_boot_id(), level="forensic"
        )
        journal.write(State(state="started", reason="level=forensic"))
        await super().start()
        for name in server_names(self.scenario.cluster):
            self._mortal(name, self._server(name).process)

    async def close(self) -> None:
        try:
            if self._deaths:
                await asyncio.wait(self._deaths)
            await super().close()
        finally:
            logging.getLogger().removeHandler(self._log)
            self._log.close()
            if self._begun:
                _end()
            if self._journal is not None:
                self._journal.write(State(state="closed"))
                self._journal.close()

    def add(self, part: ActorPart) -> None:
        self._actors[part.name] = ActorInProcess(part, self.directory, partial(self._mortal, part.name))

    async def strike(self, who: str, kind: str) -> None:
        process = self._running(who, kind)
        self.note(kind, who, "begin", process.pid)
        target = self._actors.get(who) or self._server(who)
        if kind == "kill":
            self.links.leave(who)
            await target.abandon()
        elif kind == "terminate":
            await target.end()
        else:
            raise NotSupported(f"{kind}: {who} is a part of this process; play it on processes")
        self.note(kind, who, "end", process.pid)

    async def restart(self, who: str, broker_id: int | None) -> None:
        self.links.rejoin(who)
        if who in self._actors:
            await self._actors[who].spawn()
            return
        server = self._server(who)
        await server.end()
        self.note("restart", who, "begin")
        await server.start(broker_id)
        self._mortal(who, server.process)
        self.note("restart", who, "end")

    def arm(self, who: str, name: str, terms: str) -> None:
        target = self._actors.get(who) or self._server(who)
        target.arm(name, terms)
        self.note(f"failpoint {name}={terms}", who, "begin", target.process.pid)

    def _running(self, who: str, kind: str) -> PlayedProcess:
        target = self._actors.get(who) or self._server(who)
        if not target.running:
            raise ClusterFailed(f"{kind}: {who} does not run")
        return target.process

    def _mortal(self, who: str, process: PlayedProcess) -> None:
        """A failpoint that says ``kill`` strikes the part that reached it, which goes no further."""

        async def strike(action: str) -> None:
            loop = asyncio.get_running_loop()  # the death is no task of the one that dies
            self._deaths.add(loop.create_task(self._die(who, process), context=contextvars.Context()))
            await asyncio.Event().wait()

        process.failpoints.strike = strike

    async def _die(self, who: str, process: PlayedProcess) -> None:
        target = self._actors.get(who) or self._server(who)
        if target.running and target.process is process:
            await self.strike(who, "kill")

    def _server(self, name: str) -> InProcessServer:
        server = self.cluster.server(name)
        assert isinstance(server, InProcessServer), "the stage has no processes"
        return server


def _begin() -> None:
    """Failpoints are looked at, and tasks told apart, while any stage stands here."""
    global _standing, _armed_before
    if not _standing:
        _armed_before = failpoints.ARMED
        failpoints.ARMED = True
        asyncio.get_running_loop().set_task_factory(tracked)
    _standing += 1


def _end() -> None:
    global _standing
    _standing -= 1
    if not _standing:
        asyncio.get_running_loop().set_task_factory(None)
        failpoints.ARMED = _armed_before


def refuse(scenario: Scenario) -> None:
    """Raise NotSupported where a part of this process is no process: it cannot be frozen alone, and a broadcasting
    member that is left alone still writes its offsets into its file.
    """
    for number, step in enumerate(scenario.steps, 1):
        where = f"{scenario.id}, step {number}"
        stops = isinstance(step, steps.FailpointStep) and "stop" in step.terms
        if stops or isinstance(step, (steps.Pause, steps.Resume)):
            raise NotSupported(f"{where} freezes a process: play it on processes")
        actor = scenario.actors.get(step.who) if isinstance(step, steps.Kill) else None
        if actor is not None and actor.settings.get("model") == "BROADCASTING":
            raise NotSupported(f"{where} kills a broadcasting consumer: play it on processes")
