"""The parts of a started consumer, and the order in which they begin and end."""

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from dejamq_proto import names
from dejamq_proto.client_pb2 import ConsumerData

from dejamq.allocation import Strategy
from dejamq.broadcasting import Dropped, LocalOffsetStore, Unlocked, everything
from dejamq.claims import QueueClaims
from dejamq.config import ConsumerConfig
from dejamq.consume_from import ConsumeFrom, MessageModel, StartRule
from dejamq.context import Context, context_of
from dejamq.deliveries import Deliveries
from dejamq.dispatcher import Dispatcher
from dejamq.fetcher import Fetcher
from dejamq.handover import Handover
from dejamq.local_offsets import LocalOffsets
from dejamq.locks import QueueLocks
from dejamq.membership import Membership, cancel
from dejamq.offset_store import RemoteOffsetStore
from dejamq.ordered import GiveUp, OrderedDispatcher, OrderedRules
from dejamq.overdue import GiveBack
from dejamq.rebalancer import Parts, Rebalancer
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

    @property
    def broadcasting(self) -> bool:
        """Each member gets everything."""
        return self.model is MessageModel.BROADCASTING


class Running(Membership):
    """Made in the loop that will own it; ``close`` ends everything that ``start`` began.

    A start that fails is ended by whoever called it, with ``abandon``: no queue was opened by then.
    """

    def __init__(self, options: Options, subscriptions: Subscriptions) -> None:
        if options.broadcasting:
            options = msgspec.structs.replace(options, allocation=("broadcasting", everything))
        super().__init__(options.group, options.config, subscriptions)
        self._options = options
        context = context_of(self.instance, options.config, options.group)
        self.deliveries = Deliveries(context)
        self.dispatcher, self.locks = self._ordered(context) if options.ordered else self._concurrent(context)
        self._local = self._local_offsets(context) if options.broadcasting else None
        self.offsets = self._local or RemoteOffsetStore(context, self.deliveries)
        self.fetcher = Fetcher(context, self.deliveries, self.offsets, self.dispatcher.submit)
        graceful = options.config.graceful_handover and not options.broadcasting
        self.handover = self._handover(context) if graceful else None
        start = StartRule(context, self.offsets, options.consume_from, options.timestamp_ms)
        parts = Parts(
            subscriptions, self.deliveries, self.offsets, start, self.fetcher, self._queues, self.instance.spawn,
            self.locks, options.broadcasting, handover=self.handover,
        )  # fmt: skip
        self.rebalancer = Rebalancer(context, parts, *options.allocation)
        if self.locks is not None:
            self.locks.on_lost = self.rebalancer.wake
        if isinstance(self.dispatcher, OrderedDispatcher):
            self.fetcher.in_order(self.dispatcher.locks.held)
        self.fetcher.cached_bytes = lambda: self.rebalancer.assignment.cached_bytes
        self.fetcher.queue_count = lambda: len(self.rebalancer.assignment.owned)
        self.fetcher.on_illegal = self.rebalancer.wake
        self._workers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Routes, then the heartbeat that makes this client a member, then the first round."""
        spawn = self.instance.spawn
        if self._local is not None:
            await self._local.open()
        await self._join()
        self._workers = [spawn(self.dispatcher.work(), f"worker-{n}") for n in range(self._options.max_concurrency)]
        self._begin_rounds()
        if self.locks is not None:
            spawn(self.locks.run(), "locks")
        if self.handover is not None:
            spawn(self.handover.claims.run(), "claims")
        if isinstance(self.dispatcher, Dispatcher):
            spawn(self.dispatcher.overdue.run(lambda: self.rebalancer.assignment), "overdue")

    async def abandon(self) -> None:
        """After a start that failed."""
        await self.instance.close()
        self._close_threads()

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
            stack.callback(self._close_threads)
            stack.push_async_callback(self.instance.close)
            stack.push_async_callback(self.rebalancer.release_all, "shutdown")
            stack.callback(self.deliveries.close)
            stack.push_async_callback(self._stop_workers, timeout_s)
            stack.push_async_callback(self._stop_pulling)

    def _concurrent(self, context: Context) -> tuple[Dispatcher | OrderedDispatcher, QueueLocks | None]:
        options, workers = self._options, self._options.max_concurrency
        send_back: GiveBack = Dropped(context, self.deliveries)
        if not options.broadcasting:
            send_back = SendBack(context, self.deliveries, options.max_reconsume_times, self._retries(context))
        return Dispatcher(context, self._subscriptions, self.deliveries, send_back, max_concurrency=workers), None

    def _ordered(self, context: Context) -> tuple[Dispatcher | OrderedDispatcher, QueueLocks | None]:
        options = self._options
        retries: GiveUp = Dropped(context, self.deliveries) if options.broadcasting else self._retries(context)
        most = UNLIMITED if options.max_reconsume_times is None else options.max_reconsume_times
        rules = OrderedRules(options.max_concurrency, options.auto_commit, most)
        dispatcher = OrderedDispatcher(context, self._subscriptions, self.deliveries, retries, rules)
        if options.broadcasting:
            dispatcher.locks = Unlocked()
            return dispatcher, None
        dispatcher.locks = locks = QueueLocks(context, lambda: self.rebalancer.assignment, dispatcher.quiet)
        return dispatcher, locks

    def _handover(self, context: Context) -> Handover:
        claims = QueueClaims(context, self.deliveries)
        return Handover(context.config, claims, self.instance.spawn, lambda: self.rebalancer.wake())

    def _local_offsets(self, context: Context) -> LocalOffsetStore:
        directory = self._config.local_offset_store_dir
        file = LocalOffsets(context.client_id, context.group, Path(directory) if directory else None)
        return LocalOffsetStore(context, self.deliveries, file)

    def _close_threads(self) -> None:
        self.dispatcher.close()
        if self._local is not None:
            self._local.close()

    def _retries(self, context: Context) -> RetrySend:
        retry_topic = names.retry_topic(self._options.group)
        return RetrySend(context, self.deliveries, lambda: self.instance.routes.publish_queues(retry_topic))

    def _connected(self) -> None:
        """A broker may have forgotten the members and what they hold: renew before others ask for what is ours."""
        if self.locks is not None:
            self.locks.wake()
        if self.handover is not None:
            self.handover.claims.wake()
        self.rebalancer.wake()

    async def _stop_workers(self, timeout_s: float) -> None:
        began_s = time.monotonic()
        if not await self.dispatcher.drain(timeout_s):
            waited_s = time.monotonic() - began_s
            log.warning("handlers_cancelled group=%s after %.1f s", self._options.group, waited_s)
        await cancel(self._workers)

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group=self._options.group, consume_type="PUSH", message_model=self._options.model.value,
            consume_from=self._options.consume_from.value, subscriptions=self._subscriptions.wire(),
            ordered=self._options.ordered, allocation=self._options.allocation[0],
            graceful_handover=self.handover is not None,
        )  # fmt: skip
