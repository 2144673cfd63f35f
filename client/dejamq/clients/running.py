"""The parts of a started consumer, and the order in which they begin and end."""

import asyncio
import contextvars
import logging
import time
from pathlib import Path

import msgspec
from dejamq_proto import names
from dejamq_proto.client_pb2 import ConsumerData
from dejamq_proto.running_pb2 import ClientInfo

from dejamq.clients.direct import Direct
from dejamq.clients.options import Options
from dejamq.clients.running_info import add_consumer, add_queues, add_statistics, client_info
from dejamq.clients.shutdown import Shutdown, ShutdownMode
from dejamq.handling.dispatcher import Dispatcher
from dejamq.handling.ordered_dispatcher import GiveUp, OrderedDispatcher, OrderedRules
from dejamq.handling.overdue import GiveBack
from dejamq.handling.retry_send import UNLIMITED, RetrySend
from dejamq.handling.send_back import SendBack
from dejamq.handling.subscriptions import Subscriptions
from dejamq.net.waits import aligned_delay
from dejamq.rebalance.broadcasting import LocalOffsetStore, NoSendBack, Unlocked, everything
from dejamq.rebalance.consume_from import StartRule
from dejamq.rebalance.handover import Handover
from dejamq.rebalance.local_offsets import LocalOffsets
from dejamq.rebalance.locks import QueueLocks
from dejamq.rebalance.membership import Membership, cancel, handled_by
from dejamq.rebalance.rebalancer import Rebalancer, RebalancerParts
from dejamq.receiving.context import ConsumerContext, context_of
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.fetcher import Fetcher, GivingUp
from dejamq.receiving.hooks import Filters
from dejamq.receiving.observer import ConsumerObserver
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.receiving.statistics import SAMPLE_S, Statistics

log = logging.getLogger("dejamq.clients.consumer")
TOLD_AFTER_S = 1.0


