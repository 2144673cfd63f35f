"""What a round of allocation is to bring about: of each topic, the queues that are this member's.

Source: RocketMQ ``RebalanceImpl.rebalanceByTopic``. Every round asks one random broker of each topic for the group's
members: nobody reconciles the lists of several brokers, name servers or members, which is how a queue can have two
owners for a while (causes R1, R2).
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec
from dejamq_proto.codes import DejamqError
from dejamq_proto.events import Assign

from dejamq.allocation import Strategy
from dejamq.context import Context
from dejamq.members import Members
from dejamq.message import MessageQueue
from dejamq.shares import Shares

log = logging.getLogger("dejamq.consumer")


class Queues(msgspec.Struct, frozen=True):
    """A topic's queues to share out, and where that is known from."""

    queues: Sequence[MessageQueue]
    namesrv: str
    digest: str


class Share(msgspec.Struct, frozen=True):
    """This member's queues of a topic. ``listed``: the broker that was asked knows it as a member."""

    queues: Sequence[MessageQueue]
    listed: bool


class Planner:
    """Owned by the rebalancer. It changes nothing, and journals what it found for whoever asks later why."""

    def __init__(
        self, context: Context, route: Callable[[str], Awaitable[Queues]], name: str, strategy: Strategy, *,
        broadcasting: bool,
    ) -> None:  # fmt: skip
        """``route`` gives a topic's queues, and raises DejamqError while there are none."""
        self._context, self._route = context, route
        self.strategy_name, self.shares = name, Shares(name, strategy)
        self.members = Members(context, broadcasting=broadcasting)

    async def plan(self, topics: Iterable[str], round_number: int) -> dict[str, Share]:
        """The shares of those topics whose queues and members could be learnt.

        Raises ConfigError when the strategy never could answer for one of them.
        """
        found = [(topic, await self._share_of(topic, round_number)) for topic in topics]
        return {topic: share for topic, share in found if share is not None}

    async def _share_of(self, topic: str, round_number: int) -> Share | None:
        context = self._context
        try:
            route = await self._route(topic)
            broker_name, members = await self.members.of({queue.broker_name for queue in route.queues})
        except DejamqError as error:
            log.debug("rebalance_kept topic=%s reason=%s", topic, error)
            return None
        if not members:
            return None
        mine = self.shares.of(topic, sorted(route.queues), members, context.client_id)
        if mine is None:
            return None
        self.journal(Assign(
            group=context.group, topic=topic, client_id=context.client_id, round=round_number, namesrv=route.namesrv,
            route_digest=route.digest, broker_name=broker_name, members=members, strategy=self.strategy_name,
            queues=names_of(mine),
        ))  # fmt: skip
        return Share(mine, context.client_id in members)

    def journal(self, event: Assign) -> None:
        """Who decided what, from what it saw."""
        if self._context.journal.on:
            self._context.journal.write(event)


def names_of(queues: Iterable[MessageQueue]) -> list[str]:
    """As the journal has them.

    >>> names_of([MessageQueue("orders", "broker-a", 3)])
    ['broker-a:3']
    """
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in queues]
