"""The parts of a started lite pull consumer. Source: RocketMQ ``DefaultLitePullConsumerImpl``."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic

import msgspec
from dejamq_proto.client_pb2 import ConsumerData
from dejamq_proto.codes import RouteNotFound
from dejamq_proto.running_pb2 import ClientInfo

from dejamq.clients.running_info import add_consumer, add_queues, client_info
from dejamq.handling.subscriptions import Subscriptions
from dejamq.lite.rebalancer import ChosenQueues, LiteRebalancer, LiteStart
from dejamq.lite.shelf import Shelf, polled
from dejamq.net.instance import HURRIED_S
from dejamq.net.routes import TopicRoute
from dejamq.rebalance.broadcasting import LocalOffsetStore, everything
from dejamq.rebalance.consume_from import ConsumeFrom, MessageModel
from dejamq.rebalance.local_offsets import LocalOffsets
from dejamq.rebalance.membership import Membership
from dejamq.rebalance.rebalancer import RebalancerParts
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import BrokerCalls, context_of
from dejamq.receiving.counts import QueueCounts
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.fetcher import Fetcher
from dejamq.receiving.hooks import Filters
from dejamq.receiving.observer import ConsumerObserver
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.values.allocation import Strategy
from dejamq.values.config import LitePullConfig
from dejamq.values.message import MessageQueue

log = logging.getLogger("dejamq.clients.consumer")


class LiteOptions(msgspec.Struct, frozen=True):
    """The program's choices, besides the settings."""

    group: str
    config: LitePullConfig
    model: MessageModel
    consume_from: ConsumeFrom
    timestamp_ms: int
    allocation: tuple[str, Strategy]


class LiteOffsets(RemoteOffsetStore):
    """Commits travel with no pull (RocketMQ sets no commit flag there), only by timer, drop, shutdown and on demand."""

    def piggyback(self, owned: OwnedQueue, seq: int) -> int | None:
        """Never."""
        return None


