"""Pops of RocketMQ's consumers in POP mode and of its proxies: headers become queries, answers carry records.

Source: RocketMQ ``PopMessageProcessor``, ``AckMessageProcessor``, ``ChangeInvisibleTimeProcessor``,
``NotificationProcessor``, ``ExtraInfoUtil``.
"""

import base64
import binascii
from collections.abc import Iterator
from functools import partial

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import PROPERTY_POP_CK
from dejamq_proto.records.record import decode, encode, encode_properties
from dejamq_proto.remoting import bodies, pop_requests
from dejamq_proto.remoting.frames import answer
from dejamq_proto.remoting.header import Command

from dejamq_broker.doors.remoting.session import ClientSession, Handler
from dejamq_broker.doors.remoting.traceable import traceable
from dejamq_broker.pop.handles import KINDS, NORMAL, ORDER_QUEUE, Handle, physical_topic
from dejamq_broker.pop.query import POINT_MESSAGES, PopAnswer, Popped, PopQuery
from dejamq_broker.pop.records import REVIVE_QUEUE
from dejamq_broker.pop.revive import first_topic
from dejamq_broker.pop.service import Pops
from dejamq_broker.pop.waiting import HeldPops
from dejamq_broker.tables.offsets import Position

MOST_BITS = 1024
"""Messages of one check point that a batch may name: RocketMQ pops 32 at a time."""
MOST_POINTS = 1024


class Popping:
    """Owned by the event loop."""

    def __init__(self, pops: Pops, held: HeldPops, broker_name: str, max_wait_ms: int | None) -> None:
        """``max_wait_ms`` bounds how long a request may be held; None: clients decide."""
        self._pops, self._held, self._broker_name, self._max_wait_ms = pops, held, broker_name, max_wait_ms

    def handlers(self) -> dict[int, Handler]:
        """By the numbers of their requests."""
        return {
            pop_requests.POP_MESSAGE.code: self._pop, pop_requests.ACK_MESSAGE.code: self._ack,
            pop_requests.BATCH_ACK_MESSAGE.code: self._batch_ack, pop_requests.CHANGE_INVISIBLE.code: self._change,
            pop_requests.NOTIFICATION.code: self._notify,
        }  # fmt: skip

    def _pop(self, client: ClientSession, command: Command) -> Command | None:
        header = pop_requests.POP_MESSAGE.read(command)
        query = PopQuery(
            asker=client.asker(command), group=header.consumer_group, topic=header.topic, queue_id=header.queue_id,
            max_messages=header.max_msg_nums, invisible_ms=header.invisible_time, from_min=header.init_mode == 0,
            expression=header.exp or "*", expression_type=header.exp_type or "TAG", ordered=bool(header.order),
            attempt_id=header.attempt_id or "",
        )  # fmt: skip
        if query.max_messages > POINT_MESSAGES:  # a check point for each queue is all that the answer can name
            text = f"a pop gives 1 to {POINT_MESSAGES} messages, not {query.max_messages}"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)
        self._pops.begin(query)
        found = self._pops.pop(query)
        if found.batches or header.poll_time <= 0:
            return _popped(command, query, found)

        def told(outcome: PopAnswer | DejamqError) -> None:
            client.connection.answer_later(command, partial(_later, command, query, outcome))

        try:
            self._held.park(
                query, self._wait_ms(header.poll_time), told, client, admit=partial(client.connection.admit, command)
            )
        except DejamqError as full:
            return answer(command, full.code, str(full), _fields(query, found))
        return None

    def _notify(self, client: ClientSession, command: Command) -> Command | None:
        header = pop_requests.NOTIFICATION.read(command)
        query = PopQuery(
            asker=client.asker(command), group=header.consumer_group, topic=header.topic, queue_id=header.queue_id,
            ordered=bool(header.order), attempt_id=header.attempt_id or "",
        )  # fmt: skip
        self._pops.begin(query)
        there = self._pops.has_messages(query)
        if there or header.poll_time <= 0:
            return answer(command, fields=pop_requests.PopAnswered(has_msg=there))

        def told(outcome: PopAnswer | DejamqError) -> None:
            client.connection.answer_later(command, partial(_notified, command, outcome))

        try:
            self._held.park(
                query,
                self._wait_ms(header.poll_time),
                told,
                client,
                peek=True,
                admit=partial(client.connection.admit, command),
            )
        except DejamqError:
            return answer(command, fields=pop_requests.PopAnswered(has_msg=False, polling_full=True))
        return None

    def _ack(self, client: ClientSession, command: Command) -> Command:
        group, topic, handle = _named(pop_requests.ACK_MESSAGE.read(command))
        (refused,) = self._pops.ack(group, topic, [handle], client.asker(command))
        if refused is not None:
            raise refused
        return answer(command)

    def _batch_ack(self, client: ClientSession, command: Command) -> Command:
        """Offsets that name nothing are passed over, as RocketMQ does."""
        batch = bodies.read(command.body, bodies.BatchAck)
        if not batch.acks:
            raise DejamqError("the batch names no messages", code=Code.NO_MESSAGE)
        if len(batch.acks) > MOST_POINTS:
            raise DejamqError(f"a batch names at most {MOST_POINTS} check points", code=Code.INVALID_PARAMETER)
        for one in batch.acks:
            if one.retry not in map(str, KINDS):
                raise DejamqError(f"{one.retry!r:.20} is no kind of topic", code=Code.MESSAGE_ILLEGAL)
            handles = [
                Handle(
                    one.start_offset, one.pop_time, one.invisible_ms, one.revive_queue_id, int(one.retry),
                    batch.broker_name or self._broker_name, one.queue_id, offset,
                )
                for offset in _offsets(one)
            ]  # fmt: skip
            self._pops.ack(one.group, one.topic, handles, client.asker(command))
        return answer(command)

    def _change(self, client: ClientSession, command: Command) -> Command:
        header = pop_requests.CHANGE_INVISIBLE.read(command)
        group, topic, handle = _named(header)
        changed = self._pops.change(group, topic, handle, header.invisible_time, client.asker(command))
        return answer(command, fields=pop_requests.InvisibleChanged(
            pop_time=changed.pop_time, invisible_time=changed.invisible_ms, revive_qid=changed.revive_queue_id
        ))  # fmt: skip

    def _wait_ms(self, asked_ms: int) -> int:
        return asked_ms if self._max_wait_ms is None else min(asked_ms, self._max_wait_ms)


