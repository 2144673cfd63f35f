"""The parts of a started lite pull consumer. Source: RocketMQ ``DefaultLitePullConsumerImpl``."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import msgspec
from dejamq_proto.client_pb2 import ConsumerData
from dejamq_proto.codes import RouteNotFound

from dejamq.allocation import Strategy
from dejamq.assignment import OwnedQueue
from dejamq.consume_from import ConsumeFrom, MessageModel, StartRule
from dejamq.context import Context, Link, context_of
from dejamq.deliveries import Deliveries
from dejamq.fetcher import Fetcher
from dejamq.lite_config import LitePullConfig
from dejamq.lite_shelf import Shelf, polled
from dejamq.membership import Membership
from dejamq.message import MessageQueue
from dejamq.offset_store import RemoteOffsetStore
from dejamq.rebalancer import Parts, Queues, Rebalancer
from dejamq.routes import TopicRoute
from dejamq.subscriptions import Subscriptions

log = logging.getLogger("dejamq.consumer")

QueuesListener = Callable[[str, tuple[MessageQueue, ...]], object]


class LiteOptions(msgspec.Struct, frozen=True):
    """What a program chose, besides the settings."""

    group: str
    config: LitePullConfig
    consume_from: ConsumeFrom
    timestamp_ms: int
    allocation: tuple[str, Strategy]


class Chosen(msgspec.Struct):
    """What a program wants of queues by their name, whether or not they are owned at the moment."""

    queues: frozenset[MessageQueue] | None = None
    """By ``assign``; None where topics are subscribed."""
    seeks: dict[MessageQueue, int] = {}
    """Where queues that are not open yet shall begin."""
    listeners: dict[str, QueuesListener] = {}
    """By topic, for changes of its queues."""


class LiteOffsets(RemoteOffsetStore):
    """Commits travel with no pull (RocketMQ sets no commit flag there), only by timer, drop, shutdown and on demand."""

    def piggyback(self, owned: OwnedQueue, seq: int) -> int | None:
        """Never."""
        return None


class LiteStart(StartRule):
    """Where the program wants a queue to begin comes before everything else."""

    seeks: dict[MessageQueue, int]

    async def start_of(self, queue: MessageQueue) -> tuple[int, str]:
        """As the base; a seek that comes while the broker is asked counts as well."""
        found = None if queue in self.seeks else await super().start_of(queue)
        wanted = self.seeks.pop(queue, None)
        if wanted is not None:
            return wanted, "seek"
        assert found is not None
        return found


class LiteRebalancer(Rebalancer):
    """Allocates like a push consumer's, or opens the queues that the program assigned, and no others."""

    def __init__(self, context: Context, parts: Parts, allocation: tuple[str, Strategy], chosen: Chosen) -> None:
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
        await self._release([one for one in self.assignment if one.queue not in wanted], "reassigned")
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
            self._strategy_name = "manual"
            self._journal(topic, Queues((), "", ""), "", [], mine)
        self._told_of = wanted


