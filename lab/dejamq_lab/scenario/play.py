"""Plays a scenario: does its steps one after the other, each with a deadline, and says which one it is at."""

import asyncio
from collections.abc import Callable
from typing import Any

from dejamq import Admin
from dejamq_proto.codes import ConfigError

from dejamq_lab.errors import ClusterFailed, NotSupported
from dejamq_lab.scenario.actors.operating import operate
from dejamq_lab.scenario.faults import PlayFaults, Way
from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.stage.stage import ScenarioStage
from dejamq_lab.scenario.waits import LEAST_DEADLINE_S, Waits

Tell = Callable[[str], None]


class Play:
    """One run of the steps on a stage that stands."""

    def __init__(self, stage: ScenarioStage, tell: Tell) -> None:
        self._stage, self._tell, self._scale = stage, tell, stage.scenario.cluster.time_scale
        self._waits = Waits(stage)
        self._sent = 0
        self.failed_sends = 0
        self._ways: dict[type, Way] = {
            steps.Start: self._start,
            steps.Close: self._close,
            steps.Send: self._send,
            steps.SentStep: self._wait_sent,
            steps.ReleaseStep: self._release,
            steps.CallStep: self._call,
            steps.Sleep: self._sleep,
            steps.AdminCall: self._operate,
            **PlayFaults(stage).ways(),
            **dict.fromkeys(
                (steps.HandledStep, steps.Entered, steps.Owns, steps.Committed, steps.At, steps.CopiedStep),
                self._waits.wait,
            ),
        }

    async def run(self) -> None:
        """Raises ClusterFailed, with the number of the step that did not come to its end."""
        every = self._stage.scenario.steps
        for number, step in enumerate(every, 1):
            self._tell(f"{number}/{len(every)} {say(step)}")
            try:
                await self._ways[type(step)](step)
            except (ClusterFailed, NotSupported, ConfigError) as error:
                raise ClusterFailed(f"step {number}, {say(step)}: {error}") from error

    # what clients do

    async def _start(self, step: steps.Start) -> None:
        actor = self._stage.actor(step.who)
        if not actor.running:
            await self._stage.restart(step.who, None)
        await actor.ask("start", LEAST_DEADLINE_S)
        if step.assigned and actor.part.actor.kind in ("push", "lite"):  # no queue belongs to one that pops
            await self._waits.owns(step.who, 1, least=True)

    async def _close(self, step: steps.Close) -> None:
        actor = self._stage.actor(step.who)
        await actor.ask("close", LEAST_DEADLINE_S)
        await actor.end()

    async def _send(self, step: steps.Send) -> None:
        first = self._sent if step.first < 0 else step.first
        self._sent = max(self._sent, first + step.count)
        timeout_s = LEAST_DEADLINE_S + (step.count * step.times / step.rate if step.rate else 0)
        failed = await self._stage.actor(step.who).ask("send", timeout_s, step=step, first=first) or 0
        self.failed_sends += failed
        wanted = {"any": failed, "error": step.count * step.times}.get(step.outcome, 0)
        if step.wait and failed != wanted:
            meant = "" if step.outcome in ("ok", "error") else f" to end with {step.outcome}"
            raise ClusterFailed(f"{failed} of {step.count * step.times} sends failed{meant}")

    async def _wait_sent(self, step: steps.SentStep) -> None:
        self.failed_sends += await self._stage.actor(step.who).ask("sent", 2 * LEAST_DEADLINE_S) or 0

    async def _release(self, step: steps.ReleaseStep) -> None:
        await self._stage.actor(step.who).ask("release", LEAST_DEADLINE_S)

    async def _call(self, step: steps.CallStep) -> None:
        actor = self._stage.actor(step.who)
        await actor.ask("call", LEAST_DEADLINE_S, method=step.method, arguments=step.arguments)

    async def _sleep(self, step: steps.Sleep) -> None:
        await asyncio.sleep(step.ms * self._scale / 1000)

    async def _operate(self, step: steps.AdminCall) -> None:
        async with Admin(self._stage.cluster.namesrv) as admin:
            await operate(admin, step, self._stage.scenario.cluster.topics[0])


def say(step: Any) -> str:
    """A step in a few words."""
    said = ("who", "count", "method", "name", "terms", "group", "queue", "offset", "file", "how", "ms")
    words = [step.kind, *(str(getattr(step, name)) for name in said if getattr(step, name, ""))]
    return " ".join([*words, " - ".join(getattr(step, "between", ()))]).strip()