class Running(Membership):
    """Made in the loop that will own it; ``close`` ends everything that ``start`` began.

    A start that fails is ended by whoever called it, with ``abandon``: no queue was opened by then.
    """

    def __init__(
        self, options: Options, subscriptions: Subscriptions, filters: Filters, observer: ConsumerObserver | None = None
    ) -> None:
        if options.broadcasting:
            options = msgspec.structs.replace(options, allocation=("broadcasting", everything))
        super().__init__(options.group, options.config, subscriptions)
        self._options = options
        context = context_of(self.instance, options.config, options.group, observer)
        self.deliveries, self.statistics = Deliveries(context), Statistics(time.monotonic())
        self.dispatcher, self.locks = self._ordered(context) if options.ordered else self._concurrent(context)
        self._local = self._local_offsets(context) if options.broadcasting else None
        self.offsets = self._local or RemoteOffsetStore(context, self.deliveries)
        ordered = self.dispatcher if isinstance(self.dispatcher, OrderedDispatcher) else None
        self.fetcher = Fetcher(
            context, self.deliveries, self.offsets, self.dispatcher.submit,
            moves=GivingUp(lambda: self.rebalancer.wake()),
            cached_bytes=lambda: self.rebalancer.assignment.cached_bytes,
            queue_count=lambda: len(self.rebalancer.assignment.owned),
            counts=self.statistics.of, filters=filters, locked=ordered.locks.held if ordered else None,
        )  # fmt: skip
        graceful = options.config.graceful_handover and not options.broadcasting
        self.handover = self._handover(context) if graceful else None
        start = StartRule(context, self.offsets, options.consume_from, options.timestamp_ms)
        parts = RebalancerParts(
            subscriptions, self.deliveries, self.offsets, start, self.fetcher, self._queues, self.instance.spawn,
            self.locks, options.broadcasting, handover=self.handover,
        )  # fmt: skip
        self.rebalancer = Rebalancer(context, parts, *options.allocation)
        self._direct = Direct(options, subscriptions, self.deliveries, self.instance.boot_id)
        self.instance.commands.direct[options.group] = self._direct.take
        self.instance.commands.info[options.group] = self._info
        self._workers: set[asyncio.Task[None]] = set()
        self._shutdown = Shutdown(self)

    async def start(self) -> None:
        """Routes, then the heartbeat that makes this client a member, then the first round."""
        spawn = self.instance.spawn
        if self._local is not None:
            await self._local.open()
        await self._join()
        for number in range(self._options.max_concurrency):
            self._employ(f"worker-{number}")
        self._begin_rounds()
        spawn(self._sample(), "statistics")
        if self.locks is not None:
            spawn(self.locks.run(), "locks")
        if self.handover is not None:
            spawn(self.handover.claims.run(), "claims")
        if isinstance(self.dispatcher, Dispatcher):
            spawn(self.dispatcher.overdue.run(lambda: self.rebalancer.assignment), "overdue")

    async def abandon(self) -> None:
        """After a start that failed."""
        await self.instance.close()
        self.close_threads()

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

    async def close(self, timeout_s: float, *, in_all: bool = False) -> None:
        """End everything, as ``shutdown_mode`` says; handlers have so long, and brokers no longer if ``in_all``."""
        self._closing = True
        self._journal("closing")
        if in_all:
            self._shutdown.hurry_after(timeout_s)
        if self._config.shutdown_mode == ShutdownMode.ROCKETMQ.value:
            await self._shutdown.as_rocketmq(timeout_s)
        else:
            await self._shutdown.drain(timeout_s)

    def hurry(self) -> None:
        """Cancel handlers that run when it closes, and wait for nobody who does not answer at once."""
        self.dispatcher.hurry()
        self._direct.hurry()
        self._shutdown.hurry()

    def _employ(self, name: str) -> None:
        context = contextvars.copy_context()
        context.run(handled_by.set, self)
        worker = context.run(self.instance.spawn, self.dispatcher.work(), name)
        self._workers.add(worker)
        worker.add_done_callback(self._replace)

    def _replace(self, worker: asyncio.Task[None]) -> None:
        """A program may cancel the task of a handler, which is the worker's: without another one none would be left.

        After a while, so that a loop that ends and cancels all its tasks does not get new ones, nor says so of each.
        """
        self._workers.discard(worker)
        if worker.cancelled() and not self._closing:
            pause_s = self._config.consume_retry_delay_ms / 1000
            asyncio.get_running_loop().call_later(pause_s, self._employ_again, worker.get_name())

    def _employ_again(self, name: str) -> None:
        if not (self._closing or self.instance.closed):
            text = "handler_task_cancelled group=%s: its message comes again; let handlers use asyncio.timeout"
            log.error(text, self._options.group)
            self._employ(name.removeprefix("dejamq-"))

    def _concurrent(self, context: ConsumerContext) -> tuple[Dispatcher | OrderedDispatcher, QueueLocks | None]:
        options, workers = self._options, self._options.max_concurrency
        send_back: GiveBack = NoSendBack(context, self.deliveries)
        if not options.broadcasting:
            send_back = SendBack(context, self.deliveries, options.max_reconsume_times, self._retries(context))
        return Dispatcher(context, self._subscriptions, self.deliveries, send_back, max_concurrency=workers), None

    def _ordered(self, context: ConsumerContext) -> tuple[Dispatcher | OrderedDispatcher, QueueLocks | None]:
        options = self._options
        retries: GiveUp = NoSendBack(context, self.deliveries) if options.broadcasting else self._retries(context)
        most = UNLIMITED if options.max_reconsume_times is None else options.max_reconsume_times
        rules = OrderedRules(options.max_concurrency, options.auto_commit, most)
        locks = None if options.broadcasting else QueueLocks(
            context, lambda: self.rebalancer.assignment,
            lambda owned, timeout_s: dispatcher.quiet(owned, timeout_s), lambda: self.rebalancer.wake(),
        )  # fmt: skip
        dispatcher = OrderedDispatcher(
            context, self._subscriptions, self.deliveries, retries, rules, locks or Unlocked()
        )
        return dispatcher, locks

    def _handover(self, context: ConsumerContext) -> Handover:
        return Handover(
            context, self.deliveries, self.instance.spawn, owned=lambda: self.rebalancer.assignment,
            drop=lambda leaving, reason: self.rebalancer.release(leaving, reason),
            on_lost=lambda: self.rebalancer.wake(),
        )  # fmt: skip

    def _local_offsets(self, context: ConsumerContext) -> LocalOffsetStore:
        directory = self._config.local_offset_store_dir
        file = LocalOffsets(context.client_id, context.group, Path(directory) if directory else None)
        return LocalOffsetStore(context, self.deliveries, file)

    def close_threads(self) -> None:
        """Let go of the threads; what they still run ends by itself."""
        self.dispatcher.close()
        self._direct.close()
        if self._local is not None:
            self._local.close()

    def _retries(self, context: ConsumerContext) -> RetrySend:
        retry_topic = names.retry_topic(self._options.group)
        return RetrySend(context, self.deliveries, lambda: self.instance.routes.publish_queues(retry_topic))

    def _members_changed(self) -> None:
        super()._members_changed()
        if self.handover is not None:
            self.handover.claims.wake()  # the answer says whether all members claim their queues

    def _connected(self, address: str) -> None:
        """A broker may have forgotten the members and what they hold: renew before others ask for what is ours."""
        if self.locks is not None:
            self.locks.wake()
        if self.handover is not None:
            self.handover.claims.wake()
        super()._connected(address)

    def _info(self, stacks: bool) -> ClientInfo:
        """For an operator who asks through a broker."""
        assignment = self.rebalancer.assignment
        state = {"suspended": self.rebalancer.suspended, "cached_bytes": assignment.cached_bytes}
        info = client_info(self.instance, state=state, stacks=stacks)
        add_consumer(info, self._consumer_data(), concurrency=self._options.max_concurrency)
        add_queues(info, assignment, self.instance.clock.age_s)
        add_statistics(info, self.statistics, assignment)
        return info

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(aligned_delay(SAMPLE_S))
            self.statistics.sample(time.monotonic(), self.rebalancer.assignment)

    async def stop_pulling(self) -> None:
        """No further round or pull."""
        await self._stop_pulling()

    async def leave(self) -> None:
        """Leave the group, and end all connections and tasks."""
        await self.instance.close()

    def cancel_workers(self) -> None:
        """Interrupt all handlers, without waiting for them."""
        for worker in self._workers:
            worker.cancel()

    async def stop_workers(self, timeout_s: float) -> None:
        """No further handler; those that run have so long to end, and are cancelled then."""
        began_s, group = time.monotonic(), self._options.group
        text = "handlers_running group=%s: they get %.0f s to end; a second Ctrl-C, or hurry(), ends the wait"
        told = asyncio.get_running_loop().call_later(TOLD_AFTER_S, log.warning, text, group, timeout_s)
        try:
            ended = await self.dispatcher.drain(timeout_s)
        finally:
            told.cancel()
        if not ended:
            log.warning("handlers_cancelled group=%s after %.1f s", group, time.monotonic() - began_s)
        await cancel(list(self._workers))

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group=self._options.group, consume_type="PUSH", message_model=self._options.model.value,
            consume_from=self._options.consume_from.value, subscriptions=self._subscriptions.wire(),
            ordered=self._options.ordered, allocation=self._options.allocation[0],
            graceful_handover=self.handover is not None,
        )  # fmt: skip
