"""The parts of a started simple consumer: which brokers it asks, and what becomes of what they give."""

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
from dejamq_proto import pop_pb2 as pb
from dejamq_proto.client_pb2 import ConsumerData
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, RouteNotFound, SendTimeout, error_for
from dejamq_proto.journal.events import AckTry, Deliver, Result
from dejamq_proto.names import PROPERTY_ORIGIN_MESSAGE_ID
from dejamq_proto.wire.messages import PullAnswer

from dejamq.handling.subscriptions import Subscription, Subscriptions
from dejamq.net.broker import BrokerLink
from dejamq.net.instance import Instance
from dejamq.receiving.deliveries import business_key
from dejamq.receiving.delivery_columns import Stretches
from dejamq.receiving.received import ReceivedMessage, receive
from dejamq.simple.acks import Acks
from dejamq.simple.receives import Receives
from dejamq.values.config import SimpleConfig
from dejamq.values.message import MessageQueue
from dejamq.values.namespace import unwrap, unwrap_queue, wrap

log = logging.getLogger("dejamq.clients.consumer")
NO_QUEUE = 0
"""A popped message comes of no process queue."""
ROUTE_PAUSE_S = 0.5
PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
MOST_RECEIVES = 64
"""Places and invisible times whose receives are gathered."""
RUN_BYTES = 1 << 20
"""Of records that are received as one run, at most: a message keeps its run in memory."""


class TopicAtBroker(NamedTuple):
    """A topic at a broker. ``topic`` is as brokers know it."""

    topic: str
    broker_name: str


