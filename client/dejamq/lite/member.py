"""A lite pull consumer without its messages: its settings, its queues, its start and its end."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from dejamq_proto import names
from dejamq_proto.codes import ConfigError

from dejamq.clients.consumer_life import ConsumerLife, begin_timestamp_ms, now_ms
from dejamq.clients.options import check_bool
from dejamq.handling.subscriptions import Subscriptions
from dejamq.lite.polling import Polling
from dejamq.lite.rebalancer import ChosenQueues, QueuesListener
from dejamq.lite.running import LiteOptions, LiteRunning
from dejamq.net.waits import first_of
from dejamq.rebalance.broadcasting import stable_client_id
from dejamq.rebalance.consume_from import ConsumeFrom, MessageModel, choice
from dejamq.receiving.handlers import tags_of_expression
from dejamq.receiving.observer import Observing
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.allocation import Strategy, strategy_named
from dejamq.values.config import lite_config
from dejamq.values.message import MessageQueue
from dejamq.values.namespace import strategy_outside, unwrap_queue, wrap, wrap_queue


class LiteMember(ConsumerLife[LiteRunning]):
    """A member of a group whose queues come by allocation or from the program. Belongs to one event loop."""

    def __init__(
        self, group: str, *, namesrv: str | Sequence[str] | None = None, auto_commit: bool = True,
        model: MessageModel = MessageModel.CLUSTERING, consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        consume_timestamp_ms: int | None = None, allocation: str | Strategy = "averagely",
        telemetry: Observing | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        """For ``telemetry`` see ``dejamq.telemetry``.

        Raises ConfigError or InvalidName at once for what could not work later."""
        super().__init__()
        names.check_group(group)
        check_bool(auto_commit=auto_commit)
        self.group, self.auto_commit, self.config = group, auto_commit, lite_config(namesrv, settings)
        model = choice(MessageModel, model)
        if model is MessageModel.BROADCASTING:
            self.config = dataclasses.replace(self.config, client_id=stable_client_id(self.config))
        self._namespace = self.config.namespace
        timestamp_ms = begin_timestamp_ms(consume_timestamp_ms)
        name, strategy = strategy_named(allocation)
        if callable(allocation):
            strategy = strategy_outside(self._namespace, strategy)
        inner_group = wrap(self._namespace, group)
        names.check_group(inner_group)
        self._options = LiteOptions(
            inner_group, self.config, model, choice(ConsumeFrom, consume_from), timestamp_ms, (name, strategy)
        )
        self._subscriptions = Subscriptions(inner_group, now_ms, retries=False, namespace=self._namespace)
        self._observer = self._observed_by(
            telemetry, group, self._namespace, model is MessageModel.BROADCASTING
        )  # fmt: skip
        self._chosen = ChosenQueues()
        self._paused: set[MessageQueue] = set()
        self._polling: Polling | None = None

    # which queues

    def subscribe(self, topic: str, *, tags: str | None = "*", sql: str | None = None) -> None:
        """Share the topic's queues with the group's other members; only messages with these tags (``"a || b"``).

        ``sql`` filters by properties instead, as ``PushConsumer.subscribe`` says.
        Before or after the start. Raises ConfigError after ``assign``, or for a topic that is subscribed already.
        """
        self._check()
        if self._chosen.queues is not None:
            raise ConfigError("this consumer has assigned queues; subscribe and assign exclude one another")
        self._subscriptions.add(topic, _polled, tags=tags, sql=sql)
        if self._running is not None:
            self._running.learn(wrap(self._namespace, topic))

    def unsubscribe(self, topic: str) -> None:
        """Give the topic's queues up. Progress that was not sent is forgotten, as in RocketMQ."""
        self._check()
        self._subscriptions.remove(topic)
        if self._running is not None:
            self._running.forget(wrap(self._namespace, topic))

    def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = "*") -> None:
        """Consume exactly these queues, of one or many topics, instead of those assigned before, with these tags.

        Nobody is asked who else consumes them. Use a group of its own: to members that subscribe, this one counts as
        a member that takes its share. Raises ConfigError after ``subscribe``.
        """
        self._check()
        wanted = frozenset(self._inside(queues))
        if self._chosen.queues is None and list(self._subscriptions):
            raise ConfigError("this consumer has subscriptions; subscribe and assign exclude one another")
        topics, filtered = {queue.topic for queue in wanted}, tags_of_expression(tags)
        for one in list(self._subscriptions):
            if one.topic not in topics or one.tags != filtered:
                self._subscriptions.remove(one.topic)
        new = [topic for topic in sorted(topics) if self._subscriptions.get(topic) is None]
        for topic in new:
            self._subscriptions.add(topic, _polled, tags=tags)
        self._chosen.assign(wanted)
        if self._running is not None:
            self._running.rebalancer.unsettle()
            for topic in new:
                self._running.learn(topic)
            self._running.rebalancer.wake()

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues this consumer reads now, sorted."""
        return () if self._running is None else self._outside(self._running.rebalancer.assignment.queues())

    async def wait_assigned(self, timeout_ms: float = 30_000) -> tuple[MessageQueue, ...]:
        """Until the group's allocation gave this consumer its queues, or the assigned ones are open.

        Raises WaitTimeout, ClientClosed, or the fatal failure of a background task.
        """
        await self._started().wait_settled(timeout_ms, self._ending)
        self._check()
        return self.assignment

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All readable queues of a topic, for ``assign``. Raises RouteNotFound, BrokerUnavailable."""
        return self._outside(await self._started().queues(wrap(self._namespace, topic)))

    async def watch_queues(self, topic: str, listener: QueuesListener) -> None:
        """Call ``listener(topic, queues)`` in the loop when the topic's queues have changed; one listener a topic.

        Looked at with each read of the route (``poll_name_server_interval_ms``).
        RocketMQ: registerTopicMessageQueueChangeListener.
        """
        self._check()
        names.check_topic(topic)
        inner_topic = wrap(self._namespace, topic)
        self._chosen.listeners[inner_topic] = lambda _, queues: listener(topic, self._outside(queues))
        if self._running is not None:
            await self._running.watch(inner_topic)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull no more of these and hand out nothing of them until ``resume``, also when they are lost and come back.

        RocketMQ still hands out what was pulled before.
        """
        self._check()
        self._paused.update(self._inside(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with these after ``pause``; others are left as they are."""
        self._check()
        if self._running is None:
            self._paused.difference_update(self._inside(queues))
        else:
            self._running.shelf.resume(self._inside(queues), self._running.rebalancer.assignment)

    # life

    async def start(self) -> None:
        """Join the group and begin to pull; does nothing when running. Raises BrokerUnavailable without name server."""
        self._check()
        if self._running is not None:
            return
        running = LiteRunning(self._options, self._subscriptions, self._chosen, self._paused, self._observer)
        self._polling = Polling(running, self.auto_commit)
        try:
            await self._begin(running)
        except BaseException:
            self._polling = None
            raise

    async def wait_stopped(self) -> None:
        """Until ``close`` is called or a background task fails; for ``dejamq.run``."""
        await first_of(self._started().failed, self._ending)

    async def close(self, timeout_ms: float | None = None) -> None:
        """Send what is committed and leave, in about ``timeout_ms`` (``await_termination_ms``). May be called twice.

        With ``auto_commit`` everything but what is in hand is committed first; RocketMQ only sends what its last
        automatic commit covered (cause O18), and so does ``shutdown_mode="rocketmq"``. A ``poll`` that waits raises
        ClientClosed, ``async for`` ends.
        """
        await self._end(self.config.await_termination_ms if timeout_ms is None else timeout_ms)

    def _inside(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """As brokers know them. Raises ConfigError for anything but queues."""
        wanted = list(queues) if isinstance(queues, Iterable) else []
        if not isinstance(queues, Iterable) or not all(isinstance(queue, MessageQueue) for queue in wanted):
            raise ConfigError(f"give a list of MessageQueue, such as await consumer.queues(topic), not {queues!r}")
        return [wrap_queue(self._namespace, queue) for queue in wanted]

    def _outside(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        """As the program knows them."""
        return tuple(unwrap_queue(self._namespace, queue) for queue in queues)

    async def _close(self, timeout_s: float, in_all: bool) -> None:
        if self._running is not None and self.auto_commit and self.config.shutdown_mode == "drain":
            self._running.shelf.commit(self._running.rebalancer.assignment)
        await super()._close(timeout_s, in_all)

    def _started(self) -> LiteRunning:
        self._check()
        if self._running is None:
            raise ConfigError("start the consumer first: async with consumer, or await consumer.start()")
        return self._running


async def _polled(message: ReceivedMessage) -> None:
    """Stands in a subscription where a push consumer has its handler; nobody calls it."""
