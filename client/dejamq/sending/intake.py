"""From messages to sends: the checks that ``send`` makes at once, compression and the namespace."""

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import MESSAGE_TYPE_REPLY, PROPERTY_MESSAGE_TYPE, PROPERTY_REPLY_TO_CLIENT
from dejamq_proto.records.compression import compress
from dejamq_proto.records.record import HEADER_SIZE

from dejamq.sending.encoding import (
    ID_SIZE,
    Template,
    before_id,
    check_body,
    encode_id,
    encode_rest,
    template,
    transactional,
)
from dejamq.sending.sends import DEDUP, NO_WAIT, PLAIN, REPLY, REWRITE, TRANSACTION, Extra, Sends, own_columns
from dejamq.values.message import Message, MessageQueue, SendResult
from dejamq.values.namespace import unwrap, unwrap_queue, wrap, wrap_queue
from dejamq.values.producer_config import ProducerConfig
from dejamq.values.selectors import Selector, by_dedup_id, by_sharding_key

MOST_QUEUE_ID = (1 << 31) - 1
Destination = MessageQueue | Selector | None
Columns = Callable[[str, int, int], Sends]
"""Gives the columns that a send of this mode, kind and size (bytes) joins."""


class Intake:
    """Makes the sends of one producer; nothing is sent here. Owned by the event loop."""

    def __init__(self, config: ProducerConfig) -> None:
        self._timeout_s = config.send_msg_timeout_ms / 1000
        self._max_message_size = config.max_message_size
        self._namespace, self._idempotent = config.namespace, config.idempotent
        self._template = partial(template, known_by_id=True) if config.idempotent else template
        self._pack_from = config.compress_msg_body_over_howmuch
        self._compression, self._level = config.compression, config.compress_level
        # bodies that are neither too large nor packed; with a namespace every message is changed
        self.plain_below = 0 if config.namespace else min(config.max_message_size + 1, self._pack_from)
        self._last: tuple[str, int, str | None, Template | None] = ("", 0, None, None)

    def plain(self, message: Message) -> Template | None:
        """The message's parts beside body and id, if other messages share them; None: see ``single``.

        Raises InvalidName, DejamqError.
        """
        if type(message) is not Message or not 0 < len(message.body) < self.plain_below or _has_rest(message):
            return None
        topic, flag, tags = message.topic, message.flag, message.tags
        last_topic, last_flag, last_tags, common = self._last
        if topic != last_topic or flag != last_flag or tags != last_tags or common is None:
            common = self._template(topic, flag, tags)
            self._last = (topic, flag, tags, common)
        return common

    def single(
        self, message: Message, future: "asyncio.Future[SendResult] | None", timeout_ms: float | None = None,
        mode: str = "sync", queue: Destination = None, *, columns: Columns | None = None, pack: bool = True,
        half_of: str = "",
    ) -> Sends:  # fmt: skip
        """One send in columns of its own, or in those that it joins.

        Raises InvalidName, MessageTooLarge, DejamqError, and TypeError for no message.

        ``queue``: the one that it goes to, or the selector that will choose it. ``pack``: not for bodies of a batch,
        as in RocketMQ. ``half_of``: the producer group of a transaction; raises INVALID_PARAMETER for a reply, which
        nobody would wait for so long.
        """
        try:
            size = len(message.body)
        except AttributeError:
            raise no_message(message) from None
        if not 0 < size <= self._max_message_size:
            check_body(message.body, self._max_message_size)
        if self._namespace:
            message = msgspec.structs.replace(message, topic=wrap(self._namespace, message.topic))
        common = self._template(message.topic, message.flag, message.tags)
        budget_s = self._timeout_s if timeout_ms is None else self.budget_s(timeout_ms)
        packed = self._packed(message.body) if pack and size >= self._pack_from else b""
        if packed:
            common = self._template(message.topic, message.flag, message.tags, self._compression.sys_flag)
        kind, size, extra = PLAIN, common.size + size, None
        if packed or half_of or _has_rest(message):
            kind, size, extra = _with_rest(message, common, packed, half_of)
        if (self._idempotent or message.dedup_id is not None) and kind not in (REPLY, TRANSACTION):
            kind |= DEDUP
        if queue is not None:
            extra = extra or Extra(common.before, common.rest)
            extra.where = self._where(queue, common.topic)
        sends = columns(mode, kind, size) if columns else own_columns(mode, kind)
        sends.append(mode, message, common, size, future, monotonic() + budget_s, extra)
        return sends

    def _where(self, destination: MessageQueue | Selector, topic: str) -> MessageQueue | Selector:
        """The queue, or the selector of one, as brokers know it.

        Raises INVALID_PARAMETER for another topic's queue, where a record would be found by nobody, and for an
        impossible one.
        """
        if isinstance(destination, MessageQueue):
            queue = self.inside(destination)
            if not -MOST_QUEUE_ID <= queue.queue_id <= MOST_QUEUE_ID:
                text = f"queue id {queue.queue_id} does not fit a record"
                raise DejamqError(text, code=Code.INVALID_PARAMETER)
            if queue.topic != topic:
                place = f"{destination.topic}/{destination.broker_name}/{destination.queue_id}"
                text = f"queue {place} is not of topic {unwrap(self._namespace, topic)!r}"
                raise DejamqError(text, code=Code.INVALID_PARAMETER)
            return queue
        if callable(destination):
            return self._selecting(destination)
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

    def _packed(self, body: bytes) -> bytes:
        """The body compressed, where that makes it smaller; else nothing.

        RocketMQ compresses whatever comes; a picture or an archive would only cost its consumers time.
        """
        packed = compress(body, self._compression, self._level)
        return packed if len(packed) < len(body) else b""

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
    if message.keys or message.properties or message.is_delayed or message.sharding_key is not None:
        return True
    if message.dedup_id is not None:
        return True
    return not message.wait_store or len(message_id) != ID_SIZE or not (message_id.isascii() and message_id.isalnum())


