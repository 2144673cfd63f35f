"""PushConsumer, what programs see of it: subscriptions, start, stop."""

import asyncio
import dataclasses
import logging
import signal
import time
from collections.abc import Sequence
from typing import Any

from dejamq_proto import names
from dejamq_proto.codes import ConfigError, DejamqError

from dejamq.clients.consumer_life import ConsumerLife, begin_timestamp_ms, now_ms
from dejamq.clients.options import Options
from dejamq.clients.running import Running
from dejamq.clients.shutdown import ShutdownMode
from dejamq.clients.signals import STOP_SIGNALS, StopSignals
from dejamq.handling.subscriptions import Subscriptions
from dejamq.net.waits import first_done, first_of
from dejamq.rebalance.broadcasting import stable_client_id
from dejamq.rebalance.consume_from import ConsumeFrom, MessageModel, choice
from dejamq.receiving.handlers import BatchHandler, Handler
from dejamq.receiving.hooks import ConsumeHook, ConsumeHooks, Filters, Judge, Keep
from dejamq.receiving.observer import Observing
from dejamq.receiving.statistics import ConsumerStatistics, outside
from dejamq.values.allocation import Strategy, strategy_named
from dejamq.values.config import ConsumerConfig, client_config
from dejamq.values.message import MessageQueue
from dejamq.values.namespace import strategy_outside, unwrap_queue, wrap

log = logging.getLogger("dejamq.clients.consumer")


