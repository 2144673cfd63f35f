"""SimpleConsumer: a program receives messages for a time, and acknowledges each by itself."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from dejamq_proto import names
from dejamq_proto.codes import ClientClosed, ConfigError, DejamqError

from dejamq.clients.consumer_life import MemberLife, now_ms
from dejamq.handling.subscriptions import Subscriptions
from dejamq.net.waits import first_of
from dejamq.rebalance.consume_from import ConsumeFrom, choice
from dejamq.receiving.observer import Observing
from dejamq.receiving.received import ReceivedMessage
from dejamq.simple.running import SimpleRunning
from dejamq.values.config import SimpleConfig, client_config
from dejamq.values.namespace import wrap

log = logging.getLogger("dejamq.clients.consumer")
MOST_MESSAGES = 1024
"""Of one receive."""
LONGEST_INVISIBLE_MS = 12 * 3_600_000
ITERATED_MESSAGES, ITERATED_INVISIBLE_MS = 32, 30_000


class SimpleConsumer(MemberLife[SimpleRunning]):
    """Receives messages that the group's other members do not get for a time; at least once.

    A message that is not acknowledged in its time comes again, to any member, with one more reconsume time. After the
    group's last try it is a dead letter. No queue belongs to anybody: members come and go without a rebalance, and one
    message that takes long holds up no other. Belongs to one event loop. Further settings: ``SimpleConfig``. Source:
    RocketMQ ``SimpleConsumer``.
    """

    def __init__(
        self, group: str, *, namesrv: str | Sequence[str] | None = None,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET, telemetry: Observing | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        """``consume_from`` is where a group without offsets begins. LAST_OFFSET is RocketMQ's rule for pops: all of a
        young queue, else its last message and what comes later. For ``telemetry`` see ``dejamq.telemetry``.

        Raises ConfigError or InvalidName at once for what could not work later.
        """
        super().__init__()
        names.check_group(group)
        self.group, self.config = group, client_config(SimpleConfig, namesrv, settings)
        begin = choice(ConsumeFrom, consume_from)
        if begin is ConsumeFrom.TIMESTAMP:
            raise ConfigError("a SimpleConsumer begins at FIRST_OFFSET or LAST_OFFSET; reset the group to a time")
        self._from_min = begin is ConsumeFrom.FIRST_OFFSET
        self._inner_group = wrap(self.config.namespace, group)
        names.check_group(self._inner_group)
        self._subscriptions = Subscriptions(self._inner_group, now_ms, retries=False, namespace=self.config.namespace)
        self._observer = self._observed_by(telemetry, group, self.config.namespace, None)
        self._fetched: list[ReceivedMessage] = []
        self._receiving: set[asyncio.Future[list[ReceivedMessage]]] = set()
        self._renewing: dict[ReceivedMessage, asyncio.Task[None]] = {}
        self._in_hand: ReceivedMessage | None = None

    # which messages

    def subscribe(self, topic: str, tags: str | None = "*", *, sql: str | None = None) -> None:
        """Receive messages of the topic; only those with these tags (``"a || b"``), or by properties with ``sql``.

        Before or after the start. Raises ConfigError for a topic that is subscribed already.
        """
        self._check()
        self._subscriptions.add(topic, _received, tags=tags, sql=sql)
        if self._running is not None:
            self._running.instance.routes.watch(wrap(self.config.namespace, topic))
            self._running.instance.presence.wake()

    def unsubscribe(self, topic: str) -> None:
        """Receive no more of it; what was received can still be acknowledged."""
        self._check()
        self._subscriptions.remove(topic)

    # messages

    async def receive(
        self, *, max_messages: int = 32, invisible_ms: int = 30_000, timeout_ms: float | None = None
    ) -> list[ReceivedMessage]:
        """At most ``max_messages`` (1 to 1,024), nobody else's for ``invisible_ms``; ``[]`` when none came in time.

        A receive that is cancelled may have been given messages: they come again when their time is over.
        """
        if self._observer is None:
            return await self._receive(max_messages, invisible_ms, timeout_ms)
        with self._observer.receiving("receive") as receiving:
            found = await self._receive(max_messages, invisible_ms, timeout_ms)
            receiving.got(found)
        return found

    async def _receive(
        self, max_messages: int, invisible_ms: int, timeout_ms: float | None = None
    ) -> list[ReceivedMessage]:
        running = self._started()
        if not isinstance(max_messages, int) or not 1 <= max_messages <= MOST_MESSAGES:
            raise ConfigError(f"max_messages is 1 to {MOST_MESSAGES}, not {max_messages!r}")
        _check_invisible(invisible_ms)
        if not list(self._subscriptions):
            raise ConfigError("nothing to receive: subscribe a topic first")
        wait_ms = self.config.receive_timeout_ms if timeout_ms is None else timeout_ms
        asked = asyncio.ensure_future(running.receive(max_messages, invisible_ms, wait_ms / 1000))
        self._receiving.add(asked)
        try:
            found = await asked
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # it was closed meanwhile
                self._check()
            raise
        finally:
            self._receiving.discard(asked)
        self._check()
        return found

    async def ack(self, *messages: ReceivedMessage) -> None:
        """They are done, and do not come again.

        Saying it again is no error. Raises NO_MESSAGE for a message that was given to somebody else meanwhile, or
        whose time is over; BrokerUnavailable when its broker could not be told in its time.
        """
        running = self._started()
        for message in messages:
            self._stop_renewing(message)
        if self._observer is None or not _are_messages(messages):
            await running.ack(messages)
            return
        with self._observer.settling("ack", _topic_of(messages), messages):
            await running.ack(messages)

    async def change_invisible(self, message: ReceivedMessage, ms: int) -> None:
        """The message is this consumer's for ``ms`` more from now on; 0 gives it back at once. Raises as ``ack``."""
        running = self._started()
        _check_invisible(ms)
        self._stop_renewing(message)
        if self._observer is None or not _are_messages((message,)):
            await running.change(message, ms)
            return
        with self._observer.settling("change_invisible", message.topic, [message]):
            await running.change(message, ms)

    def __aiter__(self) -> "SimpleConsumer":
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message, for ``async for``; the loop ends when the consumer is closed.

        The program acknowledges it. Until it does, or asks for the next one, its time is renewed before it ends.
        """
        if self._in_hand is not None:
            self._stop_renewing(self._in_hand)
            self._in_hand = None
        while not self._fetched:
            if self.closed:
                self._raise_fatal()
                raise StopAsyncIteration
            try:
                found = await self._receive(ITERATED_MESSAGES, ITERATED_INVISIBLE_MS)
            except ClientClosed:
                continue
            for message in found:
                self._renew(message)
            self._fetched += found
        self._in_hand = self._fetched.pop(0)
        if self._observer is not None:
            with self._observer.receiving("receive") as receiving:
                receiving.got([self._in_hand])
        return self._in_hand

    # life

    async def start(self) -> None:
        """Join the group; does nothing when running. Raises BrokerUnavailable when no name server answers."""
        self._check()
        if self._running is not None:
            return
        running = self._running = SimpleRunning(
            self._inner_group, self.config, self._subscriptions, from_min=self._from_min
        )
        try:
            await running.start()
        except BaseException:
            self._running = None
            await running.close(0)
            raise

    async def close(self, timeout_ms: float | None = None) -> None:
        """Leave the group. What ``async for`` fetched and did not hand out comes again at once. May be called twice."""
        self._origin.check("consumer")
        if self._running is not None and self._running.instance.closed_with_loop():
            return
        if self._closing is None:
            wait_ms = self.config.await_termination_ms if timeout_ms is None else timeout_ms
            self._closing = asyncio.ensure_future(self._close(wait_ms / 1000))
            self._ending.set()
            for asked in tuple(self._receiving):
                asked.cancel()
        await asyncio.shield(self._closing)

    async def wait_stopped(self) -> None:
        """Until ``close`` is called or a background task fails; for ``dejamq.run``."""
        await first_of(self._started().failed, self._ending)

    async def _close(self, timeout_s: float) -> None:
        renewing, self._renewing = tuple(self._renewing.values()), {}
        for task in renewing:
            task.cancel()
        if renewing:
            await asyncio.wait(renewing)
        running, fetched = self._running, self._fetched
        self._fetched = []
        if running is not None:
            running.give_back(fetched)
            await running.close(timeout_s)

    # renewal

    def _renew(self, message: ReceivedMessage) -> None:
        assert self._running is not None
        self._renewing[message] = self._running.instance.spawn(self._renew_on(self._running, message), "renew")

    def _stop_renewing(self, message: ReceivedMessage) -> None:
        task = self._renewing.pop(message, None)
        if task is not None:
            task.cancel()

    async def _renew_on(self, running: SimpleRunning, message: ReceivedMessage) -> None:
        """Each renewal is for twice as long as the one before, up to an hour; RocketMQ's proxy has a similar ladder."""
        ms, began_s = ITERATED_INVISIBLE_MS, time.monotonic()
        while time.monotonic() - began_s < self.config.renew_for_ms / 1000:
            await asyncio.sleep((ms - min(ms / 2, self.config.renew_ahead_ms)) / 1000)
            ms = min(2 * ms, 3_600_000)
            try:
                await running.change(message, ms)
            except DejamqError as error:
                log.warning("not_renewed message_id=%s reason=%s", message.message_id, error)
                return

    def _started(self) -> SimpleRunning:
        self._check()
        if self._running is None:
            raise ConfigError("start the consumer first: async with consumer, or await consumer.start()")
        return self._running


def _topic_of(messages: Sequence[ReceivedMessage]) -> str:
    """Empty for messages of several topics."""
    topics = {message.topic for message in messages}
    return topics.pop() if len(topics) == 1 else ""


def _are_messages(given: Sequence[object]) -> bool:
    """There are some, and all are: what is none is refused where it is used."""
    return bool(given) and all(isinstance(each, ReceivedMessage) for each in given)


async def _received(message: ReceivedMessage) -> None:
    """Stands in a subscription where a push consumer has its handler; nobody calls it."""


def _check_invisible(ms: object) -> None:
    if not isinstance(ms, int) or not 0 <= ms <= LONGEST_INVISIBLE_MS:
        raise ConfigError(f"messages are invisible for 0 to {LONGEST_INVISIBLE_MS} ms, not {ms!r}")
