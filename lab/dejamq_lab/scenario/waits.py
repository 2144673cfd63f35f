"""The steps that wait, by what the ledger, the brokers or an actor say; never by a journal, which is on trial."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from dejamq import Admin, MessageQueue
from dejamq_proto.codes import DejamqError

from dejamq_lab.cluster.plan import replica_of
from dejamq_lab.cluster.rpc_control import runtime
from dejamq_lab.cluster.waiting import until_async
from dejamq_lab.errors import ClusterFailed
from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.script.text import TOPIC
from dejamq_lab.scenario.stage.stage import ScenarioStage

LEAST_DEADLINE_S = 30.0
UNREAD_S = 2.0
"""The longest time that a queue with messages may lack a coming offset; a group that began behind them has none."""
Wait = steps.HandledStep | steps.Entered | steps.Owns | steps.Committed | steps.At | steps.CopiedStep


class Waits:
    """Each raises ClusterFailed when its deadline is over."""

    def __init__(self, stage: ScenarioStage) -> None:
        self._stage, self._scale = stage, stage.scenario.cluster.time_scale

    async def wait(self, step: Wait) -> None:
        match step:
            case steps.HandledStep():
                await self._handled(step)
            case steps.Entered():
                await self._entered(step)
            case steps.Owns():
                await self.owns(step.who, step.queues, self._deadline_s(step.deadline_ms))
            case steps.Committed():
                await self._committed(step)
            case steps.At():
                await self._at(step)
            case steps.CopiedStep():
                await self._copied(step)

    async def owns(
        self, who: str, queues: int, deadline_s: float = LEAST_DEADLINE_S, *, least: bool = False
    ) -> None:  # fmt: skip
        """``least``: or more."""
        actor = self._stage.actor(who)

        async def enough() -> bool:
            owned = await actor.ask("owned", LEAST_DEADLINE_S) or 0
            return owned >= queues if least else owned == queues

        await self._until(f"{who} has {queues} queues", enough, deadline_s)

    async def _handled(self, step: steps.HandledStep) -> None:
        def count() -> int:
            return self._stage.ledger.count(step.who, different=step.different)

        async def enough() -> bool:
            return count() >= step.count

        try:
            await self._until("handled", enough, self._deadline_s(step.deadline_ms))
        except ClusterFailed as error:
            raise ClusterFailed(f"{count()} of {step.count}: {error}") from None

    async def _entered(self, step: steps.Entered) -> None:
        async def entered() -> bool:
            return self._stage.ledger.entries(step.who, step.number) >= step.times

        await self._until(f"message {step.number} at {step.who}", entered, LEAST_DEADLINE_S)

    async def _committed(self, step: steps.Committed) -> None:
        actors = self._stage.scenario.actors.values()
        topics = {topic for actor in actors if actor.group == step.group for topic in actor.topics}
        since: list[float] = []

        async def committed() -> bool:
            try:
                progress = await admin.progress(step.group)
            except DejamqError:
                return False
            found = [one for one in progress if one.queue.topic in topics]
            if not found or any(one.lag for one in found):
                since.clear()
                return False
            if not await _without_offset(admin, step.group, topics):
                return True
            since.append(time.monotonic())
            return since[-1] - since[0] > UNREAD_S

        async with Admin(self._stage.cluster.namesrv) as admin:
            await self._until(f"{step.group} has committed all", committed, self._deadline_s(step.deadline_ms))

    async def _at(self, step: steps.At) -> None:
        broker_name, _, queue_id = step.queue.rpartition(":")
        queue = MessageQueue(step.topic or TOPIC, broker_name, int(queue_id))
        seen: list[int] = []

        async def there() -> bool:
            seen[:] = [one.committed for one in await admin.progress(step.group) if one.queue == queue]
            return seen == [step.offset]

        async with Admin(self._stage.cluster.namesrv) as admin:
            try:
                await self._until("committed", there, self._deadline_s(step.deadline_ms))
            except ClusterFailed as error:
                raise ClusterFailed(f"{step.group} is at {seen} of {step.queue}: {error}") from None

    async def _copied(self, step: steps.CopiedStep) -> None:
        pair = [self._stage.cluster.server(name).address for name in (replica_of(step.who)[0], step.who)]

        async def equal() -> bool:
            master, slave = [(await runtime(address)).get("commitLogMaxOffset") for address in pair]
            return master is not None and master == slave

        await self._until(f"{step.who} has the whole log", equal, LEAST_DEADLINE_S)

    def _deadline_s(self, ms: float) -> float:
        return max(LEAST_DEADLINE_S, ms * self._scale / 1000)

    async def _until(self, what: str, condition: Callable[[], Awaitable[bool]], deadline_s: float) -> None:
        if not await until_async(condition, deadline_s):
            raise ClusterFailed(f"not within {deadline_s:.0f} s: {what}")
        await asyncio.sleep(0)


async def _without_offset(admin: Admin, group: str, topics: Iterable[str]) -> bool:
    """Whether queues hold messages of which the group has committed nothing yet. False where brokers do not tell."""
    try:
        ends = [move for topic in topics for move in await admin.plan_reset(group, topic, to_end=True)]
    except DejamqError:
        return False
    return any(move.before is None and move.after for move in ends)
