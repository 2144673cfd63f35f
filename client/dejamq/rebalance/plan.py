"""The aim of a round of allocation: this member's queues of each topic.

Source: RocketMQ ``RebalanceImpl.rebalanceByTopic``. Every round asks one random broker of each topic for the group's
members. Nobody reconciles the lists of several brokers, name servers or members. So a queue can have two owners for a
while (causes R1, R2).
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
from dejamq_proto.codes import ConfigError, DejamqError
from dejamq_proto.journal.events import Assign

from dejamq.receiving.context import ConsumerContext
from dejamq.values.allocation import Strategy, allocate
from dejamq.values.message import MessageQueue

log = logging.getLogger("dejamq.clients.consumer")


# This member's share of each topic, round after round, by a strategy that anybody may have written.


class Shares:
    """Remembers which topics the strategy has answered for, and what it failed with last."""

    def __init__(self, name: str, strategy: Strategy) -> None:
        self._name, self.strategy = name, strategy
        self._answered: set[str] = set()
        self._troubles: dict[str, str] = {}

    def of(
        self, topic: str, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue] | None:
        """None while the strategy fails: everything stays as it is, as in RocketMQ, until it can answer again.

        Raises ConfigError when it never could for this topic: that is a fault of the program.
        """
        try:
            share = allocate(self._name, self.strategy, queues, members, me)
        except ConfigError as error:
            if topic not in self._answered:
                raise
            if self._troubles.get(topic) != str(error):
                log.error("allocation_failed topic=%s: %s", topic, error)
            self._troubles[topic] = str(error)
            return None
        self._answered.add(topic)
        self._troubles.pop(topic, None)
        return share


class SharedQueues(msgspec.Struct, frozen=True):
    """A topic's queues to share out, and where that is known from."""

    queues: Sequence[MessageQueue]
    namesrv: str
    digest: str


NOWHERE = SharedQueues((), "", "")


class Share(msgspec.Struct, frozen=True):
    """This member's queues of a topic. ``listed``: the broker that was asked knows it as a member."""

    queues: Sequence[MessageQueue]
    listed: bool


class Planner:
    """Owned by the rebalancer. It changes nothing, and journals what it found for whoever asks later why."""

    def __init__(
        self,
        context: ConsumerContext,
        route: Callable[[str], Awaitable[SharedQueues]],
        name: str,
        strategy: Strategy,
        *,
        broadcasting: bool,
    ) -> None:
        """``route`` gives a topic's queues, and raises DejamqError while there are none.

        Each member of a ``broadcasting`` group has all queues: nobody is asked who else there is.
        """
        self._context, self._route = context, route
        self._strategy_name, self.shares = name, Shares(name, strategy)
        self._broadcasting = broadcasting

    async def plan(self, topics: Iterable[str], round_number: int) -> AsyncGenerator[dict[str, Share], None]:
        """The shares of topics whose queues and members could be learnt, a broker's topics at a time.

        A broker is asked once a round, for all topics that it was chosen for, and one that does not answer keeps no
        other's waiting. Whoever gets a share acts on it before anything else: the journal's line is written already.
        Raises ConfigError when the strategy never could answer for a topic.
        """
        asked: dict[str, dict[str, SharedQueues]] = {}
        for topic, route in (await self._routes(topics)).items():
            broker_names = {queue.broker_name for queue in route.queues}
            chosen = "" if self._broadcasting else random.choice(sorted(broker_names))
            asked.setdefault(chosen, {})[topic] = route
        questions = {asyncio.create_task(self._members(broker_name)): broker_name for broker_name in asked}
        waiting = set(questions)
        try:
            while waiting:
                answered, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for question in answered:
                    broker_name = questions[question]
                    if members := question.result():
                        yield self._shares_of(asked[broker_name], broker_name, members, round_number)
        finally:
            for question in questions:
                question.cancel()

    async def _routes(self, topics: Iterable[str]) -> dict[str, SharedQueues]:
        names = tuple(topics)
        found = await asyncio.gather(*map(self._route_of, names))
        return {topic: route for topic, route in zip(names, found, strict=True) if route is not None}

    async def _route_of(self, topic: str) -> SharedQueues | None:
        try:
            return await self._route(topic)
        except DejamqError as error:
            log.debug("rebalance_kept topic=%s reason=%s", topic, error)
            return None

    async def _members(self, broker_name: str) -> list[str]:
        """The client ids of the group that the broker knows, sorted; none when it cannot be asked."""
        if self._broadcasting:
            return [self._context.client_id]
        try:
            return sorted(await self._context.link(broker_name).consumer_list(self._context.group))
        except DejamqError as error:
            log.debug("rebalance_kept broker=%s reason=%s", broker_name, error)
            return []

    def _shares_of(
        self, routes: Mapping[str, SharedQueues], broker_name: str, members: list[str], round_number: int
    ) -> dict[str, Share]:
        context, found = self._context, dict[str, Share]()
        for topic, route in routes.items():
            mine = self.shares.of(topic, sorted(route.queues), members, context.client_id)
            if mine is None:
                continue
            found[topic] = Share(mine, context.client_id in members)
            self.journal(topic, mine, round_number, route=route, broker_name=broker_name, members=members)
        return found

    def journal(
        self, topic: str, mine: Iterable[MessageQueue], round_number: int, *, route: SharedQueues = NOWHERE,
        broker_name: str = "", members: Sequence[str] = (), strategy: str = "",
    ) -> None:  # fmt: skip
        """Who decided what, from what it saw. ``strategy``: where it was not the group's."""
        context = self._context
        if context.journal.on:
            context.journal.write(Assign(
                group=context.group, topic=topic, client_id=context.client_id, round=round_number,
                namesrv=route.namesrv, route_digest=route.digest, broker_name=broker_name, members=list(members),
                strategy=strategy or self._strategy_name,
                queues=[f"{queue.broker_name}:{queue.queue_id}" for queue in mine],
            ))  # fmt: skip