class SimpleRunning:
    """Made in the loop that will own it."""

    def __init__(self, group: str, config: SimpleConfig, subscriptions: Subscriptions, *, from_min: bool) -> None:
        """``group`` is as brokers know it; for ``from_min`` see ``ReceiveRequest``."""
        self._group, self.config, self._subscriptions, self._from_min = group, config, subscriptions, from_min
        self.instance = Instance(config, role="consumer")
        self.failed = asyncio.Event()
        self.instance.on_fatal.connect(lambda error: self.failed.set())
        self.instance.register_consumer(self._consumer_data)
        self._acks: dict[TopicAtBroker, Acks] = {}
        self._receives: dict[tuple[TopicAtBroker, int], Receives] = {}
        self._numbers, self._turn = count(1), 0
        self._spare: list[ReceivedMessage] = []

    async def start(self) -> None:
        """Become a member of the group. Raises BrokerUnavailable when no name server answers."""
        await self.instance.start()
        for one in self._subscriptions:
            self.instance.routes.watch(one.topic)
        try:
            await asyncio.gather(*(self.instance.routes.refresh(one.topic) for one in self._subscriptions))
        except RouteNotFound:
            pass  # nobody has sent to it yet
        await self.instance.heartbeat()

    async def close(self, timeout_s: float) -> None:
        """What was received and not handed out comes again at once; the rest when its time is over."""
        spare, self._spare = self._spare, []
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(self.change(message, 0) for message in spare), return_exceptions=True)
        except TimeoutError:
            pass
        for receives in self._receives.values():
            receives.close()
        for acks in self._acks.values():
            acks.close()
        await self.instance.close(timeout_s)

    def give_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """The program did not get these: the next receive does, or ``close`` makes them visible."""
        self._spare += messages

    # receiving

    async def receive(self, most: int, invisible_ms: int, timeout_s: float) -> list[ReceivedMessage]:
        """At most so many, of whichever broker has some; ``[]`` when none came in time.

        A broker that cannot be reached is asked again until the time is over; then its error is raised.
        """
        deadline_s = time.monotonic() + timeout_s
        if self._spare:
            found, self._spare = self._spare[:most], self._spare[most:]
            return found
        pause_s = PAUSE_S
        while True:
            places, failure = await self._places(), None
            left_s = max(0.0, deadline_s - time.monotonic())
            try:
                if found := await self._of_any(places, most, invisible_ms, left_s):
                    return found
            except (BrokerUnavailable, SendTimeout) as error:
                failure = error
            self.instance.check()
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                if failure is not None:
                    raise failure
                return []
            if failure is not None or not places:
                await asyncio.sleep(min(left_s, pause_s if failure else ROUTE_PAUSE_S))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _places(self) -> list[TopicAtBroker]:
        """Every broker of every topic, another one first each time."""
        places: dict[TopicAtBroker, None] = {}
        for one in tuple(self._subscriptions):
            try:
                queues = await self.instance.routes.subscribe_queues(one.topic)
            except RouteNotFound:
                continue
            places |= dict.fromkeys(TopicAtBroker(one.topic, queue.broker_name) for queue in queues)
        self._turn += 1
        found = list(places)
        return found[self._turn % len(found) :] + found[: self._turn % len(found)] if found else []

    async def _of_any(
        self, places: list[TopicAtBroker], most: int, invisible_ms: int, left_s: float
    ) -> list[ReceivedMessage]:
        """One place is asked to hold the question. Several are asked for what they have, and then all of them wait."""
        ask = partial(self._ask, most=most, invisible_ms=invisible_ms)
        wait_ms = int(min(left_s * 1000, self.config.broker_suspend_max_time_ms))
        if len(places) == 1:
            return await ask(places[0], wait_ms=wait_ms)
        for place in places:
            if found := await ask(place, wait_ms=0):
                return found
        if not wait_ms or not places:
            return []
        return await self._first([asyncio.ensure_future(ask(place, wait_ms=wait_ms)) for place in places], most)

    async def _first(self, asked: Sequence[asyncio.Future[list[ReceivedMessage]]], most: int) -> list[ReceivedMessage]:
        """What the first one brings; what others bring in the same moment is for the next receive."""
        waiting, found, failure = set(asked), list[ReceivedMessage](), None
        try:
            while waiting and not found:
                ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in ended:
                    if (error := one.exception()) is not None:
                        failure = error
                    else:
                        found += one.result()
        finally:
            for one in waiting:
                one.cancel()
        if failure is not None and not found:
            raise failure
        self._spare += found[most:]
        return found[:most]

    async def _ask(self, place: TopicAtBroker, *, most: int, invisible_ms: int, wait_ms: int) -> list[ReceivedMessage]:
        receives = self._receives.get((place, invisible_ms))
        if receives is None:
            if len(self._receives) >= MOST_RECEIVES:  # a program that asks for another time each time
                return await self._popped(place, invisible_ms, most, wait_ms)
            call = partial(self._popped, place, invisible_ms)
            receives = self._receives[place, invisible_ms] = Receives(call, self.give_back)
        return await receives.ask(most, wait_ms)

    async def _popped(self, place: TopicAtBroker, invisible_ms: int, most: int, wait_ms: int) -> list[ReceivedMessage]:
        subscription = self._subscriptions.get(place.topic)
        if subscription is None:
            return []
        answer = await self._link(place.broker_name).pop(pb.ReceiveRequest(
            caller=self.instance.caller(), group=self._group, topic=place.topic, max_messages=most,
            invisible_ms=invisible_ms, wait_ms=wait_ms, expression=subscription.expression,
            expression_type=subscription.expression_type, from_min=self._from_min,
        ))  # fmt: skip
        return [
            message for batches in _neighbours(answer.batches)
            for message in self._received(place, subscription, batches)
        ]  # fmt: skip

    def _received(
        self, place: TopicAtBroker, wanted: Subscription, batches: Sequence[pb.PoppedMessages]
    ) -> list[ReceivedMessage]:
        """Brokers compare the hashes of tags only: a message of another tag with the same hash is done at once.

        The batches are of one queue, and are one run here: most of the work is one for each run.
        """
        namespace, batch = self.config.namespace, batches[0]
        queue = unwrap_queue(namespace, MessageQueue(batch.topic, place.broker_name, batch.queue_id))
        sizes = [size for each in batches for size in each.sizes]
        answer = PullAnswer(sizes=np.array(sizes, "<u4"), records=tuple(each.records for each in batches))
        made, messages = receive(answer, queue, self.instance.boot_id)
        made.group, made.namespace = unwrap(namespace, self._group), namespace
        made.first_topic = unwrap(namespace, place.topic)
        made.handles = [handle for each in batches for handle in each.handles]
        if wanted.tags and batch.topic == place.topic:
            strangers = [message for message in messages if message.tags not in wanted.tags]
            for message in strangers:
                self.instance.spawn(self._pass_over(message), "pass-over")
            messages = [message for message in messages if message.tags in wanted.tags]
        for message in messages:
            message.delivery_number = next(self._numbers)
        if messages:
            self._tell_delivered(place, batch, messages)
        return messages

    async def _pass_over(self, message: ReceivedMessage) -> None:
        try:
            await self._told(self._place_of(message), [message])
        except DejamqError as error:
            log.warning("not_passed_over message_id=%s reason=%s", message.message_id, error)

    # what becomes of them

    async def ack(self, messages: Sequence[ReceivedMessage]) -> None:
        """Done: they do not come again. Raises the first refusal when all were tried."""
        by_place: dict[TopicAtBroker, list[ReceivedMessage]] = {}
        batch, part = None, list[ReceivedMessage]()
        for message in messages:
            if batch is None or getattr(message, "_batch", None) is not batch:
                part = by_place.setdefault(self._place_of(message), [])
                batch = message._batch
            part.append(message)
        if len(by_place) == 1:
            refusals = [await self._ack_part(*next(iter(by_place.items())))]
        else:
            refusals = await asyncio.gather(*(self._ack_part(place, part) for place, part in by_place.items()))
        for refusal in refusals:
            if refusal is not None:
                raise refusal

    async def _ack_part(self, place: TopicAtBroker, part: Sequence[ReceivedMessage]) -> DejamqError | None:
        """Why the first one is refused; those that are not are done."""
        self._tell_trying(place, part)
        try:
            outcomes = await self._told(place, part)
        except DejamqError as error:
            return error
        if not any(outcomes):
            self._tell_done(place, part)
            return None
        self._tell_done(place, [one for one, outcome in zip(part, outcomes, strict=True) if outcome is None])
        return next((outcome for outcome in outcomes if outcome is not None), None)

    async def _told(self, place: TopicAtBroker, part: Sequence[ReceivedMessage]) -> "list[DejamqError | None]":
        """A broker that does not answer is told again while the messages are surely this consumer's."""
        pause_s = PAUSE_S
        while True:
            try:
                return await self._acks_of(place).tell([message.receipt_handle for message in part])
            except (BrokerUnavailable, SendTimeout):
                self.instance.check()
                if pause_s > min(map(_left_s, part)):
                    raise
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _acks_of(self, place: TopicAtBroker) -> Acks:
        if place not in self._acks:
            self._acks[place] = Acks(partial(self._ack_all, place))
        return self._acks[place]

    async def _ack_all(self, place: TopicAtBroker, handles: Sequence[str]) -> "list[DejamqError | None]":
        caller = self.instance.caller()
        request = pb.AckRequest(caller=caller, group=self._group, topic=place.topic, handles=handles)
        outcomes = (await self._link(place.broker_name).ack(request)).outcomes
        if not outcomes:
            return [None] * len(handles)
        return [error_for(each.code, each.remark) if each.code else None for each in outcomes]

    async def change(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """The message comes again in so many ms, unless it is acknowledged before."""
        place = self._place_of(message)
        handle = await self._link(place.broker_name).change_invisible(pb.ChangeInvisibleRequest(
            caller=self.instance.caller(), group=self._group, topic=place.topic, handle=message.receipt_handle,
            invisible_ms=invisible_ms,
        ))  # fmt: skip
        message.take_handle(handle)

    def _place_of(self, message: ReceivedMessage) -> TopicAtBroker:
        if not isinstance(message, ReceivedMessage) or not message.receipt_handle:
            text = "this message came from no SimpleConsumer: it has no receipt handle"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)
        return TopicAtBroker(wrap(self.config.namespace, message.topic), message.queue.broker_name)

    def _link(self, broker_name: str) -> BrokerLink:
        address = self.instance.routes.master_address(broker_name)
        if address is None:
            raise BrokerUnavailable(f"no route names a master of broker {broker_name!r} now", definite=True)
        return self.instance.link(address)

    # told to others

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group=self._group, consume_type="POP", message_model="CLUSTERING",
            consume_from="FIRST_OFFSET" if self._from_min else "LAST_OFFSET", subscriptions=self._subscriptions.wire(),
        )  # fmt: skip

    def _tell_delivered(
        self, place: TopicAtBroker, batch: pb.PoppedMessages, messages: Sequence[ReceivedMessage]
    ) -> None:
        journal = self.instance.journal
        if not journal.on:
            return
        delivered = Stretches(messages)
        line = Deliver(
            pq_id=NO_QUEUE, group=self._group, topic=batch.topic, broker_name=place.broker_name,
            queue_id=batch.queue_id, client_id=self.instance.client_id, kind="pop",
            delivery_ids=delivered.numbers, queue_offsets=delivered.listed("queue_offset"),
            log_offsets=delivered.listed("log_offset"), unique_keys=[message.message_id for message in messages],
            store_hosts=delivered.store_hosts,
        )  # fmt: skip
        if name := self.config.journal_business_key:
            line.business_keys = [business_key(properties, name) for properties in delivered.properties()]
        if delivered.retried:
            line.reconsume_times = delivered.column("reconsume_times")
            line.origin_ids = [each.get(PROPERTY_ORIGIN_MESSAGE_ID, "") for each in delivered.properties()]
        journal.write(line)

    def _tell_trying(self, place: TopicAtBroker, part: Sequence[ReceivedMessage]) -> None:
        if not self.instance.journal.on:
            return
        for queue, messages in _by_queue(part):
            self.instance.journal.write(AckTry(
                group=self._group, topic=wrap(self.config.namespace, queue.topic), broker_name=place.broker_name,
                queue_id=queue.queue_id, client_id=self.instance.client_id,
                delivery_ids=[message.delivery_number for message in messages],
                queue_offsets=[message.queue_offset for message in messages],
                pop_times=[_times(message)[0] for message in messages],
            ))  # fmt: skip

    def _tell_done(self, place: TopicAtBroker, part: Sequence[ReceivedMessage]) -> None:
        if not self.instance.journal.on:
            return
        for queue, messages in _by_queue(part):
            self.instance.journal.write(Result(
                pq_id=NO_QUEUE, group=self._group, topic=wrap(self.config.namespace, queue.topic),
                broker_name=place.broker_name, queue_id=queue.queue_id,
                delivery_ids=[message.delivery_number for message in messages],
                queue_offsets=[message.queue_offset for message in messages], status="success",
                mem_off=messages[-1].queue_offset,
            ))  # fmt: skip


