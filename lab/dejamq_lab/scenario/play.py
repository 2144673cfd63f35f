"""Plays a scenario: does its steps one after the other, each with a deadline, and says which one it is at."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from dejamq import Admin, MessageQueue
from dejamq_proto.codes import ConfigError

from dejamq_lab.cluster_process import ServerProcess
from dejamq_lab.errors import ClusterFailed, NotSupported
from dejamq_lab.scenario import damage, steps
from dejamq_lab.scenario.stage import Stage
from dejamq_lab.scenario.waits import LEAST_DEADLINE_S, Waits

SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT, "terminate": signal.SIGTERM}
Tell = Callable[[str], None]
Way = Callable[[Any], Awaitable[None]]


class Play:
    """One run of the steps on a stage that stands."""

    def __init__(self, stage: Stage, tell: Tell) -> None:
        self._stage, self._tell, self._scale = stage, tell, stage.scenario.cluster.time_scale
        self._waits = Waits(stage)
        self._sent = 0
        self.failed_sends = 0
        self._ways: dict[type, Way] = {
            steps.Start: self._start, steps.Close: self._close, steps.Restart: self._restart, steps.Send: self._send,
            steps.Sent: self._wait_sent, steps.Release: self._release, steps.Call: self._call, steps.Sleep: self._sleep,
            steps.Failpoint: self._arm, steps.Damage: self._damage, steps.AdminCall: self._operate,
            **dict.fromkeys((steps.Kill, steps.Pause, steps.Resume, steps.Terminate), self._strike),
            **dict.fromkeys((steps.Cut, steps.Delay, steps.Heal), self._on_link),
            **dict.fromkeys(
                (steps.Handled, steps.Entered, steps.Owns, steps.Committed, steps.Copied), self._waits.wait
            ),
        }  # fmt: skip

    async def run(self) -> None:
        """Raises ClusterFailed, with the number of the step that did not come to its end."""
        every = self._stage.scenario.steps
        for number, step in enumerate(every, 1):
            self._tell(f"{number}/{len(every)} {say(step)}")
            try:
                if type(step) not in self._ways:
                    raise NotSupported("the lab cannot do this to processes")
                await self._ways[type(step)](step)
            except (ClusterFailed, NotSupported, ConfigError) as error:
                raise ClusterFailed(f"step {number}, {say(step)}: {error}") from error

    # what clients do

    async def _start(self, step: steps.Start) -> None:
        actor = self._stage.actor(step.who)
        if not actor.running:
            await actor.spawn()
        await actor.ask("start", LEAST_DEADLINE_S)
        if step.assigned and actor.part.actor.kind != "producer":
            await self._waits.owns(step.who, 1, least=True)

    async def _close(self, step: steps.Close) -> None:
        actor = self._stage.actor(step.who)
        await actor.ask("close", LEAST_DEADLINE_S)
        await actor.end()

    async def _send(self, step: steps.Send) -> None:
        first, self._sent = self._sent, self._sent + step.count
        timeout_s = LEAST_DEADLINE_S + (step.count * step.times / step.rate if step.rate else 0)
        failed = await self._stage.actor(step.who).ask("send", timeout_s, step=step, first=first) or 0
        self.failed_sends += failed
        wanted = {"ok": 0, "error": step.count * step.times}.get(step.outcome, failed)
        if step.wait and failed != wanted:
            raise ClusterFailed(f"{failed} of {step.count * step.times} sends failed")

    async def _wait_sent(self, step: steps.Sent) -> None:
        self.failed_sends += await self._stage.actor(step.who).ask("sent", 2 * LEAST_DEADLINE_S) or 0

    async def _release(self, step: steps.Release) -> None:
        await self._stage.actor(step.who).ask("release", LEAST_DEADLINE_S)

    async def _call(self, step: steps.Call) -> None:
        actor = self._stage.actor(step.who)
        await actor.ask("call", LEAST_DEADLINE_S, method=step.method, arguments=step.arguments)

    async def _sleep(self, step: steps.Sleep) -> None:
        await asyncio.sleep(step.ms * self._scale / 1000)

    async def _operate(self, step: steps.AdminCall) -> None:
        arguments = dict(step.arguments)
        if "queue" in arguments:
            arguments["queue"] = MessageQueue(*arguments["queue"])
        async with Admin(self._stage.cluster.namesrv) as admin:
            found: Any = getattr(admin, step.method, None)
            if found is None or step.method.startswith("_"):
                raise ConfigError(f"Admin has no method {step.method!r}")
            await found(**arguments)

    # what is done to processes and links

    async def _strike(self, step: steps.One) -> None:
        kind = tag(step)
        if step.who in self._stage.actors:
            await self._stage.actor(step.who).strike(kind, SIGNALS[kind])
            return
        server = self._server(step.who)
        getattr(server, kind)()
        if kind == "terminate":
            await server.ended()

    async def _restart(self, step: steps.Restart) -> None:
        if step.who in self._stage.actors:
            await self._stage.actor(step.who).spawn()
            return
        self._server(step.who).restart(step.broker_id)
        if step.wait:
            await self._stage.cluster.ready()

    async def _arm(self, step: steps.Failpoint) -> None:
        target = self._stage.actors.get(step.who) or self._server(step.who)
        target.arm(step.name, step.terms)

    async def _damage(self, step: steps.Damage) -> None:
        self._stage.note(f"damage {step.file} {step.how}", step.who, "begin")
        damage.harm(self._stage.directory / "cluster" / step.who / "store", step.file, step.how)

    async def _on_link(self, step: steps.Cut | steps.Delay | steps.Heal) -> None:
        one, other = step.between
        links, name = self._stage.links, " - ".join(step.between)
        self._stage.note(tag(step), name, "begin")
        if isinstance(step, steps.Cut):
            links.cut(one, other, step.mode)
        elif isinstance(step, steps.Delay):
            links.delay(one, other, step.ms)
        else:
            links.heal(one, other)
        self._stage.note(tag(step), name, "end")

    def _server(self, name: str) -> ServerProcess:
        server = self._stage.cluster.server(name)
        assert isinstance(server, ServerProcess), "the stage has processes"
        return server


def tag(step: steps.Base) -> str:
    """The step's ``do``."""
    return str(type(step).__struct_config__.tag)


def say(step: Any) -> str:
    """A step in a few words."""
    said = ("who", "count", "method", "name", "terms", "group", "file", "how", "ms")
    words = [tag(step), *(str(getattr(step, name)) for name in said if getattr(step, name, ""))]
    return " ".join([*words, " - ".join(getattr(step, "between", ()))]).strip()
