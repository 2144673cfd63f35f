"""The parts of a started consumer, and the order in which they begin and end."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import msgspec
from dejamq_proto import names
from dejamq_proto.client_pb2 import ConsumerData
from dejamq_proto.codes import ClientClosed, RouteNotFound
from dejamq_proto.events import State

from dejamq.allocation import Strategy
from dejamq.config import ConsumerConfig
from dejamq.consume_from import ConsumeFrom, MessageModel, StartRule
from dejamq.context import Context, context_of
from dejamq.deliveries import Deliveries
from dejamq.dispatcher import Dispatcher
from dejamq.fetcher import Fetcher
from dejamq.instance import Instance
from dejamq.locks import QueueLocks
from dejamq.offset_store import RemoteOffsetStore
from dejamq.ordered import OrderedDispatcher, OrderedRules
from dejamq.rebalancer import Parts, Queues, Rebalancer
from dejamq.retry_send import UNLIMITED, RetrySend
from dejamq.send_back import SendBack
from dejamq.subscriptions import Subscriptions

log = logging.getLogger("dejamq.consumer")


class Options(msgspec.Struct, frozen=True):
    """What a program chose for its consumer, besides the settings."""

    group: str
    config: ConsumerConfig
    model: MessageModel
    consume_from: ConsumeFrom
    timestamp_ms: int
    allocation: tuple[str, Strategy]
    max_concurrency: int
    max_reconsume_times: int | None
    ordered: bool = False
    auto_commit: bool = True


class Running:
    """Made in the loop that will own it; ``close`` ends everything that ``start`` began.

    A start that fails is ended by whoever called it, with ``instance.close``: nothing else has begun by then.
    """

    def __init__(self, options: Options, subscriptions: Subscriptions) -> None:
        self._options, self._config, self._subscriptions = options, options.config, subscriptions
        self.instance = Instance(options.config, role="consumer")
        self.failed = asyncio.Event()
        self.instance.on_fatal = lambda error: self.failed.set()
        context = context_of(self.instance, options.config, options.group)
        self.deliveries = Deliveries(context)
        self.dispatcher, self.locks = self._ordered(context) if options.ordered else self._concurrent(context)
        self.offsets = RemoteOffsetStore(context, self.deliveries)
        self.fetcher = Fetcher(context, self.deliveries, self.offsets, self.dispatcher.submit)
        start = StartRule(context, self.offsets, options.consume_from, options.timestamp_ms)
        parts = Parts(
            subscriptions, self.deliveries, self.offsets, start, self.fetcher, self._queues, self.instance.spawn,
            self.locks,
        )  # fmt: skip
        self.rebalancer = Rebalancer(context, parts, *options.allocation)
        if self.locks is not None:
            self.locks.on_lost = self.rebalancer.wake
            self.fetcher.in_order(self.locks.held)
        self.fetcher.cached_bytes = lambda: self.rebalancer.assignment.cached_bytes
        self.fetcher.on_illegal = self.rebalancer.wake
        self._closing = False
        self._rebalancing: asyncio.Task[None] | None = None
        self._workers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Routes, then the heartbeat that makes this client a member, then the first round."""
        instance, spawn = self.instance, self.instance.spawn
        instance.register_consumer(self._consumer_data)
        instance.on_ids_changed(self._options.group, self.rebalancer.wake)
        instance.presence.on_connected = lambda address: self._connected()
        await instance.start()
        for topic in self._subscriptions.topics:
            await self._learn(topic)
        await instance.heartbeat()
        if self._closing:
            raise ClientClosed("the consumer was closed while it started")
        self._workers = [spawn(self.dispatcher.work(), f"worker-{n}") for n in range(self._options.max_concurrency)]
        self._rebalancing = spawn(self.rebalancer.run(), "rebalance")
        if self.locks is not None:
            spawn(self.locks.run(), "locks")
        if isinstance(self.dispatcher, Dispatcher):
            spawn(self.dispatcher.overdue.run(lambda: self.rebalancer.assignment), "overdue")
        spawn(self._persist(), "persist")

    def learn(self, topic: str) -> None:
        """A topic was subscribed while running."""
        self.rebalancer.settled.clear()
        self.instance.spawn(self._learn_late(topic), f"learn-{topic}")

    def forget(self, topic: str) -> None:
        """A topic was unsubscribed while running."""
        self.instance.routes.unwatch(topic)
        self.instance.presence.wake()
        self.rebalancer.wake()

    def suspend(self) -> None:
        """Pull no more and keep the queues; no rounds meanwhile."""
        self.rebalancer.suspended = True
        self.fetcher.suspend()
        self._journal("suspended")

    def resume(self) -> None:
        """Pull and allocate again."""
        self.rebalancer.suspended = False
        self.fetcher.resume()
        self.rebalancer.wake()
        self._journal("resumed")

    async def close(self, timeout_s: float) -> None:
        """Stop pulling, let handlers end, commit, leave. Every step is taken even when one before it fails.

        The order is RocketMQ's (DefaultMQPushConsumerImpl.shutdown), with one difference: handlers are waited
        for before the offsets are committed, so that what they finished counts.
        """
        self._closing = True
        self._journal("closing")
        async with AsyncExitStack() as stack:
            stack.callback(self.dispatcher.close)
            stack.push_async_callback(self.instance.close)
            stack.push_async_callback(self.rebalancer.release_all, "shutdown")
            stack.callback(self.deliveries.close)
            stack.push_async_callback(self._stop_workers, timeout_s)
            stack.push_async_callback(self._stop_pulling)

    def _concurrent(self, context: Context) -> tuple[Dispatcher | OrderedDispatcher, QueueLocks | None]:
        options = self._options
        send_back = SendBack(context, self.deliveries, options.max_reconsume_times, self._retries(context))
        workers = options.max_concurrency
        return Dispatcher(context, self._subscriptions, self.deliveries, send_back, max_concurrency=workers), None

    def _ordered(self, context: Context) -> tuple[Dispatcher | OrderedDispatcher, QueueLocks | None]:
        options, retries = self._options, self._retries(context)
        most = UNLIMITED if options.max_reconsume_times is None else options.max_reconsume_times
        rules = OrderedRules(options.max_concurrency, options.auto_commit, most)
        dispatcher = OrderedDispatcher(context, self._subscriptions, self.deliveries, retries, rules)
        dispatcher.locks = QueueLocks(context, lambda: self.rebalancer.assignment, dispatcher.quiet)
        return dispatcher, dispatcher.locks

    def _retries(self, context: Context) -> RetrySend:
        retry_topic = names.retry_topic(self._options.group)
        return RetrySend(context, self.deliveries, lambda: self.instance.routes.publish_queues(retry_topic))

    def _connected(self) -> None:
        """A broker may have forgotten the members and their locks: renew before others ask for what is ours."""
        if self.locks is not None:
            self.locks.wake()
        self.rebalancer.wake()

    async def _stop_pulling(self) -> None:
        """A round under way may hold a commit: it gets the time of a call to end."""
        self.rebalancer.stop()
        if self._rebalancing is not None:
            timeout_s = self._config.consumer_progress_timeout_ms / 1000
            await asyncio.wait((self._rebalancing,), timeout=timeout_s)
            await _cancel([self._rebalancing])
        await _cancel([owned.fetching for owned in self.rebalancer.assignment if owned.fetching is not None])

    async def _stop_workers(self, timeout_s: float) -> None:
        began_s = time.monotonic()
        if not await self.dispatcher.drain(timeout_s):
            waited_s = time.monotonic() - began_s
            log.warning("handlers_cancelled group=%s after %.1f s", self._options.group, waited_s)
        await _cancel(self._workers)

    async def _persist(self) -> None:
        """Every interval, changed or not: a broker that lost its table hears the offsets again."""
        interval_s = self._config.persist_consumer_offset_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
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
        await self._learn(topic)
        await self.instance.heartbeat()
        self.rebalancer.wake()

    async def _queues(self, topic: str) -> Queues:
        """What a round of allocation shares out. Raises RouteNotFound while no broker offers a readable queue."""
        route = await self.instance.routes.get(topic)
        queues = route.subscribe_queues()
        if not queues:
            raise RouteNotFound(f"no broker offers readable queues of topic {topic!r}")
        return Queues(queues, self.instance.namesrv.address, route.digest)

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group=self._options.group, consume_type="PUSH", message_model=self._options.model.value,
            consume_from=self._options.consume_from.value, subscriptions=self._subscriptions.wire(),
            ordered=self._options.ordered, allocation=self._options.allocation[0],
        )  # fmt: skip

    def _journal(self, state: str) -> None:
        client_id, group = self.instance.client_id, self._options.group
        self.instance.journal.write(State(state=state, client_id=client_id, group=group))


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
