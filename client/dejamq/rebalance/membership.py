"""The common part of started push and lite pull consumers: routes, membership, rounds of allocation, progress."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from math import inf

from dejamq_proto import names
from dejamq_proto.client_pb2 import ConsumerData
from dejamq_proto.codes import BrokerUnavailable, ClientClosed, Code, DejamqError, RouteNotFound, WaitTimeout, error_for
from dejamq_proto.journal.events import State
from dejamq_proto.pull_pb2 import CheckFilterRequest

from dejamq.handling.subscriptions import Subscription, Subscriptions
from dejamq.net.instance import Instance
from dejamq.net.routes import Routes
from dejamq.net.waits import aligned_delay, first_of
from dejamq.rebalance.plan import SharedQueues
from dejamq.rebalance.rebalancer import Rebalancer
from dejamq.receiving.offset_store import OffsetStore
from dejamq.values.config import ConsumerConfig
from dejamq.values.namespace import unwrap

log = logging.getLogger("dejamq.clients.consumer")

# A group's retry topic, found at every broker soon after it was made there. Brokers make the topic with the first
# heartbeat of a group and tell their name servers at once, but members read routes every 30 s only (RocketMQ:
# pollNameServerInterval). Whoever read the route in between would leave the retries of a broker without an owner for
# so long; RocketMQ's clients do.

PAUSES = (0.1, 0.3, 1.0, 3.0)
"""Before each further look, in units of ``reconnect_interval_ms``. Then the ordinary reading of routes has to do."""


class RetryRoute:
    """Owned by the event loop. ``addresses`` of brokers that acknowledged a heartbeat gather here."""

    def __init__(self, routes: Routes, topic: str) -> None:
        self._routes, self._topic = routes, topic
        self._addresses: set[str] = set()

    def connected(self, address: str) -> None:
        """This broker has the topic now, or will never make it."""
        self._addresses.add(address)

    def missing(self) -> set[str]:
        """Addresses of such brokers that the topic's route does not name yet."""
        route = self._routes.known(self._topic)
        if route is None:
            return set(self._addresses)
        named = {queues.broker_name for queues in route.queues}
        return self._addresses - {one for name in named for one in route.addresses.get(name, {}).values()}

    async def complete(self, unit_s: float) -> bool:
        """Read the route until it names every broker, a few times. Whether it changed."""
        before = self._routes.known(self._topic)
        for pause in PAUSES:
            if not self.missing():
                break
            await asyncio.sleep(pause * unit_s)
            try:
                await self._routes.refresh(self._topic)
            except DejamqError as error:  # not there yet, or the name server is away: the next look tells
                log.debug("retry_route_unknown topic=%s reason=%s", self._topic, error)
        return self._routes.known(self._topic) != before


# Filters that only brokers can judge, judged before anything waits for their messages. Source: RocketMQ
# MQClientInstance.checkClientInBroker, which asks one broker of each topic; here all are asked.

REFUSALS = (Code.SUBSCRIPTION_PARSE_FAILED, Code.SYSTEM_ERROR)


async def check_filters(instance: Instance, group: str, subscriptions: Iterable[Subscription]) -> None:
    """Raises the first refusal of a broker: SUBSCRIPTION_PARSE_FAILED, or SYSTEM_ERROR where SQL92 is off.

    A topic or a broker that is away is no refusal: its pulls tell later.
    """
    for one in subscriptions:
        if one.expression_type == "TAG":
            continue
        request = CheckFilterRequest(
            caller=instance.caller(), group=group, topic=one.topic, expression=one.expression,
            expression_type=one.expression_type,
        )  # fmt: skip
        addresses = await _addresses(instance, one.topic)
        await asyncio.gather(*(_check(instance, address, request) for address in addresses))


async def _check(instance: Instance, address: str, request: CheckFilterRequest) -> None:
    try:
        await instance.link(address).check_filter(request)
    except DejamqError as error:
        if error.code not in REFUSALS:
            log.warning("filter_not_checked topic=%s broker=%s: %s", request.topic, address, error)
            return
        raise error_for(error.code, f"topic {request.topic!r}, broker {address}: {error}", definite=True) from None


async def _addresses(instance: Instance, topic: str) -> set[str]:
    try:
        queues = await instance.routes.subscribe_queues(topic)
    except (RouteNotFound, BrokerUnavailable):
        return set()
    found = (instance.routes.address(queue.broker_name, only_this=False) for queue in queues)
    return {address for address in found if address is not None}


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
        self.instance.on_fatal.connect(lambda error: self.failed.set())
        self._closing = False
        self._retry_route = RetryRoute(self.instance.routes, names.retry_topic(group))
        self._rebalancing: asyncio.Task[None] | None = None

    @property
    def group(self) -> str:
        """As programs name it."""
        return unwrap(self._config.namespace, self._group)

    async def start(self) -> None:
        """Become a member and begin."""
        raise NotImplementedError

    async def abandon(self) -> None:
        """After a start that failed."""
        raise NotImplementedError

    async def close(self, timeout_s: float, *, in_all: bool = False) -> None:
        """End everything that ``start`` began. ``in_all``: a program gave this time, and not the settings."""
        raise NotImplementedError

    def close_threads(self) -> None:
        """Let go of the threads; what they still run ends by itself."""
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
        instance.on_ids_changed(self._group, self._members_changed)
        instance.presence.on_connected.connect(self._connected)
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
        """The content of this member's heartbeats."""
        raise NotImplementedError

    def _members_changed(self) -> None:
        """A broker says so."""
        self.rebalancer.wake()

    def _connected(self, address: str) -> None:
        """A broker was reached, maybe again: it may have forgotten the members, or made the group's retry topic."""
        self.rebalancer.wake()
        if names.retry_topic(self._group) in self._subscriptions.topics:
            self._retry_route.connected(address)
            self.instance.spawn(self._find_retries(), "retry-route")

    async def _find_retries(self) -> None:
        if await self._retry_route.complete(self._config.reconnect_interval_ms / 1000):
            self.rebalancer.wake()

    async def _stop_pulling(self, most_s: float = inf) -> None:
        """A round under way may hold a commit: it gets the time of a call to end, at most so long."""
        self.rebalancer.stop()
        if self._rebalancing is not None:
            timeout_s = min(self._config.consumer_progress_timeout_ms / 1000, most_s)
            await asyncio.wait((self._rebalancing,), timeout=timeout_s)
            await cancel([self._rebalancing])
        await cancel([owned.fetching for owned in self.rebalancer.assignment if owned.fetching is not None])

    async def _persist(self) -> None:
        """Every interval, changed or not: a broker that lost its table hears the offsets again."""
        interval_s = self._config.persist_consumer_offset_interval_ms / 1000
        while True:
            await asyncio.sleep(aligned_delay(interval_s))
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

    async def _queues(self, topic: str) -> SharedQueues:
        """What a round of allocation shares out. Raises RouteNotFound while no broker offers a readable queue."""
        route = await self.instance.routes.get(topic)
        queues = route.subscribe_queues()
        if not queues:
            raise RouteNotFound(f"no broker offers readable queues of topic {topic!r}")
        return SharedQueues(queues, self.instance.namesrv.address, route.digest)

    def _journal(self, state: str) -> None:
        self.instance.journal.write(State(state=state, client_id=self.instance.client_id, group=self._group))


async def cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel and wait until all have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