def _named(header: pop_requests.AckMessage) -> tuple[str, str, Handle]:
    """Group, the topic that was asked for, and the delivery. Clients name the topic in which the message lies."""
    handle = Handle.read(header.extra_info)
    topic = first_topic(Position(header.consumer_group, header.topic, header.queue_id))
    if physical_topic(header.consumer_group, topic, handle.kind) != header.topic:
        raise DejamqError("the receipt handle is one of another topic", code=Code.MESSAGE_ILLEGAL)
    named = msgspec.structs.replace(handle, queue_id=header.queue_id, queue_offset=header.offset)
    return header.consumer_group, topic, named


def _later(command: Command, query: PopQuery, outcome: PopAnswer | DejamqError) -> Command:
    if isinstance(outcome, DejamqError):
        raise outcome
    return _popped(command, query, outcome)


def _notified(command: Command, outcome: PopAnswer | DejamqError) -> Command:
    if isinstance(outcome, DejamqError):
        raise outcome
    return answer(command, fields=pop_requests.PopAnswered(has_msg=outcome.rest > 0))


def _popped(command: Command, query: PopQuery, found: PopAnswer) -> Command:
    if not found.batches:
        return answer(command, Code.POLLING_TIMEOUT, "no message came", _fields(query, found))
    body = b"".join(batch.records if batch.kind == NORMAL else _as_asked(batch, query.topic) for batch in found.batches)
    return answer(command, remark="FOUND", fields=_fields(query, found), body=traceable(body))


def _fields(query: PopQuery, found: PopAnswer) -> pop_requests.MessagePopped:
    """All that clients make receipt handles of; they read the numbers also where nothing was found."""
    batches = found.batches
    invisible_ms = batches[0].invisible_ms if batches else query.invisible_ms
    starts = [f"{each.kind} {each.queue_id} {each.start_offset}" for each in batches]
    offsets = [f"{each.kind} {each.queue_id} {','.join(map(str, each.offsets))}" for each in batches]
    counts = [text for each in batches for text in _counts(each)]
    return pop_requests.MessagePopped(
        pop_time=found.pop_time, invisible_time=invisible_ms,
        revive_qid=ORDER_QUEUE if query.ordered else REVIVE_QUEUE, rest_num=found.rest,
        start_offset_info=";".join(starts) or None, msg_offset_info=";".join(offsets) or None,
        order_count_info=";".join(counts) or None,
    )  # fmt: skip


def _counts(batch: Popped) -> Iterator[str]:
    if batch.counts:
        yield f"{batch.kind} {batch.queue_id} {min(batch.counts)}"
        for offset, count in zip(batch.offsets, batch.counts, strict=True):
            yield f"{batch.kind} qo{batch.queue_id}%{offset} {count}"


def _as_asked(batch: Popped, topic: str) -> bytes:
    """Retries under the topic that was asked for, each with its own receipt handle."""
    pieces, at = [], 0
    for handle, size in zip(batch.handles(), batch.sizes, strict=True):
        record = decode(batch.records, at, check_crc=False)
        text = str(handle).rpartition(" ")[0]
        properties = record.properties | {PROPERTY_POP_CK: text}
        pieces.append(encode(msgspec.structs.replace(
            record, topic=topic, raw_properties=encode_properties(properties), magic=None
        )))  # fmt: skip
        at += size
    return b"".join(pieces)


def _offsets(one: bodies.BatchAckOne) -> Iterator[int]:
    """Raises MESSAGE_ILLEGAL for bits that are none."""
    try:
        bits = base64.b64decode(one.bits, validate=True)
    except (binascii.Error, ValueError):
        raise DejamqError("the bits of a batch are no base64", code=Code.MESSAGE_ILLEGAL) from None
    if len(bits) > MOST_BITS // 8:
        raise DejamqError(f"a batch names at most {MOST_BITS} messages of a check point", code=Code.INVALID_PARAMETER)
    for number, byte in enumerate(bits):
        yield from (one.start_offset + 8 * number + bit for bit in range(8) if byte >> bit & 1)
