"""A push consumer of RocketMQ 5: it receives, calls a handler for each message, and acknowledges or gives back.

Closed, it waits for no handler: it says goodbye, and its broker gives back what it had in hand.
Source: RocketMQ ``apache/rocketmq-clients``, ``PushConsumerImpl``, ``ProcessQueueImpl``.
"""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

import numpy as np
from dejamq import ConsumeStatus, MessageQueue, ReceivedMessage
from dejamq.receiving.received import receive
from dejamq.values.config import SimpleConfig
from dejamq_broker.pop.handles import Handle, physical_topic
from dejamq_proto.codes import BrokerUnavailable, DejamqError
from dejamq_proto.journal.events import AckTry, Deliver, Result
from dejamq_proto.names import PROPERTY_KEYS, PROPERTY_UNIQUE_KEY
from dejamq_proto.records.record import Record, encode, encode_properties
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.wire.messages import PullAnswer

from dejamq_lab.scenario.actors.handling import Handlers, ScriptedFailure
from dejamq_lab.scenario.actors.v2_client import V2Client

BATCH, POLL_S, LEFT_S, PAUSE_S = 32, 1.0, 3.0, 0.2


class V2Push:
    """Belongs to one event loop."""

    def __init__(
        self, group: str, topics: tuple[str, ...], namesrv: str, config: SimpleConfig, handlers: Handlers
    ) -> None:
        self._group, self._topics, self._handlers = group, topics, handlers
        self._client = V2Client(namesrv, config, role="consumer")
        self._beat_s, self._backoff_s = config.heartbeat_broker_interval_ms / 1000, [1.0]
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Join the group, and receive from now on. Raises DejamqError where a topic has no route."""
        every = pb.FilterExpression(type=pb.TAG, expression="*")
        entries = [pb.SubscriptionEntry(topic=pb.Resource(name=topic), expression=every) for topic in self._topics]
        settings = pb.Settings(
            client_type=pb.PUSH_CONSUMER, user_agent=pb.UA(language=pb.PYTHON),
            subscription=pb.Subscription(group=pb.Resource(name=self._group), subscriptions=entries),
        )  # fmt: skip
        places = {(topic, *broker) for topic in self._topics for broker in await self._client.queues(topic)}
        addresses = sorted({address for _, _, address in places})
        for address in addresses:
            told = await self._client.settle(address, settings)
            steps = told.backoff_policy.customized_backoff.next
            self._backoff_s = [step.ToMilliseconds() / 1000 for step in steps]
        self._client.beat(addresses, self._group, self._beat_s)
        await self._client.started()
        for topic, broker_name, address in sorted(places):
            self._spawn(self._receive(topic, broker_name, address))

    async def close(self) -> None:
        """At once, whatever handlers do."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._client.close(goodbye=self._group)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _receive(self, topic: str, broker_name: str, address: str) -> None:
        request = pb.ReceiveMessageRequest(
            group=pb.Resource(name=self._group), message_queue=pb.MessageQueue(topic=pb.Resource(name=topic)),
            filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"), batch_size=BATCH, auto_renew=True,
        )  # fmt: skip
        request.long_polling_timeout.FromMilliseconds(round(POLL_S * 1000))
        while True:
            try:
                found = await self._client.receive(address, request, POLL_S + LEFT_S)
            except DejamqError:  # its broker is away
                await asyncio.sleep(PAUSE_S)
                continue
            for each in found:
                self._spawn(self._handle(each, _Delivery(self._group, broker_name, each), address))

    async def _handle(self, given: pb.Message, delivery: "_Delivery", address: str) -> None:
        number, journal = next(self._numbers), self._client.journal
        received = delivery.received(self._client.boot_id, number)
        journal.write(delivery.entered(self._client.client_id, number))
        try:
            done = await self._handlers.one(received) is not ConsumeStatus.RECONSUME_LATER
        except ScriptedFailure:
            done = False
        journal.write(delivery.ended(number, "success" if done else "exception"))
        named: dict[str, Any] = {"group": pb.Resource(name=self._group), "topic": given.topic}
        system = given.system_properties
        if done:
            journal.write(delivery.trying(self._client.client_id, number))
            entry = pb.AckMessageEntry(message_id=system.message_id, receipt_handle=system.receipt_handle)
            await self._tell(address, "AckMessage", pb.AckMessageRequest(entries=[entry], **named))
            return
        request = pb.ChangeInvisibleDurationRequest(
            message_id=system.message_id, receipt_handle=system.receipt_handle, **named
        )
        wait_s = self._backoff_s[min(system.delivery_attempt, len(self._backoff_s)) - 1]
        request.invisible_duration.FromMilliseconds(round(wait_s * 1000))
        await self._tell(address, "ChangeInvisibleDuration", request)

    async def _tell(self, address: str, name: str, request: Any) -> None:
        """Until the broker hears it. What it refuses comes again, and such programs do no more about it."""
        while True:
            try:
                await self._client.call(address, name, request)
                return
            except BrokerUnavailable:
                await asyncio.sleep(PAUSE_S)
            except DejamqError:
                return


class _Delivery:
    """A message as the journal and the handlers take it. Its place is in its receipt handle."""

    def __init__(self, group: str, broker_name: str, message: pb.Message) -> None:
        self._message, self._handle = message, Handle.read(message.system_properties.receipt_handle)
        topic = physical_topic(group, message.topic.name, self._handle.kind)
        self._queue = MessageQueue(topic, broker_name, self._handle.queue_id)
        self._place: dict[str, Any] = {
            "group": group, "topic": topic, "broker_name": broker_name, "queue_id": self._handle.queue_id,
        }  # fmt: skip

    def received(self, boot_id: str, number: int) -> ReceivedMessage:
        """For the lab's handlers, which take messages of the SDK: of the record that it was made of."""
        system, handle = self._message.system_properties, self._handle
        properties = dict(self._message.user_properties) | {
            PROPERTY_UNIQUE_KEY: system.message_id, PROPERTY_KEYS: " ".join(system.keys),
        }  # fmt: skip
        raw = encode(Record(
            self._queue.topic, self._queue.queue_id, self._message.body, encode_properties(properties),
            queue_offset=handle.queue_offset, log_offset=handle.log_offset,
        ))  # fmt: skip
        batch, (made,) = receive(PullAnswer(sizes=np.array([len(raw)], "<u4"), records=(raw,)), self._queue, boot_id)
        batch.first_topic, batch.group, made.delivery_number = self._message.topic.name, self._place["group"], number
        return made

    def entered(self, client_id: str, number: int) -> Deliver:
        system, handle = self._message.system_properties, self._handle
        return Deliver(
            pq_id=0, **self._place, client_id=client_id, delivery_ids=[number], queue_offsets=[handle.queue_offset],
            log_offsets=[handle.log_offset], unique_keys=[system.message_id], store_hosts=[system.store_host],
            reconsume_times=[system.delivery_attempt - 1], business_keys=list(system.keys[:1]), kind="pop",
        )  # fmt: skip

    def ended(self, number: int, status: str) -> Result:
        return Result(
            pq_id=0, **self._place, delivery_ids=[number], queue_offsets=[self._handle.queue_offset], status=status,
            mem_off=-1,
        )  # fmt: skip

    def trying(self, client_id: str, number: int) -> AckTry:
        return AckTry(
            **self._place, client_id=client_id, delivery_ids=[number], queue_offsets=[self._handle.queue_offset],
            pop_times=[self._handle.pop_time],
        )  # fmt: skip
