"""An actor inside the lab's process: the same performer, in a context of its own."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto import failpoints
from dejamq_proto.codes import DejamqError

from dejamq_lab.cluster.played_process import PlayedProcess
from dejamq_lab.errors import ClusterFailed
from dejamq_lab.scenario.actors.main import ActorCommand, perform
from dejamq_lab.scenario.actors.performer import ActorPart, Performer


class ActorInProcess:
    """One actor. It can be left without closing anything, which is what others see of a kill."""

    def __init__(self, part: ActorPart, directory: Path, spawned: Callable[[PlayedProcess], None]) -> None:
        """``spawned`` is told of each process that it plays."""
        self._spawned = spawned
        self.part, self._armed = part, directory / f"{part.name}.failpoints"
        self.process = PlayedProcess(self._armed)
        self._performer: Performer | None = None

    @property
    def running(self) -> bool:
        return self._performer is not None

    async def spawn(self) -> None:
        """As another process, with another client id."""
        self.process = PlayedProcess(self._armed)
        self._spawned(self.process)
        part, own = self.part, self.part.settings
        if not own.get("client_id") and own.get("model") != "BROADCASTING":
            host = own.get("client_ip") or "127.0.0.1"
            made = {"client_id": f"{host}@{self.process.pid}#{time.time_ns()}"}
            part = msgspec.structs.replace(part, settings={**own, **made})
        self._performer = self.process.make(Performer, part)

    async def ask(self, command: str, timeout_s: float, **arguments: Any) -> int | None:
        """As ``ActorProcess.ask``."""
        performer = self._performer
        if performer is None:
            raise ClusterFailed(f"{self.part.name} does not run; start it first")
        work = self.process.do(perform(performer, ActorCommand(0, command, arguments)))
        try:
            return await asyncio.wait_for(work, timeout_s)
        except TimeoutError:
            raise ClusterFailed(f"{self.part.name} did not {command} within {timeout_s:.0f} s") from None
        except (DejamqError, ValueError, RuntimeError) as error:
            raise ClusterFailed(f"{self.part.name} could not {command}: {error}") from None
        except asyncio.CancelledError:
            if self._performer is performer:
                raise
            raise ClusterFailed(f"{self.part.name} could not {command}: its process ended") from None

    def arm(self, name: str, terms: str) -> None:
        """Arm a failpoint, or set its clock; one that does not run yet begins with it."""
        failpoints.arm(self._armed, name, terms)

    async def abandon(self) -> None:
        """Leave it as SIGKILL would, when it can reach nobody: no line, no effect, no task of it any more."""
        performer, self._performer = self._performer, None
        if performer is not None:
            self.process.fall_silent()
            await self.process.do(performer.abandon())
            await self.process.vanish()

    async def end(self) -> None:
        """Close its client, if it has one."""
        performer, self._performer = self._performer, None
        if performer is not None:
            await self.process.do(performer.end())