class LiteRunning(Membership):
    """Made in the loop that will own it; ``close`` ends everything that ``start`` began."""

    def __init__(self, options: LiteOptions, subscriptions: Subscriptions, chosen: Chosen) -> None:
        super().__init__(options.group, options.config, subscriptions)
        self._options, self._chosen, self.config = options, chosen, options.config
        self._context = context = context_of(self.instance, options.config, options.group)
        self.deliveries = Deliveries(context, kind="poll")
        self.offsets = self._remote = LiteOffsets(context, self.deliveries)
        self.shelf = Shelf(self.deliveries, options.config.pull_threshold_for_all)
        self.fetcher = Fetcher(context, self.deliveries, self.offsets, self.shelf.put)
        start = LiteStart(context, self.offsets, options.consume_from, options.timestamp_ms)
        start.seeks = chosen.seeks
        parts = Parts(
            subscriptions, self.deliveries, self.offsets, start, self.fetcher, self._queues, self.instance.spawn,
            holding=self.shelf.queue,
        )  # fmt: skip
        self.rebalancer = LiteRebalancer(context, parts, options.allocation, chosen)
        self.shelf.count = lambda: sum(len(owned.process_queue) for owned in self.rebalancer.assignment)
        self.fetcher.cached_bytes = lambda: self.rebalancer.assignment.cached_bytes
        self.fetcher.queue_count = lambda: len(self.rebalancer.assignment.owned)
        self.fetcher.on_moved, self.fetcher.lite = self._moved, True
        self.instance.on_fatal = self._fail
        self._seen: dict[str, frozenset[MessageQueue]] = {}

    async def start(self) -> None:
        """Routes, then the heartbeat that makes this client a member, then the first round."""
        for topic in self._chosen.listeners:
            await self._watch(topic)
        self.instance.routes.on_change.append(self._route_changed)
        await self._join()
        self._begin_rounds()

    async def close(self, timeout_s: float) -> None:
        """Pull no more, send what is committed, leave. Every step is taken even when one before it fails."""
        self._closing = True
        self._journal("closing")
        self.shelf.arrived.set()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.instance.close)
            stack.push_async_callback(self._release_all, timeout_s)
            stack.callback(self.deliveries.close)
            stack.push_async_callback(self._stop_pulling)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The topic's readable queues. Raises RouteNotFound, BrokerUnavailable."""
        return (await self.instance.routes.get(topic)).subscribe_queues()

    async def link(self, queue: MessageQueue) -> Link:
        """The connection to a queue's broker, whether or not the topic is consumed here."""
        await self.instance.routes.get(queue.topic)
        return self._context.link(queue.broker_name)

    async def commit(self, owned: OwnedQueue, offset: int) -> None:
        """Send one offset and wait for the broker's word. Raises DejamqError."""
        await self._remote.send(owned, offset, "lite")
        polled(owned).acknowledged = offset

    @property
    def closing(self) -> bool:
        """Nothing is handed out any more: closing began, or a background task failed."""
        return self._closing or self.failed.is_set()

    def seek(self, owned: OwnedQueue, offset: int) -> None:
        """Go on from this offset: a new ownership, so that what is held or on its way reaches nobody."""
        committed = polled(owned).committed
        self.rebalancer.reopen(owned, offset, "seek")
        again = self.rebalancer.assignment.owned.get(owned.queue)
        if again is not None:
            polled(again).committed = committed

    async def watch(self, topic: str) -> None:
        """A listener came for this topic."""
        await self._watch(topic)

    async def _watch(self, topic: str) -> None:
        """What its queues are now is not told; what they become is."""
        self.instance.routes.watch(topic)
        try:
            self._seen[topic] = frozenset(await self.queues(topic))
        except RouteNotFound:
            self._seen[topic] = frozenset()

    def _route_changed(self, route: TopicRoute) -> None:
        listener, queues = self._chosen.listeners.get(route.topic), route.subscribe_queues()
        before = self._seen.get(route.topic)
        if listener is None or before is None or before == frozenset(queues):
            return
        self._seen[route.topic] = frozenset(queues)
        try:
            listener(route.topic, queues)
        except Exception:
            log.exception("queues_listener_failed topic=%s", route.topic)

    def _moved(self, owned: OwnedQueue, offset: int) -> None:
        """The broker corrected the offset to pull from.

        Forwards, as its oldest messages expired: what is held is still good. Backwards, as its newest are lost: what
        comes now bears offsets that were thought done, so all begins anew.
        """
        name = f"{owned.queue.topic}:{owned.queue.broker_name}:{owned.queue.queue_id}"
        log.warning("offset_corrected queue=%s from=%d to=%d", name, owned.next_offset, offset)
        if offset > owned.next_offset:
            owned.next_offset = offset
        else:
            self.rebalancer.reopen(owned, offset, "illegal")

    def _fail(self, error: BaseException) -> None:
        self.failed.set()
        self.shelf.arrived.set()

    async def _release_all(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.rebalancer.release_all("shutdown")
        except TimeoutError:
            log.warning("offsets_not_committed group=%s within %.1f s", self._group, timeout_s)

    def _consumer_data(self) -> ConsumerData:
        manual: Sequence[str] = ("manual",) if self._chosen.queues is not None else self._options.allocation[:1]
        return ConsumerData(
            group=self._group, consume_type="PULL", message_model=MessageModel.CLUSTERING.value,
            consume_from=self._options.consume_from.value, subscriptions=self._subscriptions.wire(),
            allocation=manual[0],
        )  # fmt: skip
