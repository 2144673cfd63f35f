"""Where topics are: routes as values, read from the name server when needed and every 30 s.

Source: RocketMQ ``MQClientInstance``, ``TopicRouteData``, ``TopicPublishInfo``.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from dejamq_proto.codes import ClientClosed, DejamqError, RouteNotFound
from dejamq_proto.names import AUTO_CREATE_TOPIC, MASTER_ID, PERM_READ, PERM_WRITE
from dejamq_proto.namesrv_pb2 import GetRouteResponse
from dejamq_proto.texts import number_of

from dejamq.net.waits import aligned_delay
from dejamq.values.message import MessageQueue

log = logging.getLogger("dejamq")
MOST_QUEUES = 65_536
"""Of one topic at one broker, in a configuration that people write."""


class BrokerQueues(msgspec.Struct, frozen=True, order=True):
    """The queues of a topic at one broker name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int


class TopicRoute(msgspec.Struct, frozen=True):
    """One topic's route: an immutable value, equal when nothing changed.

    RocketMQ: TopicRouteData. Sorted by broker name, so that the same facts from two name servers make equal
    values.
    """

    topic: str
    queues: tuple[BrokerQueues, ...] = ()
    addresses: Mapping[str, Mapping[int, str]] = {}  # broker name -> broker id -> host:port
    order_conf: str = ""
    from_template: bool = False
    """Nobody has the topic yet; this is the template topic's route under its name."""

    @classmethod
    def read(cls, topic: str, answer: GetRouteResponse) -> "TopicRoute":
        """From a name server's answer."""
        queues = tuple(sorted(
            BrokerQueues(q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in answer.queues
        ))  # fmt: skip
        brokers = sorted(answer.brokers, key=lambda broker: broker.broker_name)
        addresses = {broker.broker_name: dict(sorted(broker.addresses.items())) for broker in brokers}
        return cls(topic, queues, addresses, answer.order_conf)

    def as_template_for(self, topic: str, queue_nums: int) -> "TopicRoute":
        """The route for publishing to a topic until it exists: the template's brokers, few queues."""
        queues = tuple(
            msgspec.structs.replace(
                q,
                read_queue_nums=min(queue_nums, q.read_queue_nums),
                write_queue_nums=min(queue_nums, q.read_queue_nums),
            )
            for q in self.queues
        )
        return TopicRoute(topic, queues, self.addresses, from_template=True)

    def publish_queues(self) -> tuple[MessageQueue, ...]:
        """Queues to send to, sorted: the order configuration's, else those of writable brokers that have a master.

        RocketMQ: MQClientInstance.topicRouteData2TopicPublishInfo. A broker without master is passed over,
        because only id 0 takes messages.
        """
        if self.order_conf:
            return tuple(self._ordered_queues())
        return tuple(
            MessageQueue(self.topic, q.broker_name, queue_id)
            for q in self.queues
            if q.perm & PERM_WRITE and MASTER_ID in self.addresses.get(q.broker_name, {})
            for queue_id in range(q.write_queue_nums)
        )

    def subscribe_queues(self) -> tuple[MessageQueue, ...]:
        """Queues to consume from, sorted; a readable broker counts whether or not its master is there."""
        if self.from_template:
            return ()
        return tuple(
            MessageQueue(self.topic, q.broker_name, queue_id)
            for q in self.queues
            if q.perm & PERM_READ
            for queue_id in range(q.read_queue_nums)
        )

    def _ordered_queues(self) -> list[MessageQueue]:
        found = []
        for piece in filter(None, self.order_conf.split(";")):
            name, _, number = piece.partition(":")
            # a configuration written by hand may have a slip; the rest still holds
            queues = number_of(number, MOST_QUEUES) or 0
            found += [MessageQueue(self.topic, name, queue_id) for queue_id in range(queues)]
        return found

    @property
    def digest(self) -> str:
        """Equal where the same queues are shared out, in every process: 16 hex digits.

        Addresses do not count: they may be others for each client, and no allocation looks at them.
        """
        text = repr([(q.broker_name, q.read_queue_nums) for q in self.queues if q.perm & PERM_READ])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class RouteSource(Protocol):
    """A name server, or what stands for one in tests."""

    async def get_route(self, topic: str) -> GetRouteResponse: ...


class Routes:
    """The routes this client knows. Owned by the event loop; ``run`` is its refresh task.

    Known routes stay known when a refresh fails: an unreachable name server stops no client (RocketMQ does the
    same).
    """

    def __init__(self, source: RouteSource, *, refresh_interval_ms: float, default_queue_nums: int = 4) -> None:
        self._source = source
        self._refresh_interval_ms, self._default_queue_nums = refresh_interval_ms, default_queue_nums
        self._known: dict[str, TopicRoute] = {}
        self._brokers: dict[str, Mapping[int, str]] = {}
        self._watched: set[str] = set()
        self._reading: dict[tuple[str, bool], asyncio.Task[TopicRoute]] = {}
        self.on_change: list[Callable[[TopicRoute], None]] = []
        """Called with each new route that differs from the one before."""

    def known(self, topic: str) -> TopicRoute | None:
        """The route as last read; None before the first success."""
        return self._known.get(topic)

    async def get(self, topic: str) -> TopicRoute:
        """The topic's route, read now if it is not known. Raises RouteNotFound, BrokerUnavailable."""
        return self._known.get(topic) or await self.refresh(topic)

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Queues to send to; for a topic that nobody has, those its creation will give. Raises RouteNotFound."""
        route = self._known.get(topic) or await self.refresh(topic, creating=True)
        queues = route.publish_queues()
        if not queues:
            raise RouteNotFound(
                f"no broker of topic {topic!r} accepts messages: no master is up, or none may be written"
            )
        return queues

    async def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Queues to consume from. Raises RouteNotFound."""
        return (await self.get(topic)).subscribe_queues()

    def watch(self, topic: str) -> None:
        """Keep the topic's route fresh although it may not exist yet."""
        self._watched.add(topic)

    def unwatch(self, topic: str) -> None:
        """Forget the topic and ask no more."""
        self._watched.discard(topic)
        self._known.pop(topic, None)

    async def refresh(self, topic: str, *, creating: bool = False) -> TopicRoute:
        """Ask the name server now; one query at a time for a topic. The known route stays when the query fails.

        ``creating`` takes the template topic's brokers where nobody has the topic. Raises RouteNotFound,
        BrokerUnavailable, ClientClosed.
        """
        self._watched.add(topic)
        question = (topic, creating)
        if question not in self._reading:
            reading = asyncio.get_running_loop().create_task(self._read(topic, creating))
            self._reading[question] = reading
            reading.add_done_callback(lambda done: self._read_ended(question, done))
        reading = self._reading[question]
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            if reading.cancelled() and not _cancelling():  # by close, not by who asked
                raise ClientClosed("the client was closed while it asked for the route") from None
            raise

    def master_address(self, broker_name: str) -> str | None:
        """Where the broker's master is reached, None while no route names one."""
        return self.address(broker_name, MASTER_ID)

    def address(self, broker_name: str, broker_id: int = MASTER_ID, *, only_this: bool = True) -> str | None:
        """Where this broker is reached; unless ``only_this``, another of the same name serves when it is away."""
        found = self.replica(broker_name, broker_id)
        return found[1] if found and (found[0] == broker_id or not only_this) else None

    def replica(self, broker_name: str, broker_id: int) -> tuple[int, str] | None:
        """(id, address) of this replica, or of another one of its name when it is away; None when all are.

        The route that was read last tells: another topic's may still name a master that is gone. Source: RocketMQ
        ``brokerAddrTable``.
        """
        ids = self._brokers.get(broker_name)
        if not ids or not any(broker_name in route.addresses for route in self._known.values()):
            return None
        return (broker_id, ids[broker_id]) if broker_id in ids else next(iter(ids.items()))

    def addresses(self, *, masters_only: bool) -> set[str]:
        """Every broker address that a known route names."""
        return {
            address
            for route in self._known.values()
            for ids in route.addresses.values()
            for broker_id, address in ids.items()
            if not masters_only or broker_id == MASTER_ID
        }

    async def run(self) -> None:
        """Refresh all watched topics each interval until cancelled."""
        while True:
            await asyncio.sleep(aligned_delay(self._refresh_interval_ms / 1000))
            await asyncio.gather(*map(self._refresh_watched, self._watched))

    async def _refresh_watched(self, topic: str) -> None:
        try:
            await self.refresh(topic, creating=self._from_template(topic))
        except DejamqError as error:
            log.warning("route_refresh_failed topic=%s reason=%s", topic, error)

    async def close(self) -> None:
        """End reads under way. May be called twice."""
        tasks = tuple(self._reading.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _read_ended(self, question: tuple[str, bool], task: asyncio.Task[TopicRoute]) -> None:
        del self._reading[question]
        if not task.cancelled():
            task.exception()  # the waiting caller gets it; with none waiting it is not worth a warning

    def _from_template(self, topic: str) -> bool:
        route = self._known.get(topic)
        return route is not None and route.from_template

    async def _read(self, topic: str, creating: bool) -> TopicRoute:
        """Ask, fall back to the template where creating is wanted, tell the listeners when the route differs."""
        try:
            route = TopicRoute.read(topic, await self._source.get_route(topic))
        except RouteNotFound as missing:
            if not creating:
                raise
            route = await self._template(topic, missing)
        self._brokers |= route.addresses
        if route != self._known.get(topic):
            self._known[topic] = route
            for listener in self.on_change:
                listener(route)
        return route

    async def _template(self, topic: str, missing: RouteNotFound) -> TopicRoute:
        """The template topic's brokers under the topic's name.

        Raises the first failure when there is no template either.
        """
        try:
            answer = await self._source.get_route(AUTO_CREATE_TOPIC)
        except RouteNotFound:
            raise missing from None
        return TopicRoute.read(AUTO_CREATE_TOPIC, answer).as_template_for(topic, self._default_queue_nums)


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
