"""From messages to calls: the checks that ``send`` makes at once, compression and the namespace."""

import asyncio
from collections.abc import Mapping
from time import monotonic

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.compression import compress
from dejamq_proto.names import MESSAGE_TYPE_REPLY, PROPERTY_MESSAGE_TYPE, PROPERTY_REPLY_TO_CLIENT
from dejamq_proto.record import HEADER_SIZE

from dejamq.call import NO_WAIT, PLAIN, REPLY, REWRITE, TRANSACTION, Call
from dejamq.call_ids import CallIds
from dejamq.encoding import ID_SIZE, Template, before_id, check_body, encode_id, encode_rest, template, transactional
from dejamq.message import Message, MessageQueue, SendResult
from dejamq.namespace import unwrap, unwrap_queue, wrap, wrap_queue
from dejamq.producer_config import ProducerConfig
from dejamq.selectors import Selector, by_sharding_key

MOST_QUEUE_ID = (1 << 31) - 1
Destination = MessageQueue | Selector | None


class Intake:
    """Makes the calls of one producer and numbers them; nothing is sent here. Owned by the event loop."""

    def __init__(self, config: ProducerConfig) -> None:
        self._timeout_s = config.send_msg_timeout_ms / 1000
        self._max_message_size = config.max_message_size
        self._namespace = config.namespace
        self._pack_from = config.compress_msg_body_over_howmuch
        self._compression, self._level = config.compression, config.compress_level
        # bodies that are neither too large nor packed; with a namespace every message is changed
        self.plain_below = 0 if config.namespace else min(config.max_message_size + 1, self._pack_from)
        self._last: tuple[str, int, str | None, Template | None] = ("", 0, None, None)
        self.call_ids = CallIds()

    def plain(self, message: Message) -> Template | None:
        """What the message has beside its body and id, if others have the same; None: it needs a call of its own.

        Raises InvalidName, DejamqError.
        """
        if type(message) is not Message or not 0 < len(message.body) < self.plain_below or _has_rest(message):
            return None
        topic, flag, tags = message.topic, message.flag, message.tags
        last_topic, last_flag, last_tags, common = self._last
        if topic != last_topic or flag != last_flag or tags != last_tags or common is None:
            common = template(topic, flag, tags)
            self._last = (topic, flag, tags, common)
        return common

    def call(
        self, message: Message, future: "asyncio.Future[SendResult] | None", timeout_ms: float | None = None,
        mode: str = "sync",
    ) -> Call:  # fmt: skip
        """The call of one ``send``. Raises InvalidName, MessageTooLarge, DejamqError, and TypeError for no message."""
        try:
            size = len(message.body)
        except AttributeError:
            raise no_message(message) from None
        if not 0 < size <= self._max_message_size:
            check_body(message.body, self._max_message_size)
        if self._namespace:
            message = msgspec.structs.replace(message, topic=wrap(self._namespace, message.topic))
        common = template(message.topic, message.flag, message.tags)
        budget_s = self._timeout_s if timeout_ms is None else self.budget_s(timeout_ms)
        call = Call(
            message, common, common.rest, PLAIN, self.call_ids.take(1).start, monotonic() + budget_s,
            common.size + size, future, mode, future is None, None, common.before,
        )  # fmt: skip
        if _has_rest(message):
            self._take_rest(call)
        if size >= self._pack_from:
            self._pack(call)
        return call

    def half_call(
        self, message: Message, group: str, future: "asyncio.Future[SendResult]", timeout_ms: float | None
    ) -> Call:
        """As ``call``, for the half message of a transaction of this producer group.

        Raises INVALID_PARAMETER for a reply, which nobody would wait for so long.
        """
        call = self.call(message, future, timeout_ms)
        if call.kind == REPLY:
            text = "a reply cannot be sent in a transaction"
            raise DejamqError(text, code=Code.INVALID_PARAMETER, definite=True)
        _set_rest(call, transactional(call.rest, group))
        call.kind = TRANSACTION
        return call

    def batch_call(self, message: Message, future: "asyncio.Future[SendResult]", timeout_ms: float | None) -> Call:
        """As ``call``; bodies of a batch are not packed, as in RocketMQ."""
        call = self.call(message, future, timeout_ms)
        if call.packed:
            call.size += len(message.body) - len(call.packed)
            call.packed, call.common = b"", template(call.message.topic, message.flag, message.tags)
        return call

    def direct(self, call: Call, destination: Destination) -> None:
        """Let the call go to this queue, or to the one that the selector will choose, and nowhere else.

        Raises INVALID_PARAMETER for another topic's queue, where a record would be found by nobody, and for an
        impossible one.
        """
        call.pinned = True
        if isinstance(destination, MessageQueue):
            call.queue = self.inside(destination)
            if not -MOST_QUEUE_ID <= call.queue.queue_id <= MOST_QUEUE_ID:
                text = f"queue id {call.queue.queue_id} does not fit a record"
                raise DejamqError(text, code=Code.INVALID_PARAMETER)
            if call.queue.topic != call.message.topic:
                place = f"{destination.topic}/{destination.broker_name}/{destination.queue_id}"
                topic = unwrap(self._namespace, call.message.topic)
                raise DejamqError(f"queue {place} is not of topic {topic!r}", code=Code.INVALID_PARAMETER)
        elif callable(destination):
            call.select = self._selecting(destination)
        else:
            raise TypeError(f"queue= takes a MessageQueue or a selector, not {type(destination).__name__}")

    def inside(self, queue: MessageQueue) -> MessageQueue:
        """The queue as brokers know it."""
        return wrap_queue(self._namespace, queue)

    def topic(self, topic: str) -> str:
        """The topic as brokers know it. Raises InvalidName for one that may not be sent to."""
        topic = wrap(self._namespace, topic)
        template(topic, 0, None)
        return topic

    def outside(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the program knows it."""
        return unwrap_queue(self._namespace, queue)

    def _selecting(self, select: Selector) -> Selector:
        """The program's selector, which knows nothing of the namespace."""
        if not self._namespace:
            return select
        outside, inside, namespace = self.outside, self.inside, self._namespace
        return lambda queues, message: inside(
            select(
                [outside(queue) for queue in queues],
                msgspec.structs.replace(message, topic=unwrap(namespace, message.topic)),
            )
        )

    def _take_rest(self, call: Call) -> None:
        """What most messages have not."""
        message = call.message
        _set_rest(call, encode_rest(message, call.common))
        call.kind = REWRITE if message.delay_level else PLAIN if message.wait_store else NO_WAIT
        if message.sharding_key is not None:
            call.select, call.pinned = by_sharding_key, True
        if message.properties:
            _special(call, message.properties)

    def _pack(self, call: Call) -> None:
        """Send the body compressed, where that makes it smaller.

        RocketMQ compresses whatever comes; a picture or an archive would only cost its consumers time.
        """
        message = call.message
        packed = compress(message.body, self._compression, self._level)
        if len(packed) < len(message.body):
            call.size += len(packed) - len(message.body)
            call.packed = packed
            call.common = template(message.topic, message.flag, message.tags, self._compression.sys_flag)

    def budget_s(self, timeout_ms: float | None) -> float:
        """Seconds for all of a send. Raises INVALID_PARAMETER for no time at all."""
        if timeout_ms is None:
            return self._timeout_s
        if not timeout_ms > 0:
            raise DejamqError(f"timeout_ms is {timeout_ms}, it must be more than 0", code=Code.INVALID_PARAMETER)
        return timeout_ms / 1000


def _has_rest(message: Message) -> bool:
    """It has what most messages have not."""
    message_id = message.message_id
    if message.keys or message.properties or message.delay_level or message.sharding_key is not None:
        return True
    return not message.wait_store or len(message_id) != ID_SIZE or not message_id.isascii()


def no_message(thing: object) -> TypeError:
    """For what a program took for a message."""
    return TypeError(f"a producer sends Messages, not {type(thing).__name__}")


def _set_rest(call: Call, rest: bytes) -> None:
    """Raises InvalidName, MessageTooLarge."""
    message_id = encode_id(call.message)
    call.rest, call.before = rest, before_id(call.common.record, len(message_id), rest)
    call.size = HEADER_SIZE + len(call.packed or call.message.body) + len(call.before) + len(message_id) + len(rest)


def _special(call: Call, properties: Mapping[str, str]) -> None:
    """Replies and requests: the broker looks at each.

    A reply is a run of its own, because each is answered for itself. Into a request the broker writes the name of
    its cluster, which whoever replies needs.
    """
    if properties.get(PROPERTY_MESSAGE_TYPE) == MESSAGE_TYPE_REPLY:
        call.kind, call.batch = REPLY, -call.call_id
    elif PROPERTY_REPLY_TO_CLIENT in properties:
        call.kind = REWRITE
