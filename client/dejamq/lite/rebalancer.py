"""Which queues a lite pull consumer has, and where they begin: by the group's allocation, or as the program says.

Source: RocketMQ ``RebalanceLitePullImpl``, ``AssignedMessageQueue``.
"""

import asyncio
from collections.abc import Callable

import msgspec

from dejamq.rebalance.consume_from import ConsumeFrom, StartRule
from dejamq.rebalance.rebalancer import Rebalancer, RebalancerParts
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.offset_store import OffsetStore
from dejamq.values.allocation import Strategy
from dejamq.values.message import MessageQueue

QueuesListener = Callable[[str, tuple[MessageQueue, ...]], object]


class ChosenQueues(msgspec.Struct):
    """The program's wishes for queues by their name, whether or not they are owned at the moment."""

    queues: frozenset[MessageQueue] | None = None
    """By ``assign``; None where topics are subscribed."""
    seeks: dict[MessageQueue, int] = {}
    """Where queues that are not open yet shall begin."""
    listeners: dict[str, QueuesListener] = {}
    """By topic, for changes of its queues."""

    def assign(self, queues: frozenset[MessageQueue]) -> None:
        """Other queues are wanted; a seek of one that is not is forgotten."""
        self.queues = queues
        for queue in self.seeks.keys() - queues:
            del self.seeks[queue]


class LiteStart(StartRule):
    """Where the program wants a queue to begin comes before everything else."""

    def __init__(
        self, context: ConsumerContext, offsets: OffsetStore, rule: ConsumeFrom, timestamp_ms: int,
        seeks: dict[MessageQueue, int],
    ) -> None:  # fmt: skip
        super().__init__(context, offsets, rule, timestamp_ms)
        self._seeks = seeks

    async def start_of(self, queue: MessageQueue) -> tuple[int, str]:
        """As the base; a seek that comes while the broker is asked counts as well."""
        found = None if queue in self._seeks else await super().start_of(queue)
        wanted = self._seeks.pop(queue, None)
        if wanted is not None:
            return wanted, "seek"
        assert found is not None
        return found


class LiteRebalancer(Rebalancer):
    """Allocates like a push consumer's, or opens the queues that the program assigned, and no others."""

    def __init__(
        self, context: ConsumerContext, parts: RebalancerParts, allocation: tuple[str, Strategy], chosen: ChosenQueues
    ) -> None:
        super().__init__(context, parts, *allocation)
        self._chosen = chosen
        self._told_of: frozenset[MessageQueue] = frozenset()

    async def round(self) -> bool:
        """One round. Of assigned queues True when all are open; members of the group are not asked for."""
        wanted = self._chosen.queues
        if wanted is None:
            return await super().round()
        self._rounds += 1
        self._tell(wanted)
        await self.release([one for one in self.assignment if one.queue not in wanted], "reassigned")
        await self.release([one for one in self.assignment if self._outdated(one)], "resubscribed")
        await asyncio.gather(*(self._open(queue) for queue in wanted if queue not in self.assignment))
        balanced = frozenset(one.queue for one in self.assignment) == wanted
        if balanced and wanted is self._chosen.queues:
            self.settled.set()
        return balanced

    def _begin(self, queue: MessageQueue, start_offset: int, source: str, locked_at_s: float | None = None) -> None:
        """As the base. After a seek the queue's position is known, and a commit may go back to it."""
        super()._begin(queue, start_offset, source, locked_at_s)
        owned = self.assignment.owned.get(queue)
        if source == "seek" and owned is not None:
            owned.process_queue.advance(start_offset)

    def _tell(self, wanted: frozenset[MessageQueue]) -> None:
        """Journal what the program assigned, once for each change."""
        for topic in sorted({queue.topic for queue in wanted ^ self._told_of}):
            mine = sorted(queue for queue in wanted if queue.topic == topic)
            self.planner.journal(topic, mine, self._rounds, strategy="manual")
        self._told_of = wanted