def no_message(thing: object) -> TypeError:
    """For what a program took for a message."""
    return TypeError(f"a producer sends Messages, not {type(thing).__name__}")


def _with_rest(message: Message, common: Template, packed: bytes, half_of: str) -> tuple[int, int, Extra]:
    """Kind, size and parts of a record that has what most have not. Raises InvalidName, MessageTooLarge."""
    rest, message_id, kind = encode_rest(message, common), encode_id(message), _kind(message)
    if message.dedup_id is not None and (half_of or kind == REPLY):
        text = "a reply, or a message of a transaction, cannot have a dedup_id"
        raise DejamqError(text, code=Code.INVALID_PARAMETER, definite=True)
    if half_of:
        if kind == REPLY:
            text = "a reply cannot be sent in a transaction"
            raise DejamqError(text, code=Code.INVALID_PARAMETER, definite=True)
        rest, kind = transactional(rest, half_of), TRANSACTION
    before = before_id(common.record, len(message_id), rest)
    size = HEADER_SIZE + len(packed or message.body) + len(before) + len(message_id) + len(rest)
    return kind, size, Extra(before, rest, packed, _where(message))


def _where(message: Message) -> Selector | None:
    """Where it goes by itself, if not anywhere."""
    if message.sharding_key is not None:
        return by_sharding_key
    return None if message.dedup_id is None else by_dedup_id


def _kind(message: Message) -> int:
    """The broker looks at each reply and request: into a request it writes the name of its cluster, which whoever
    replies needs.
    """
    if message.properties:
        if message.properties.get(PROPERTY_MESSAGE_TYPE) == MESSAGE_TYPE_REPLY:
            return REPLY
        if PROPERTY_REPLY_TO_CLIENT in message.properties:
            return REWRITE
    return REWRITE if message.is_delayed else PLAIN if message.wait_store else NO_WAIT
