"""What push and lite pull consumers have in common once started: routes, membership, rounds of allocation, progress."""

import asyncio
import logging
from collections.abc import Sequence
from contextvars import ContextVar

from dejamq_proto import names
from dejamq_proto.client_pb2 import ConsumerData
from dejamq_proto.codes import ClientClosed, DejamqError, RouteNotFound, WaitTimeout
from dejamq_proto.events import State

from dejamq.config import ConsumerConfig
from dejamq.filter_check import check_filters
from dejamq.instance import Instance
from dejamq.namespace import unwrap
from dejamq.offset_store import OffsetStore
from dejamq.plan import Queues
from dejamq.rebalancer import Rebalancer
from dejamq.retry_route import RetryRoute
from dejamq.subscriptions import Subscriptions
from dejamq.waits import first_of, together

log = logging.getLogger("dejamq.consumer")

handled_by: ContextVar["Membership | None"] = ContextVar("handled_by", default=None)
"""Whose handler runs here: in its task or thread, and in tasks that it began."""


class Membership:
    """One started consumer's place in its group; who makes it makes ``offsets`` and ``rebalancer`` as well.

    Made in the loop that will own it. A start that fails is ended by whoever called it: no queue was opened by then.
    """

    offsets: OffsetStore
    rebalancer: Rebalancer

    def __init__(self, group: str, config: ConsumerConfig, subscriptions: Subscriptions) -> None:
        self._group, self._config, self._subscriptions = group, config, subscriptions
        self.instance = Instance(config, role="consumer")
        self.failed = asyncio.Event()
        self.instance.on_fatal = lambda error: self.failed.set()
        self._closing = False
        self._retry_route = RetryRoute(self.instance.routes, names.retry_topic(group))
        self._rebalancing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Become a member and begin."""
        raise NotImplementedError

    async def abandon(self) -> None:
        """After a start that failed."""
        raise NotImplementedError

    async def close(self, timeout_s: float) -> None:
        """End everything that ``start`` began."""
        raise NotImplementedError

    def learn(self, topic: str) -> None:
        """A topic was subscribed while running."""
        self.rebalancer.unsettle()
        self.instance.spawn(self._learn_late(topic), f"learn-{topic}")

    def forget(self, topic: str) -> None:
        """A topic was unsubscribed while running."""
        self.instance.routes.unwatch(topic)
        self.instance.presence.wake()
        self.rebalancer.unsettle()
        self.rebalancer.wake()

    async def wait_settled(self, timeout_ms: float, ending: asyncio.Event) -> None:
        """Until a round gave this member its queues, a background task failed or its end began. Raises WaitTimeout."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await first_of(self.rebalancer.settled, self.failed, ending)
        except TimeoutError:
            raise self._no_queues(timeout_ms) from None

    def _no_queues(self, timeout_ms: float) -> WaitTimeout:
        """What a program is told that waited for its queues in vain: which, and what to look at."""
        topics, owned = [one.topic for one in self._subscriptions], self.rebalancer.assignment.queues()
        unknown = [topic for topic in topics if not self._readable(topic)]
        missing = unknown or sorted(set(topics) - {queue.topic for queue in owned}) or topics
        group, *named = (unwrap(self._config.namespace, name) for name in (self._group, *missing))
        names_text = ", ".join(named)
        look_at = "its routes are known: do its brokers answer, and does no other member hold the locks of its queues?"
        if unknown:
            look_at = f"no route of {names_text} is known: does the topic exist, and do the name servers answer?"
        return WaitTimeout(f"group {group!r} got no queues of {names_text} within {timeout_ms:.0f} ms; {look_at}")

    def _readable(self, topic: str) -> bool:
        route = self.instance.routes.known(topic)
        return route is not None and bool(route.subscribe_queues())

    async def _join(self) -> None:
        """Routes, then the heartbeat that makes this client a member.

        Raises ClientClosed when closed meanwhile, and what a broker refuses a SQL filter with.
        """
        instance = self.instance
        instance.register_consumer(self._consumer_data)
        instance.on_ids_changed(self._group, self.rebalancer.wake)
        instance.presence.on_connected = self._connected
        await instance.start()
        await asyncio.gather(*map(self._learn, self._subscriptions.topics))
        await check_filters(self.instance, self._group, self._subscriptions)
        await instance.heartbeat()
        if self._closing:
            raise ClientClosed("the consumer was closed while it started")

    def _begin_rounds(self) -> None:
        self._rebalancing = self.instance.spawn(self.rebalancer.run(), "rebalance")
        self.instance.spawn(self._persist(), "persist")

    def _consumer_data(self) -> ConsumerData:
        """What heartbeats say of this member."""
        raise NotImplementedError

    def _connected(self, address: str) -> None:
        """A broker was reached, maybe again: it may have forgotten the members, or made the group's retry topic."""
        self.rebalancer.wake()
        if names.retry_topic(self._group) in self._subscriptions.topics:
            self._retry_route.connected(address)
            self.instance.spawn(self._find_retries(), "retry-route")

    async def _find_retries(self) -> None:
        if await self._retry_route.complete(self._config.reconnect_interval_ms / 1000):
            self.rebalancer.wake()

    async def _stop_pulling(self) -> None:
        """A round under way may hold a commit: it gets the time of a call to end."""
        self.rebalancer.stop()
        if self._rebalancing is not None:
            timeout_s = self._config.consumer_progress_timeout_ms / 1000
            await asyncio.wait((self._rebalancing,), timeout=timeout_s)
            await cancel([self._rebalancing])
        await cancel([owned.fetching for owned in self.rebalancer.assignment if owned.fetching is not None])

    async def _persist(self) -> None:
        """Every interval, changed or not: a broker that lost its table hears the offsets again."""
        interval_s = self._config.persist_consumer_offset_interval_ms / 1000
        while True:
            await asyncio.sleep(together(interval_s))
            if self._config.acknowledge_commits:
                live = [owned for owned in self.rebalancer.assignment if not owned.dropped]
                await asyncio.gather(*(self.offsets.commit(owned, "timer") for owned in live))
            else:
                self.offsets.commit_oneway(self.rebalancer.assignment)

    async def _learn(self, topic: str) -> None:
        """A topic that does not exist yet is watched and found by a later refresh."""
        self.instance.routes.watch(topic)
        try:
            await self.instance.routes.get(topic)
        except RouteNotFound:
            if not names.is_internal(topic):
                log.warning("topic_missing topic=%s: nothing to consume until somebody creates it", topic)

    async def _learn_late(self, topic: str) -> None:
        """As at the start, but nothing that fails here ends a consumer that has other topics."""
        try:
            await self._learn(topic)
        except DejamqError as error:
            log.warning("route_unknown topic=%s: it is asked for again at the next refresh: %s", topic, error)
        try:
            await check_filters(self.instance, self._group, (one for one in self._subscriptions if one.topic == topic))
        except DejamqError as error:
            log.error("filter_refused topic=%s: nothing of it is consumed: %s", topic, error)
        await self.instance.heartbeat()
        self.rebalancer.wake()

    async def _queues(self, topic: str) -> Queues:
        """What a round of allocation shares out. Raises RouteNotFound while no broker offers a readable queue."""
        route = await self.instance.routes.get(topic)
        queues = route.subscribe_queues()
        if not queues:
            raise RouteNotFound(f"no broker offers readable queues of topic {topic!r}")
        return Queues(queues, self.instance.namesrv.address, route.digest)

    def _journal(self, state: str) -> None:
        self.instance.journal.write(State(state=state, client_id=self.instance.client_id, group=self._group))


async def cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel and wait until all have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
