"""What a scenario does to processes, links, clocks and files. Every fault is noted in the lab's journal."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from dejamq_proto import failpoints

from dejamq_lab.errors import ClusterFailed
from dejamq_lab.rpc_control import runtime
from dejamq_lab.scenario import damage, steps
from dejamq_lab.scenario.stage import Stage
from dejamq_lab.waiting import until_async

DISK_RATIO = "commitLogDiskRatio"
LOOK_DEADLINE_S = 30.0
Way = Callable[[Any], Awaitable[None]]


class Faults:
    """The faults of one play."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._scale = stage, stage.scenario.cluster.time_scale
        self._jumped_ms: Counter[str] = Counter()

    def ways(self) -> dict[type, Way]:
        """How each step is done that is one of them."""
        return {
            steps.Restart: self.restart, steps.Failpoint: self.arm, steps.Clock: self.jump, steps.Damage: self.damage,
            steps.Disk: self.fill, steps.Isolate: self.isolate, steps.Rejoin: self.rejoin,
            **dict.fromkeys((steps.Kill, steps.Pause, steps.Resume, steps.Terminate), self.strike),
            **dict.fromkeys((steps.Cut, steps.Delay, steps.Heal), self.on_link),
        }  # fmt: skip

    async def strike(self, step: steps.Kill | steps.Pause | steps.Resume | steps.Terminate) -> None:
        await self._stage.strike(step.who, step.kind)

    async def restart(self, step: steps.Restart) -> None:
        await self._stage.restart(step.who, step.broker_id)
        if step.wait and step.who not in self._stage.actors:
            await self._stage.cluster.ready()

    async def arm(self, step: steps.Failpoint) -> None:
        self._stage.arm(step.who, step.name, step.terms)

    async def jump(self, step: steps.Clock) -> None:
        """A second jump is added to the first; a process that is started again has the clock that it had."""
        self._jumped_ms[step.who] += round(step.ms * self._scale)
        self._stage.arm(step.who, failpoints.CLOCK, f"{self._jumped_ms[step.who]:+d}")

    async def damage(self, step: steps.Damage) -> None:
        self._stage.note(f"damage {step.file} {step.how}", step.who, "begin")
        damage.harm(self._stage.store_of(step.who), step.file, step.how)

    async def fill(self, step: steps.Disk) -> None:
        """Returns when the broker has looked at its disk."""
        address = self._stage.cluster.server(step.who).address
        before = (await runtime(address)).get(DISK_RATIO)
        self._stage.arm(step.who, failpoints.DISK, str(step.percent))

        async def seen() -> bool:
            now = (await runtime(address)).get(DISK_RATIO)
            return now is not None and (float(now) == step.percent / 100 or now != before)

        if not await until_async(seen, LOOK_DEADLINE_S):
            raise ClusterFailed(f"{step.who} did not look at its disk within {LOOK_DEADLINE_S:.0f} s")

    async def isolate(self, step: steps.Isolate) -> None:
        self._stage.note("isolate", step.who, "begin")
        self._stage.links.isolate(step.who, step.mode)
        self._stage.note("isolate", step.who, "end")

    async def rejoin(self, step: steps.Rejoin) -> None:
        self._stage.note("rejoin", step.who, "begin")
        self._stage.links.rejoin_all(step.who)
        self._stage.note("rejoin", step.who, "end")

    async def on_link(self, step: steps.Cut | steps.Delay | steps.Heal) -> None:
        one, other = step.between
        links, name = self._stage.links, " - ".join(step.between)
        self._stage.note(step.kind, name, "begin")
        if isinstance(step, steps.Cut):
            links.cut(one, other, step.mode)
        elif isinstance(step, steps.Delay):
            links.delay(one, other, step.ms)
        else:
            links.heal(one, other)
        self._stage.note(step.kind, name, "end")