class LiteRunning(Membership):
    """Made in the loop that will own it; ``close`` ends everything that ``start`` began."""

    def __init__(
        self, options: LiteOptions, subscriptions: Subscriptions, chosen: ChosenQueues, paused: set[MessageQueue],
        observer: ConsumerObserver | None = None,
    ) -> None:  # fmt: skip
        super().__init__(options.group, options.config, subscriptions)
        broadcasting = options.model is MessageModel.BROADCASTING
        self._options, self._chosen, self.config = options, chosen, options.config
        self._context = context = context_of(self.instance, options.config, options.group, observer)
        self.deliveries = Deliveries(context, kind="poll")
        self._remote = LiteOffsets(context, self.deliveries)
        self._local = self._local_offsets() if broadcasting else None
        self.offsets = self._local or self._remote
        self.shelf = Shelf(
            self.deliveries, options.config.pull_threshold_for_all,
            lambda: sum(len(owned.process_queue) for owned in self.rebalancer.assignment), paused,
        )  # fmt: skip
        self.fetcher = Fetcher(
            context, self.deliveries, self.offsets, self.shelf.put, moves=self,
            cached_bytes=lambda: self.rebalancer.assignment.cached_bytes,
            queue_count=lambda: len(self.rebalancer.assignment.owned),
            counts=lambda queue: QueueCounts(), filters=Filters(), lite=True,
        )  # fmt: skip
        start = LiteStart(context, self.offsets, options.consume_from, options.timestamp_ms, chosen.seeks)
        parts = RebalancerParts(
            subscriptions, self.deliveries, self.offsets, start, self.fetcher, self._queues, self.instance.spawn,
            broadcasting=broadcasting, holding=self.shelf.queue,
        )  # fmt: skip
        allocation = ("broadcasting", everything) if broadcasting else options.allocation
        self.rebalancer = LiteRebalancer(context, parts, allocation, chosen)
        self.instance.on_fatal.connect(lambda error: self.shelf.arrived.set())
        self.instance.commands.info[options.group] = self._info
        self._seen: dict[str, frozenset[MessageQueue]] = {}

    async def start(self) -> None:
        """Routes, then the heartbeat that makes this client a member, then the first round."""
        if self._local is not None:
            await self._local.open()
        for topic in self._chosen.listeners:
            await self._watch(topic)
        self.instance.routes.on_change.append(self._route_changed)
        await self._join()
        self._begin_rounds()

    async def abandon(self) -> None:
        """After a start that failed."""
        await self.instance.close()
        self.close_threads()

    async def close(self, timeout_s: float, *, in_all: bool = False) -> None:
        """Pull no more, send what is committed, leave. Every step is taken even when one before it fails.

        Each has what is left of the time, and half a second at least.
        """
        deadline = monotonic() + timeout_s
        self._closing = True
        self._journal("closing")
        self.shelf.arrived.set()
        async with AsyncExitStack() as stack:
            stack.callback(self.close_threads)
            stack.push_async_callback(lambda: self.instance.close(left_until(deadline)))
            stack.push_async_callback(lambda: self._release_all(left_until(deadline)))
            stack.callback(self.deliveries.close)
            stack.push_async_callback(lambda: self._stop_pulling(left_until(deadline)))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The topic's readable queues. Raises RouteNotFound, BrokerUnavailable."""
        return (await self.instance.routes.get(topic)).subscribe_queues()

    async def link(self, queue: MessageQueue) -> BrokerCalls:
        """The connection to a queue's broker, whether or not the topic is consumed here."""
        await self.instance.routes.get(queue.topic)
        return self._context.link(queue.broker_name)

    async def commit(self, owned: OwnedQueue, offset: int) -> None:
        """Send one offset and wait for the broker's word, or write it. Raises DejamqError."""
        if self._local is not None:
            await self._local.commit(owned, "lite", offset=offset)
        else:
            await self._remote.send(owned, offset, "lite")
        polled(owned).acknowledged = offset

    async def load(self, queue: MessageQueue) -> int | None:
        """The committed offset of any queue, None without a commit. Raises DejamqError."""
        await self.instance.routes.get(queue.topic)
        return await self.offsets.load(queue)

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

    def forget(self, topic: str) -> None:
        """As the base; a listener goes on to hear of the topic."""
        super().forget(topic)
        if topic in self._chosen.listeners:
            self.instance.routes.watch(topic)

    async def watch(self, topic: str) -> None:
        """A listener came for this topic."""
        await self._watch(topic)

    async def _watch(self, topic: str) -> None:
        """Present queues are not reported; later changes are."""
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
        except BaseException:
            log.exception("queues_listener_failed topic=%s", route.topic)

    def moved(self, owned: OwnedQueue, offset: int) -> None:
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

    def reset(self, owned: OwnedQueue, offset: int) -> None:
        """An operator moved the group here: what is held reaches nobody, nothing of before is committed any more."""
        name = f"{owned.queue.topic}:{owned.queue.broker_name}:{owned.queue.queue_id}"
        log.warning("offset_reset queue=%s from=%d to=%d", name, owned.next_offset, offset)
        self.rebalancer.reopen(owned, offset, "reset")

    def _local_offsets(self) -> LocalOffsetStore:
        directory = self.config.local_offset_store_dir
        file = LocalOffsets(self.instance.client_id, self._group, Path(directory) if directory else None)
        return LocalOffsetStore(self._context, self.deliveries, file)

    def close_threads(self) -> None:
        """Let go of the thread of local offsets."""
        if self._local is not None:
            self._local.close()

    async def _release_all(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.rebalancer.release_all("shutdown")
        except TimeoutError:
            log.warning("offsets_not_committed group=%s within %.1f s", self._group, timeout_s)

    def _info(self, stacks: bool) -> ClientInfo:
        """For an operator who asks through a broker."""
        assignment = self.rebalancer.assignment
        state = {"paused_queues": len(self.shelf.paused), "cached_bytes": assignment.cached_bytes}
        info = client_info(self.instance, state=state, stacks=stacks)
        add_consumer(info, self._consumer_data())
        add_queues(info, assignment, self.instance.clock.age_s)
        return info

    def _consumer_data(self) -> ConsumerData:
        manual: Sequence[str] = ("manual",) if self._chosen.queues is not None else self._options.allocation[:1]
        return ConsumerData(
            group=self._group, consume_type="PULL", message_model=self._options.model.value,
            consume_from=self._options.consume_from.value, subscriptions=self._subscriptions.wire(),
            allocation=manual[0],
        )  # fmt: skip


def left_until(deadline: float) -> float:
    """Seconds until that time (monotonic), and what brokers that answer need at least."""
    return max(deadline - monotonic(), HURRIED_S)
