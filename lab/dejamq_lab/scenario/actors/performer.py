"""The performer owns one client of the SDK and does each step with it. Actor processes use it."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from dejamq import (
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
    SimpleConsumer,
    TransactionProducer,
)
from dejamq.values.config import SimpleConfig
from dejamq.values.producer_config import ProducerConfig
from dejamq_proto.codes import ConfigError, DejamqError

from dejamq_lab.scenario.actors import handling
from dejamq_lab.scenario.actors.dialogue import OwnOffsets, Replier, ScriptedTransactions
from dejamq_lab.scenario.actors.popping import PoppingProgram
from dejamq_lab.scenario.actors.v2_popping import V2Push
from dejamq_lab.scenario.actors.v2_producing import V2Producer
from dejamq_lab.scenario.script.ledger import EffectLedger
from dejamq_lab.scenario.script.steps import Send
from dejamq_lab.scenario.script.text import V2_KINDS, Actor, Transacting

Client = Producer | PushConsumer | LitePullConsumer | SimpleConsumer | V2Producer | V2Push
POLL_MS, REQUEST_MS = 100, 20_000
ABANDON_S = 5.0


class ActorPart(msgspec.Struct, kw_only=True, frozen=True):
    """Everything an actor must know. ``settings`` are scaled keyword arguments of its client."""

    name: str
    actor: Actor
    namesrv: str
    ledger: str
    settings: dict[str, Any]


class Performer:
    """One actor. Its methods are the commands; belongs to one event loop."""

    def __init__(self, part: ActorPart) -> None:
        self._part, self._actor = part, part.actor
        self._ledger = EffectLedger(Path(part.ledger))
        self._handlers = handling.Handlers(part.name, part.actor.group, part.actor.handler, self._ledger)
        self._transactions = ScriptedTransactions(part.actor.transaction or Transacting())
        self._replier: Replier | None = None
        every = part.actor.own_offsets
        self._own = OwnOffsets(self._ledger, part.actor.group, every) if every else None
        self._popping: PoppingProgram | None = None
        self._client: Client = self._made()
        self._sends: set[asyncio.Task[int]] = set()
        self._polling: asyncio.Task[None] | None = None

    def _made(self) -> Client:
        return self._made_to_speak_v2() if self._actor.kind in V2_KINDS else self._made_of_the_sdk()

    def _made_of_the_sdk(self) -> Client:
        group, namesrv, settings = self._actor.group, self._part.namesrv, self._part.settings
        if self._actor.kind == "producer":
            if self._actor.transaction is not None:
                return self._transactions.producer(group, namesrv, self._actor.topics, settings)
            return Producer(group, namesrv=namesrv, **settings)
        if self._actor.kind == "lite":
            lite = LitePullConsumer(group, namesrv=namesrv, **settings)
            if self._actor.queues:
                queues = [queue_at(self._actor.topics[0], place) for place in self._actor.queues]
                lite.assign(queues)
                if self._own is not None:
                    self._own.begin(lite, queues)
                return lite
            for topic in self._actor.topics:
                lite.subscribe(topic, tags=self._actor.tags)
            return lite
        if self._actor.kind == "pop":
            return self._made_to_pop(SimpleConsumer(group, namesrv=namesrv, **settings))
        if self._actor.handler.replies:
            self._replier = Replier(group, namesrv, settings)
        push = PushConsumer(group, namesrv=namesrv, **settings)
        for topic in self._actor.topics:
            self._subscribe(push, topic)
        return push

    def _made_to_speak_v2(self) -> V2Producer | V2Push:
        group, topics, settings = self._actor.group, self._actor.topics, self._part.settings
        if self._actor.kind == "v2-producer":
            return V2Producer(group, topics, self._part.namesrv, ProducerConfig(**settings))
        return V2Push(group, topics, self._part.namesrv, SimpleConfig(**settings), self._handlers)

    def _made_to_pop(self, simple: SimpleConsumer) -> SimpleConsumer:
        for topic in self._actor.topics:
            simple.subscribe(topic, self._actor.tags)
        self._popping = PoppingProgram(simple, self._handlers, self._actor.invisible_ms)
        return simple

    def _subscribe(self, push: PushConsumer, topic: str) -> None:
        handler: Any = self._handlers.chosen() if self._replier is None else self._reply
        if self._actor.handler.batch:
            push.subscribe_batch(topic, handler, size=self._actor.handler.batch, tags=self._actor.tags)
        else:
            push.subscribe(topic, handler, tags=self._actor.tags)

    async def _reply(self, received: ReceivedMessage) -> Any:
        answer = await self._handlers.one(received)
        assert self._replier is not None
        await self._replier.reply(received)
        return answer

    async def start(self) -> None:
        """Start the client; a lite consumer polls from now on, and one that pops receives."""
        if self._replier is not None:
            await self._replier.producer.start()
        await self._client.start()
        if isinstance(self._client, LitePullConsumer):
            self._polling = asyncio.create_task(self._poll(self._client))
        if self._popping is not None:
            self._popping.start()

    async def close(self) -> None:
        """Close the client, which drains."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait((self._polling,))
        if self._popping is not None:
            await self._popping.stop()
        try:
            await self._client.close()
        finally:
            if self._replier is not None:
                await self._replier.producer.close()

    async def end(self) -> None:
        """Close everything."""
        try:
            await self.close()
        finally:
            self._ledger.close()

    async def abandon(self) -> None:
        """For one that can reach nobody any more: it has no more effects, and its client gets no time to end."""
        self._ledger.close()
        self._handlers.release()
        if isinstance(self._client, PushConsumer):
            self._client.hurry()
        with suppress(TimeoutError, DejamqError):
            async with asyncio.timeout(ABANDON_S):
                await (self._client.close() if isinstance(self._client, V2Producer | V2Push) else self._client.close(0))
                if self._replier is not None:
                    await self._replier.producer.close(0)

    async def _poll(self, lite: LitePullConsumer) -> None:
        while True:
            for received in await lite.poll(timeout_ms=POLL_MS):
                await self._handlers.one(received)
                if self._own is not None:
                    self._own.done(received)

    async def send(self, step: Send, first: int) -> int:
        """Send the messages numbered from ``first`` on; how many sends failed. Without ``wait`` 0, at once."""
        work = asyncio.create_task(self._send(step, first))
        if step.wait:
            return await work
        self._sends.add(work)
        return 0

    async def sent(self) -> int:
        """Wait for what ``send`` did not wait for; how many failed."""
        works, self._sends = self._sends, set()
        return sum(await asyncio.gather(*works))

    async def _send(self, step: Send, first: int) -> int:
        assert isinstance(self._client, Producer | V2Producer), "check() of the scenario"
        topic = step.topic or self._actor.topics[0]
        made = [
            handling.message(topic, first + number, step)
            for number in range(step.count)
        ]  # fmt: skip
        failed, pause_s = 0, 1 / step.rate if step.rate else 0
        for turn in range(step.times):
            wave = made if step.same or not turn else [each.replace() for each in made]
            if step.batch and isinstance(self._client, Producer):
                failed += await _failed(
                    [self._client.send_batch(wave, timeout_ms=step.timeout_ms or None)], step.outcome
                )
            elif pause_s:
                for each in wave:
                    failed += await _failed([self._sending(each, step)], step.outcome)
                    await asyncio.sleep(pause_s)
            else:
                failed += await _failed([self._sending(each, step) for each in wave], step.outcome)
        return failed

    def _sending(self, message: Message, step: Send) -> Awaitable[Any]:
        if isinstance(self._client, V2Producer):
            return self._client.send(message)
        assert isinstance(self._client, Producer)
        queue = queue_at(message.topic, step.queue) if step.queue else None
        if isinstance(self._client, TransactionProducer):
            return self._transactions.send(self._client, message, step.timeout_ms or None)
        if step.how == "request":
            return self._client.request(message, step.timeout_ms or REQUEST_MS, queue=queue)
        way = self._client.submit if step.how == "submit" else self._client.send
        return way(message, queue=queue, timeout_ms=step.timeout_ms or None)

    def release(self) -> None:
        """Blocked handlers go on."""
        self._handlers.release()
        self._transactions.release()

    def owned(self) -> int:
        """How many queues of its topics the consumer has now."""
        assert isinstance(self._client, PushConsumer | LitePullConsumer)
        return sum(queue.topic in self._actor.topics for queue in self._client.assignment)

    async def call(self, method: str, arguments: dict[str, Any]) -> None:
        """A method of the client. Raises ConfigError where it has none of this name.

        An argument ``queue`` is a place of the first topic, ``broker-a:0``.
        """
        if method == "subscribe" and isinstance(self._client, PushConsumer):
            self._subscribe(self._client, **arguments)
            return
        found = getattr(self._client, method, None)
        if found is None or method.startswith("_"):
            raise ConfigError(f"{type(self._client).__name__} has no method {method!r}")
        queue = {name: queue_at(self._actor.topics[0], place) for name, place in arguments.items() if name == "queue"}
        answered = found(**arguments | queue)
        if asyncio.iscoroutine(answered):
            await answered


def queue_at(topic: str, place: str) -> MessageQueue:
    """A queue by its place, ``broker-a:0``."""
    broker_name, _, queue_id = place.rpartition(":")
    return MessageQueue(topic, broker_name, int(queue_id))


async def _failed(sends: list[Awaitable[Any]], outcome: str) -> int:
    """How many of these sends were not acknowledged, or not with the status that ``outcome`` names."""
    ended = await asyncio.gather(*sends, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException) and not isinstance(each, DejamqError):
            raise each
    named = outcome in SendStatus.__members__
    return sum(isinstance(each, DejamqError) or (named and _ended_otherwise(each, outcome)) for each in ended)


def _ended_otherwise(ended: Any, outcome: str) -> bool:
    """Whether a send, or one of a batch, has another status."""
    return any(one.status.name != outcome for one in (ended if isinstance(ended, list) else [ended]))