class PushConsumer(ConsumerLife[Running]):
    """Delivers the messages of subscribed topics to handlers, at least once; the group's members share the queues.

    With ``MessageModel.BROADCASTING`` each member gets everything, remembers in a file how far it is
    (``local_offset_store_dir``), and a message that fails is logged and dropped.

    ``async with`` starts and closes it; closing drains: no further message is handed out, running handlers end, offsets
    are committed, the group is left. Belongs to one event loop. Further settings: ``ConsumerConfig``.
    """

    def __init__(
        self, group: str, *, namesrv: str | Sequence[str] | None = None,
        model: MessageModel = MessageModel.CLUSTERING, ordered: bool = False, auto_commit: bool = True,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET, consume_timestamp_ms: int | None = None,
        allocation: str | Strategy = "averagely", max_concurrency: int = 20, max_reconsume_times: int | None = None,
        telemetry: Observing | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        """For ``telemetry`` see ``dejamq.telemetry``.

        Raises ConfigError or InvalidName at once for what could not work later.
        """
        super().__init__()
        names.check_group(group)
        self.group, self.config = group, client_config(ConsumerConfig, namesrv, settings)
        inner_group = wrap(self.config.namespace, group)
        names.check_group(inner_group)
        model = choice(MessageModel, model)
        if model is MessageModel.BROADCASTING:
            self.config = dataclasses.replace(self.config, client_id=stable_client_id(self.config))
        name, strategy = strategy_named(allocation)
        if callable(allocation):
            strategy = strategy_outside(self.config.namespace, strategy)
        timestamp_ms = begin_timestamp_ms(consume_timestamp_ms)
        self._options = Options(
            inner_group, self.config, model, choice(ConsumeFrom, consume_from), timestamp_ms, (name, strategy),
            max_concurrency, max_reconsume_times, ordered, auto_commit,
        )  # fmt: skip
        self._hooks = ConsumeHooks(group, Judge(self.config.consume_timeout_ms / 1000, ordered, auto_commit))
        self._observer = self._observed_by(telemetry, group, self.config.namespace, self._options.broadcasting)
        if self._observer is not None:
            self._hooks.add(self._observer)
        self._subscriptions = Subscriptions(
            inner_group, now_ms, retries=not self._options.broadcasting, namespace=self.config.namespace,
            hooks=self._hooks,
        )  # fmt: skip
        self._filters = Filters()
        self._stop = asyncio.Event()

    # what is consumed

    def subscribe(self, topic: str, handler: Handler, *, tags: str | None = "*", sql: str | None = None) -> None:
        """Deliver the topic's messages with these tags (``"a || b"``) to ``handler``, one at a time, many at once.

        A plain function runs in a thread; what it returns is awaited in the loop if it can be. With ``ordered=True``
        one message of a queue at a time, in the order of the queue. ``sql`` filters by properties
        instead of tags, as RocketMQ's SQL92: ``"amount > 5 AND region IN ('north', 'south')"``. Brokers are asked
        whether they can at the start, which raises SUBSCRIPTION_PARSE_FAILED, or SYSTEM_ERROR where it is off.

        Raises ConfigError for a second handler of a topic, a handler of the wrong shape, a single ``|``, or tags and
        sql.
        """
        self._subscribe(topic, handler, tags, sql, 0)

    def subscribe_batch(
        self, topic: str, handler: BatchHandler, *, size: int, tags: str | None = "*", sql: str | None = None
    ) -> None:
        """As ``subscribe``, for a handler of lists of at most ``size`` messages with one answer for all of them."""
        if not isinstance(size, int) or size < 1:
            raise ConfigError(f"size is at least 1, not {size!r}")
        self._subscribe(topic, handler, tags, sql, size)

    def unsubscribe(self, topic: str) -> None:
        """Give the topic's queues up. Progress since the last commit is forgotten, as in RocketMQ."""
        self._check()
        self._subscriptions.remove(topic)
        if self._running is not None:
            self._running.forget(self._inside(topic))

    def add_hook(self, hook: ConsumeHook) -> None:
        """Call ``hook`` before and after each call of a handler. Before the start only. Raises ConfigError."""
        self._check_not_started("a hook")
        self._hooks.add(hook)

    def add_filter(self, keep: Keep) -> None:
        """Deliver only messages of which ``keep(message)``, a plain function, says True; others count as consumed.

        Asked in the event loop when messages arrive, after the filter by tags. Before the start only. Raises
        ConfigError.
        """
        self._check_not_started("a filter")
        self._filters.add(keep)

    def suspend(self) -> None:
        """Pull no more and keep the queues; what was pulled already is still delivered."""
        self._check()
        if self._running is not None:
            self._running.suspend()

    def resume(self) -> None:
        """Pull again after ``suspend``."""
        self._check()
        if self._running is not None:
            self._running.resume()

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues this consumer owns now, sorted."""
        if self._running is None:
            return ()
        queues, namespace = self._running.rebalancer.assignment.queues(), self.config.namespace
        return tuple(unwrap_queue(namespace, queue) for queue in queues) if namespace else queues

    def statistics(self) -> ConsumerStatistics:
        """Rates, response times and lag of the last minute by topic and queue, in RocketMQ's terms; empty before the
        start.
        """
        if self._running is None:
            return ConsumerStatistics({}, {})
        view = self._running.statistics.view(time.monotonic(), self._running.rebalancer.assignment)
        return outside(self.config.namespace, view)

    async def wait_assigned(self, timeout_ms: float = 30_000) -> tuple[MessageQueue, ...]:
        """Until a round of allocation gave this consumer its queues (none when the group has more members).

        Raises WaitTimeout, ClientClosed, or the fatal failure of a background task.
        """
        self._check()
        if self._running is None:
            raise ConfigError("start the consumer before waiting for its queues")
        await self._running.wait_settled(timeout_ms, self._ending)
        self._check()
        return self.assignment

    # life

    async def start(self) -> None:
        """Join the group and begin; does nothing when running. Raises BrokerUnavailable when no name server answers."""
        self._check()
        if self._running is not None:
            return
        await self._begin(Running(self._options, self._subscriptions, self._filters, self._observer))

    def stop(self) -> None:
        """Make ``run_until_stopped`` return. Call it in the consumer's loop."""
        self._stop.set()

    async def wait_stopped(self) -> None:
        """Until ``stop`` or ``close`` is called or a background task fails."""
        failed = () if self._running is None else (self._running.failed,)
        await first_of(self._stop, self._ending, *failed)

    async def run_until_stopped(self, *, signals: Sequence[signal.Signals] = STOP_SIGNALS) -> None:
        """Serve until a signal, ``stop``, ``close`` or a fatal failure, then drain and close.

        A second signal ends the wait for handlers.

        Raises the fatal failure, ClientClosed when closed before, and ConfigError outside the main thread unless
        ``signals=()``.
        """
        self._check()
        with StopSignals(signals) as asked:
            try:
                await self.start()
            except DejamqError:
                if not self.closed:  # a ``close`` that comes while it starts ends it as one that comes later
                    raise
            stopping = asyncio.ensure_future(self.wait_stopped())
            try:
                await first_done(stopping, asked.stopped)
            finally:
                stopping.cancel()
            closing = asyncio.ensure_future(self.close())
            await first_done(closing, asked.hurried)
            self.hurry()
            await closing
        self._raise_fatal()

    def hurry(self) -> None:
        """While it closes: cancel the handlers that still run, and wait for brokers half a second a step at most.

        Their messages were not acknowledged and come again, to whoever owns their queue next; so does what could not be
        committed so fast. A plain handler goes on in its thread, which the end of the program does not wait for, as it
        does otherwise. May be called at any time; before closing began it takes effect when it does.
        """
        if self._running is not None:
            self._running.hurry()

    async def close(self, timeout_ms: float | None = None) -> None:
        """Drain and leave; handlers get ``timeout_ms`` (default ``await_termination_ms``). May be called twice.

        A ``timeout_ms`` is for brokers too: brokers that do not answer by then get half a second more for each step.

        In this order: no further pull, no further handler, running handlers end or are cancelled, offsets are
        committed, the group is left. Uncommitted messages are delivered again to the next owner; nothing
        is lost. With ``shutdown_mode="rocketmq"`` handlers get no time but ``timeout_ms``, and the order is RocketMQ's.

        In one of its handlers, or what that began, it returns at once: the rest is done when the handler has ended.
        """
        rocketmq = self.config.shutdown_mode == ShutdownMode.ROCKETMQ.value
        own_ms = 0 if rocketmq else self.config.await_termination_ms
        await self._end(own_ms if timeout_ms is None else timeout_ms, in_all=timeout_ms is not None)

    def _subscribe(self, topic: str, handler: object, tags: str | None, sql: str | None, size: int) -> None:
        self._check()
        self._subscriptions.add(topic, handler, tags=tags, sql=sql, batch_size=size)
        if self._running is not None:
            self._running.learn(self._inside(topic))

    def _inside(self, topic: str) -> str:
        """The topic as brokers know it."""
        return wrap(self.config.namespace, topic)

    def _check_not_started(self, what: str) -> None:
        self._check()
        if self._running is not None:
            raise ConfigError(f"{what} is added before the start: messages are delivered already")