def _neighbours(batches: Sequence[pb.PoppedMessages]) -> list[list[pb.PoppedMessages]]:
    """Batches that follow one another and are of one queue."""
    found: list[list[pb.PoppedMessages]] = []
    queue, size = ("", 0), 0
    for batch in batches:
        size += len(batch.records)
        if found and queue == (batch.topic, batch.queue_id) and size <= RUN_BYTES:
            found[-1].append(batch)
        else:
            found.append([batch])
            queue, size = (batch.topic, batch.queue_id), len(batch.records)
    return found


def _by_queue(messages: Sequence[ReceivedMessage]) -> list[tuple[MessageQueue, list[ReceivedMessage]]]:
    """Messages of one receive follow one another, so that hardly any is looked at by itself."""
    found: dict[MessageQueue, list[ReceivedMessage]] = {}
    batch, part = None, list[ReceivedMessage]()
    for message in messages:
        if message._batch is not batch:
            batch = message._batch
            part = found.setdefault(batch.queue, [])
        part.append(message)
    return list(found.items())


def _left_s(message: ReceivedMessage) -> float:
    """How long the message is surely this consumer's, if both clocks agree about the time of day."""
    return sum(_times(message)) / 1000 - time.time()


def _times(message: ReceivedMessage) -> tuple[int, int]:
    """When the message was popped, and for how long it is this consumer's; ms."""
    _, popped, invisible, _ = message.receipt_handle.split(" ", 3)
    return int(popped), int(invisible)
