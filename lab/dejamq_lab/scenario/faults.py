"""Faults of a scenario, in processes, links, clocks and files. The lab's journal notes every fault."""

import mmap
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from dejamq_proto import failpoints
from dejamq_proto.codes import ConfigError

from dejamq_lab.cluster.rpc_control import runtime
from dejamq_lab.cluster.waiting import until_async
from dejamq_lab.errors import ClusterFailed
from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.stage.stage import ScenarioStage

# Harm done to a file of a server that does not run.

WAYS = ("truncate", "empty", "delete", "garbage", "flip", "tear")
TORN_BYTES = 64


def harm(store: Path, name: str, how: str, torn_bytes: int = TORN_BYTES) -> None:
    """Harm every file of the store that ``name`` (a pattern) fits. Raises ConfigError where none does."""
    found = sorted(store.glob(name))
    if not found:
        raise ConfigError(f"there is no file {name} in {store}")
    for path in found:
        size = path.stat().st_size
        if how == "delete":
            path.unlink()
        elif how == "empty":
            path.write_bytes(b"")
        elif how == "truncate":
            path.write_bytes(path.read_bytes()[: size // 2])
        elif how == "garbage":
            path.write_bytes(b"\xff" * size)
        elif how in ("flip", "tear"):
            _harm_written(path, 0 if how == "flip" else torn_bytes)
        else:
            raise ConfigError(f"a file is harmed by {', '.join(WAYS)}, not {how!r}")


def _harm_written(path: Path, torn_bytes: int) -> None:
    """Tear off so many bytes, or flip a bit. What is written ends at the last byte that is not 0: files are longer."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        end = len(data[:].rstrip(b"\0"))
        if torn_bytes:
            data[max(0, end - torn_bytes) : end] = bytes(min(end, torn_bytes))
        else:
            data[end // 2] ^= 1


DISK_RATIO = "commitLogDiskRatio"
LOOK_DEADLINE_S = 30.0
Way = Callable[[Any], Awaitable[None]]


class PlayFaults:
    """The faults of one play."""

    def __init__(self, stage: ScenarioStage) -> None:
        self._stage, self._scale = stage, stage.scenario.cluster.time_scale
        self._jumped_ms: Counter[str] = Counter()

    def ways(self) -> dict[type, Way]:
        """How each step is done that is one of them."""
        return {
            steps.Restart: self.restart,
            steps.FailpointStep: self.arm,
            steps.ClockStep: self.jump,
            steps.DamageStep: self.damage,
            steps.DiskStep: self.fill,
            steps.Isolate: self.isolate,
            steps.Rejoin: self.rejoin,
            **dict.fromkeys((steps.Kill, steps.Pause, steps.Resume, steps.Terminate), self.strike),
            **dict.fromkeys((steps.CutStep, steps.Delay, steps.Heal), self.on_link),
        }

    async def strike(self, step: steps.Kill | steps.Pause | steps.Resume | steps.Terminate) -> None:
        await self._stage.strike(step.who, step.kind)

    async def restart(self, step: steps.Restart) -> None:
        await self._stage.restart(step.who, step.broker_id)
        if step.wait and step.who not in self._stage.actors:
            await self._stage.cluster.ready()

    async def arm(self, step: steps.FailpointStep) -> None:
        self._stage.arm(step.who, step.name, step.terms)

    async def jump(self, step: steps.ClockStep) -> None:
        """A second jump is added to the first; a process that is started again has the clock that it had."""
        self._jumped_ms[step.who] += round(step.ms * self._scale)
        self._stage.arm(step.who, failpoints.CLOCK, f"{self._jumped_ms[step.who]:+d}")

    async def damage(self, step: steps.DamageStep) -> None:
        self._stage.note(f"damage {step.file} {step.how}", step.who, "begin")
        harm(self._stage.store_of(step.who), step.file, step.how, step.bytes)

    async def fill(self, step: steps.DiskStep) -> None:
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

    async def on_link(self, step: steps.CutStep | steps.Delay | steps.Heal) -> None:
        one, other = step.between
        links, name = self._stage.links, " - ".join(step.between)
        self._stage.note(step.kind, name, "begin")
        if isinstance(step, steps.CutStep):
            links.cut(one, other, step.mode)
        elif isinstance(step, steps.Delay):
            links.delay(one, other, step.ms)
        else:
            links.heal(one, other)
        self._stage.note(step.kind, name, "end")
